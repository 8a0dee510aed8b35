// Package ledger is the oracle of the demo and of the end-to-end tests: it is told what is
// published and what is handled, and counts what must not be: losses, duplicates and violations
// of the order of a key.
package ledger

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// Ledger knows what was published and what was handled, key by
// key, and counts what must not be. Keys are numbers; the entries of one key are numbered from
// 0 by the one producer that owns the key.
type Ledger struct {
	begin time.Time
	keys  []keyLedger

	mu      sync.Mutex
	windows []window // of changes, in order of time
	faults  []Fault  // order violations, newest last
}

// keyLedger is one key's. sent[n] and handled[n] are of entry n.
type keyLedger struct {
	mu      sync.Mutex
	sent    []sending
	handled []uint16 // how often
	ahead   int      // 1 + the highest number that was handled
}

// sending is when the append of an entry was called and when Redis had answered, 0 while it had not.
type sending struct{ called, landed time.Duration }

// window is the time during which a change ran.
type window struct {
	name       string
	strict     bool // the change promises the order of each key
	start, end time.Duration
}

// Fault is entry number Late of a key, handled for the first time after number early was.
type Fault struct {
	Key, Late, Early int
	From, To         time.Duration // from the append of late to that of early
}

// New is an empty ledger for keys 0..keys-1.
func New(keys int) *Ledger {
	return &Ledger{begin: time.Now(), keys: make([]keyLedger, keys)}
}

// Publish notes that the next entry of key is about to be appended and returns its number.
func (l *Ledger) Publish(key int) int {
	k := &l.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent, sending{called: time.Since(l.begin)})
	k.handled = append(k.handled, 0)
	return len(k.sent) - 1
}

// Landed notes that Redis has answered the append of an entry.
func (l *Ledger) Landed(key, number int) {
	k := &l.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent[number].landed = max(time.Since(l.begin), 1)
}

// Handle notes that an entry was handled. It returns false for one that was never published.
func (l *Ledger) Handle(key, number int) bool {
	if key < 0 || key >= len(l.keys) {
		return false
	}
	k := &l.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	if number < 0 || number >= len(k.sent) {
		return false
	}
	k.handled[number]++
	if k.handled[number] > 1 {
		return true
	}
	if number >= k.ahead {
		k.ahead = number + 1
		return true
	}
	// Out of order. The nearest later one that was handled before gives the shortest time in
	// which the layout can have changed between the two.
	early := number + 1
	for k.handled[early] == 0 {
		early++
	}
	to := k.sent[early].landed
	if to == 0 {
		to = time.Since(l.begin)
	}
	f := Fault{Key: key, Late: number, Early: early, From: k.sent[number].called, To: to}
	l.mu.Lock()
	l.faults = append(l.faults, f)
	l.mu.Unlock()
	return true
}

// Times is how often an entry was handled.
func (l *Ledger) Times(key, number int) int {
	k := &l.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	if number < 0 || number >= len(k.handled) {
		return 0
	}
	return int(k.handled[number])
}

// Change opens the window of a change; the function that it returns closes it.
func (l *Ledger) Change(name string, strict bool) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.windows)
	l.windows = append(l.windows, window{name: name, strict: strict, start: time.Since(l.begin)})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.windows[i].end = time.Since(l.begin)
	}
}

// Tally is what the ledger comes to.
type Tally struct {
	Published  int // appended: Redis answered
	Unknown    int // called, but no answer: they count as published only when handled
	Handled    int // different entries
	Duplicates int // handled again
	Lost       int // published and never handled
	Strict     int // order violations that no window excuses
	Online     int // those between two entries with a change in between that does not promise order
	Examples   []Fault
}

// Count adds everything up.
func (l *Ledger) Count() Tally {
	var t Tally
	for i := range l.keys {
		k := &l.keys[i]
		k.mu.Lock()
		for n, s := range k.sent {
			times := int(k.handled[n])
			if times > 0 {
				t.Handled++
				t.Duplicates += times - 1
			}
			switch {
			case s.landed == 0:
				t.Unknown++
			case times == 0:
				t.Published++
				t.Lost++
			default:
				t.Published++
			}
		}
		k.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		if slices.ContainsFunc(l.windows, func(w window) bool {
			return !w.strict && f.From <= w.end && f.To >= w.start
		}) {
			t.Online++
			continue
		}
		t.Strict++
		t.Examples = append(t.Examples, f)
	}
	slices.SortFunc(t.Examples, func(x, y Fault) int { return cmp.Compare(x.From, y.From) })
	return t
}

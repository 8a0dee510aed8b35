package main

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// ledger is the oracle of the demo: it knows what was published and what was handled, key by
// key, and counts what must not be. Keys are numbers; the entries of one key are numbered from
// 0 by the one producer that owns the key.
type ledger struct {
	begin time.Time
	keys  []keyLedger

	mu      sync.Mutex
	windows []window // of changes, in order of time
	faults  []fault  // order violations, newest last
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

// fault is entry number late of a key, handled for the first time after number early was.
type fault struct {
	key, late, early int
	from, to         time.Duration // from the append of late to that of early
}

func newLedger(keys int) *ledger {
	return &ledger{begin: time.Now(), keys: make([]keyLedger, keys)}
}

// publish notes that the next entry of key is about to be appended and returns its number.
func (l *ledger) publish(key int) int {
	k := &l.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent = append(k.sent, sending{called: time.Since(l.begin)})
	k.handled = append(k.handled, 0)
	return len(k.sent) - 1
}

// landed notes that Redis has answered the append of an entry.
func (l *ledger) landed(key, number int) {
	k := &l.keys[key]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent[number].landed = max(time.Since(l.begin), 1)
}

// handle notes that an entry was handled. It returns false for one that was never published.
func (l *ledger) handle(key, number int) bool {
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
	f := fault{key: key, late: number, early: early, from: k.sent[number].called, to: to}
	l.mu.Lock()
	l.faults = append(l.faults, f)
	l.mu.Unlock()
	return true
}

// change opens the window of a change; the function that it returns closes it.
func (l *ledger) change(name string, strict bool) (end func()) {
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

// tally is what the ledger comes to.
type tally struct {
	published  int // appended: Redis answered
	unknown    int // called, but no answer: they count as published only when handled
	handled    int // different entries
	duplicates int // handled again
	lost       int // published and never handled
	strict     int // order violations that no window excuses
	online     int // those between two entries with a change in between that does not promise order
	examples   []fault
}

// count adds everything up.
func (l *ledger) count() tally {
	var t tally
	for i := range l.keys {
		k := &l.keys[i]
		k.mu.Lock()
		for n, s := range k.sent {
			times := int(k.handled[n])
			if times > 0 {
				t.handled++
				t.duplicates += times - 1
			}
			switch {
			case s.landed == 0:
				t.unknown++
			case times == 0:
				t.published++
				t.lost++
			default:
				t.published++
			}
		}
		k.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		if slices.ContainsFunc(l.windows, func(w window) bool {
			return !w.strict && f.from <= w.end && f.to >= w.start
		}) {
			t.online++
			continue
		}
		t.strict++
		t.examples = append(t.examples, f)
	}
	slices.SortFunc(t.examples, func(x, y fault) int { return cmp.Compare(x.from, y.from) })
	return t
}

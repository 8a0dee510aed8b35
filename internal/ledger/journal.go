package ledger

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// EntryID is the id of an entry of a Redis stream. Ms is the server's clock when it was appended.
type EntryID struct{ Ms, Seq uint64 }

// ParseEntryID reads "ms-seq".
func ParseEntryID(text string) (EntryID, error) {
	ms, seq, ok := strings.Cut(text, "-")
	var id EntryID
	var err error
	if id.Ms, err = strconv.ParseUint(ms, 10, 64); err == nil && ok {
		id.Seq, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil || !ok {
		return EntryID{}, fmt.Errorf("entry id %q is not ms-seq", text)
	}
	return id, nil
}

func (id EntryID) String() string { return fmt.Sprintf("%d-%d", id.Ms, id.Seq) }

// Place is where an entry stands.
type Place struct {
	Shard int
	ID    EntryID
}

// Handling is one call of a handler for one entry.
type Handling struct {
	Group   int
	Process int // number of the process, another one after each start
	Epoch   int64
	Place
	Key, Number  int
	Begun, Ended time.Time // Ended is zero while, or when, it did not end
}

// Interruption is a SIGKILL or a SIGSTOP of a process that handles entries. Pending is what Redis
// held as delivered to it and not acknowledged when it no longer ran; only these entries may be
// handled again because of it.
type Interruption struct {
	Process  int
	From, To time.Time // To is zero for a SIGKILL
	Stopped  time.Time // by when nothing of it ran any more: a signal takes a moment; zero: From
	Pending  map[Place]bool
}

// Cut is the end of an ownership that its process did not want: it had lost its lease.
type Cut struct {
	Process, Shard int
	Epoch          int64
	At             time.Time
	Cause          string
}

// Window is a time in which the layout changed without a promise of order.
type Window struct{ From, To time.Time }

// Problem is a promise that was broken.
type Problem struct {
	At   time.Time
	Text string
}

// Journal is the ledger of a run with many processes that are killed and frozen. They report
// what they do, each on its own way and with its own delay; what it comes to is judged at the end.
// Keys and groups are numbers from 0; the entries of a key are numbered from 0 on by one producer at
// a time. All instants are of one machine's clock. It is safe for concurrent use.
type Journal struct {
	groups int

	mu          sync.Mutex
	keys        []journalKey
	landed      int
	handled     []int // different entries that were handled to the end, by group
	missing     int   // landed, not handled to the end: summed over the groups
	open        map[call]handlingAt
	interrupted []Interruption
	cuts        []Cut
	refusals    []Cut // of acknowledgements
	disturbed   []Window
	windows     []Window
	problems    []Problem
}

// journalKey is of one key; sent and, for each group, handled are by number.
type journalKey struct {
	sent    []sentEntry
	handled [][]Handling // by group, in the order of the reports
	ended   [][]bool     // by group and number
}

// sentEntry is one append. Place is known once it has landed or was handled.
type sentEntry struct {
	at     time.Time
	landed bool
	failed bool
	place  Place
}

// call finds the handling that ends: a process handles an entry once at a time.
type call struct {
	process int
	place   Place
}

type handlingAt struct{ key, group, index int }

// NewJournal is an empty journal for keys 0..keys-1 and groups 0..groups-1.
func NewJournal(keys, groups int) *Journal {
	j := &Journal{groups: groups, keys: make([]journalKey, keys), handled: make([]int, groups), open: map[call]handlingAt{}}
	for k := range j.keys {
		j.keys[k].handled = make([][]Handling, groups)
		j.keys[k].ended = make([][]bool, groups)
	}
	return j
}

// Attempt notes that the next entry of key is about to be appended. number must be Next(key).
func (j *Journal) Attempt(key, number int, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := &j.keys[key]
	if number != len(k.sent) {
		j.problem(at, "key %d: entry %d is appended after entry %d: the harness lost count", key, number, len(k.sent)-1)
		return
	}
	k.sent = append(k.sent, sentEntry{at: at})
}

// Next is the number of the next entry of key.
func (j *Journal) Next(key int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.keys[key].sent)
}

// Landed notes that Redis answered an append.
func (j *Journal) Landed(key, number int, at Place) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := &j.keys[key]
	k.sent[number].landed, k.sent[number].place = true, at
	j.landed++
	for g := range j.groups {
		if number >= len(k.ended[g]) || !k.ended[g][number] {
			j.missing++
		}
	}
}

// Unanswered notes that an append ended without an answer. That is a problem unless excused: the
// producer was frozen meanwhile.
func (j *Journal) Unanswered(key, number int, cause string, excused bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := &j.keys[key]
	k.sent[number].failed = true
	if !excused {
		j.problem(k.sent[number].at, "key %d: append of entry %d failed: %s", key, number, cause)
	}
}

// Begin notes that a handler was called.
func (j *Journal) Begin(h Handling) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.Key < 0 || h.Key >= len(j.keys) || h.Group < 0 || h.Group >= j.groups || h.Number < 0 {
		j.problem(h.Begun, "an entry that nobody appended was handled: %+v", h)
		return
	}
	k := &j.keys[h.Key]
	j.open[call{h.Process, h.Place}] = handlingAt{h.Key, h.Group, len(k.handled[h.Group])}
	k.handled[h.Group] = append(k.handled[h.Group], h)
}

// End notes that a handler has returned.
func (j *Journal) End(process int, place Place, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h, ok := j.open[call{process, place}]
	if !ok {
		j.problem(at, "process %d ends a handling of %s on shard %d that it did not begin", process, place.ID, place.Shard)
		return
	}
	delete(j.open, call{process, place})
	k := &j.keys[h.key]
	one := &k.handled[h.group][h.index]
	one.Ended = at
	ended := &k.ended[h.group]
	for one.Number >= len(*ended) {
		*ended = append(*ended, false)
	}
	if (*ended)[one.Number] {
		return
	}
	(*ended)[one.Number] = true
	j.handled[h.group]++
	if one.Number < len(k.sent) && k.sent[one.Number].landed {
		j.missing--
	}
}

// Interrupt notes a SIGKILL or the end of a SIGSTOP.
func (j *Journal) Interrupt(i Interruption) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.interrupted = append(j.interrupted, i)
}

// Disturb notes a time in which members may lose their leases: a coordinator was killed or frozen, the
// machine stood still.
func (j *Journal) Disturb(w Window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.disturbed = append(j.disturbed, w)
}

// Cut notes that an ownership was cut off.
func (j *Journal) Cut(c Cut) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.cuts = append(j.cuts, c)
}

// AckRefused notes that an owner could not acknowledge what it had handled.
func (j *Journal) AckRefused(c Cut) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refusals = append(j.refusals, c)
}

// Excuse notes a change without a promise of order.
func (j *Journal) Excuse(w Window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.windows = append(j.windows, w)
}

// Fail notes a problem that somebody else has found.
func (j *Journal) Fail(at time.Time, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.problem(at, format, args...)
}

func (j *Journal) problem(at time.Time, format string, args ...any) {
	j.problems = append(j.problems, Problem{at, fmt.Sprintf(format, args...)})
}

// Progress is how far a run has come. Missing is of entries that have landed and were not handled to
// the end, summed over the groups.
type Progress struct {
	Landed  int
	Handled []int
	Missing int
}

// Progress counts without judging.
func (j *Journal) Progress() Progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Progress{Landed: j.landed, Handled: append([]int(nil), j.handled...), Missing: j.missing}
}

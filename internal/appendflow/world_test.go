package appendflow

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"pgregory.net/rapid"
)

// shard is a model of a shard and its control hash.
type shard struct {
	exists, retired bool
	layout          Layout
	gate, aborted   string
	until           int64
}

// world is a model of one stream, its coordinator and the one producer under test.
type world struct {
	t      *rapid.T
	m      *Machine
	now    time.Duration
	shards []shard
	away   bool   // no coordinator answers
	layout Layout // that the coordinator serves
	open   bool

	todo   []Action
	pushed int
	next   map[string]int // by key: number of the entry to land next, at the least
	ends   map[int]int
}

func (w *world) step(in ...Input) {
	for _, a := range w.m.Step(w.now, in...) {
		if d, ok := a.(Done); ok {
			n := d.Entry.Value.(int)
			if w.ends[n]++; w.ends[n] > 1 {
				w.t.Fatalf("entry %d ended twice", n)
			}
			continue
		}
		w.todo = append(w.todo, a)
	}
}

// land records an append: entries of one key land in the order in which they were pushed.
func (w *world) land(e *Entry) {
	n := e.Value.(int)
	if n < w.next[string(e.Key)] {
		w.t.Fatalf("entry %d of key %q landed after entry %d", n, e.Key, w.next[string(e.Key)]-1)
	}
	w.next[string(e.Key)] = n + 1
}

func (w *world) ms() int64 { return w.now.Milliseconds() }

// append is the script of that name.
func (w *world) append(b *Batch) Reply {
	s := &w.shards[b.Shard]
	r := Reply{InForce: s.layout, Gate: s.gate, Until: s.until, Remaining: -1}
	if s.until > 0 {
		r.Remaining = time.Duration(s.until)*time.Millisecond - w.now
	}
	switch {
	case s.layout == Layout{}:
		r.Code = shardscript.Unfenced
	case s.retired:
		r.Code = shardscript.Retired
	case s.layout.Epoch < b.Layout.Epoch:
		r.Code = shardscript.Behind
	case s.layout != b.Layout:
		r.Code = shardscript.Stale
	case s.until > w.ms():
		r.Code = shardscript.Sealed
	case s.until > 0:
		r.Code = shardscript.Overdue
	case !s.exists:
		r.Code = shardscript.NoShard
	default:
		r.Code = shardscript.OK
		for _, e := range b.Entries {
			if want, _ := protocol.ShardIndex(e.Key, b.Layout.Count); want != b.Shard {
				w.t.Fatalf("key %q in shard %d of %+v", e.Key, b.Shard, b.Layout)
			}
			w.land(e)
		}
	}
	return r
}

// perform does one outstanding action and answers it.
func (w *world) perform(i int, lossy bool) {
	a := w.todo[i]
	w.todo = append(w.todo[:i], w.todo[i+1:]...)
	fault := 0
	if lossy {
		fault = rapid.IntRange(0, 11).Draw(w.t, "fault")
	}
	switch a := a.(type) {
	case Send:
		switch fault {
		case 1:
			w.step(Replied{a.Batch, Reply{Err: errors.New("not reached"), Retriable: true}})
		case 2:
			w.append(a.Batch)
			w.step(Replied{a.Batch, Reply{Err: errors.New("cut"), Lost: true}})
		default:
			w.step(Replied{a.Batch, w.append(a.Batch)})
		}
	case Refresh:
		if w.away || fault == 1 {
			w.step(RoutingFailed{Err: errors.New("away")})
			return
		}
		w.step(Routing{Layout: w.layout, Open: w.open, LeaseEnd: w.now + time.Second})
	case Look:
		w.step(Shard0{Layout: w.shards[0].layout, Found: fault != 1})
	case Resolve:
		z := &w.shards[0]
		r := Resolved{Shard: a.Shard, Code: shardscript.InForce, Layout: z.layout}
		switch {
		case z.gate != "" && z.gate != a.Gate:
			r.Code = shardscript.Wait
		case z.gate == a.Gate || (z.layout.Epoch == a.Epoch && z.aborted != a.Gate):
			if w.ms() < a.Until {
				r.Code = shardscript.Wait
				break
			}
			z.aborted, z.gate, z.until = a.Gate, "", 0
		}
		if fault == 1 {
			r = Resolved{Shard: a.Shard}
		}
		w.step(r)
	case Bring:
		s := &w.shards[a.Shard]
		newer, other := s.layout.Epoch > a.Layout.Epoch, s.until > 0 && (s.gate != a.Gate || s.until > w.ms())
		if s.exists && !s.retired && !newer && !other {
			s.layout, s.gate, s.until = a.Layout, "", 0
		}
		w.step(Brought{Shard: a.Shard, Failed: fault == 1})
	}
}

// reshard runs a change one random step at a time, as replicas of a coordinator would.
type reshard struct {
	id       string
	from, to Layout
	until    int64
	phase    int
	todo     []int
}

func (w *world) start(id int, epoch int64, to int) *reshard {
	r := &reshard{id: fmt.Sprint(id), from: w.layout, to: Layout{epoch, to}}
	r.until = w.ms() + int64(rapid.IntRange(5, 400).Draw(w.t, "pause"))
	for i := range max(to, r.from.Count) {
		r.todo = append(r.todo, i)
	}
	w.open = false
	return r
}

// advance does the next effect; true when the change has ended.
func (w *world) advance(r *reshard) bool {
	if len(r.todo) > 0 {
		i := 0
		if r.phase != 1 {
			i = rapid.IntRange(0, len(r.todo)-1).Draw(w.t, "shard")
		}
		s := &w.shards[r.todo[i]]
		index := r.todo[i]
		r.todo = append(r.todo[:i], r.todo[i+1:]...)
		switch r.phase {
		case 0: // seal what is old, provision what is new
			switch {
			case index >= r.from.Count && s.layout.Epoch <= r.from.Epoch:
				*s = shard{exists: true, layout: r.from, gate: r.id, until: r.until}
			case s.aborted == r.id || w.ms() >= r.until:
				r.phase = 3 // too late: undo
			case s.layout == r.from:
				s.gate, s.until = r.id, r.until
			}
		case 2: // open
			if s.layout.Epoch <= r.to.Epoch {
				s.layout, s.gate, s.until = r.to, "", 0
				if index >= r.to.Count {
					s.exists, s.retired = false, true
				}
			}
		case 3: // release
			if s.layout.Epoch <= r.from.Epoch {
				s.gate, s.until, s.aborted = "", 0, r.id
				if index >= r.from.Count {
					s.exists, s.retired = false, true
				}
			}
		}
		if len(r.todo) > 0 && r.phase != 3 {
			return false
		}
	}
	switch r.phase {
	case 0:
		r.phase = 1
		return false
	case 1: // decide
		z := &w.shards[0]
		if z.gate != r.id || w.ms() >= z.until {
			r.phase = 3
		} else {
			z.layout, z.gate, z.until = r.to, "", 0
			w.layout = r.to
			r.phase = 2
		}
	case 2:
		w.open = true
		return true
	case 3:
		z := &w.shards[0]
		if z.gate == r.id {
			z.gate, z.until = "", 0
		}
		z.aborted = r.id
		for i := range max(r.from.Count, r.to.Count) {
			s := &w.shards[i]
			if s.gate == r.id {
				s.gate, s.until, s.aborted = "", 0, r.id
			}
			if i >= r.from.Count {
				s.exists, s.retired = false, true
			}
		}
		w.open = true
		return true
	}
	for i := range max(r.from.Count, r.to.Count) {
		r.todo = append(r.todo, i)
	}
	return false
}

// Whatever the coordinator does and whatever is lost on the way, entries of a key land in
// order and once, and in the end every entry has ended.
func TestMachineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, shards: make([]shard, 5), open: true, layout: Layout{1, 2}, next: map[string]int{}, ends: map[int]int{}}
		w.m = New(Config{MaxBatch: 3, Seed: 7})
		for i := range 2 {
			w.shards[i] = shard{exists: true, layout: w.layout}
		}
		var run *reshard
		ids, epoch := 0, int64(1)
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2:
				w.m.Push(w.now, &Entry{Key: []byte{byte(rapid.IntRange(0, 5).Draw(t, "key"))}, Value: w.pushed})
				w.pushed++
				w.step()
			case 3, 4, 5:
				if len(w.todo) > 0 {
					w.perform(rapid.IntRange(0, len(w.todo)-1).Draw(t, "which"), true)
				}
			case 6:
				w.now += time.Duration(rapid.IntRange(1, 50).Draw(t, "ms")) * time.Millisecond
				w.step()
			case 7, 8:
				if run == nil {
					ids, epoch = ids+1, epoch+1
					run = w.start(ids, epoch, rapid.IntRange(1, 5).Draw(t, "to"))
				} else if !w.away && w.advance(run) {
					run = nil
				}
			case 9:
				w.away = rapid.Bool().Draw(t, "away")
				if !w.away && rapid.Bool().Draw(t, "held") { // a held routing request is answered
					w.step(Routing{Layout: w.layout, Open: w.open})
				}
			}
		}
		// From here nothing is lost, and the coordinator stays as it is: perhaps away for ever,
		// with a change half done. Then the deadline passes and the producer ends the pause.
		if w.away && run != nil && run.phase == 2 {
			w.away = false // shards that are not even provisioned need it
		}
		for rounds := 0; len(w.ends) < w.pushed; rounds++ {
			if rounds > 5000 {
				t.Fatalf("%d of %d entries have ended; now %v, layout %+v, shards %+v, to do %T %v",
					len(w.ends), w.pushed, w.now, w.m.layout, w.shards, w.todo, w.todo)
			}
			switch {
			case len(w.todo) > 0:
				w.perform(0, false)
			case !w.away && run != nil:
				if w.advance(run) {
					run = nil
					w.step(Routing{Layout: w.layout, Open: w.open})
				}
			case w.m.Wake() != Never:
				w.now = max(w.now, w.m.Wake())
				w.step()
			default:
				t.Fatalf("%d of %d entries have ended and nothing is awaited", len(w.ends), w.pushed)
			}
		}
	})
}

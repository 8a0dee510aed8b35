package stream_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// lateStep is a script that is still under way.
type lateStep struct {
	step     stream.Step
	rev      int64
	notAfter protocol.Instant
}

type savedState struct {
	s   *stream.State
	rev int64
}

// machine drives one harness through anything that may happen.
type machine struct {
	*harness
	rt     *rapid.T
	late   []lateStep
	old    []stream.PassResult
	saved  []savedState
	shards [][]*shard
	held   bool // members do not let go
	online bool // some change was ONLINE: two layouts are open for a moment
	// highest layout epoch under which an entry has landed
	landed int64
	lossy  bool // Redis loses writes
}

func (m *machine) check(*rapid.T) {
	s := m.s
	if (s.Hold != nil) && s.PublishState != protocol.PublishPaused {
		m.rt.Fatalf("an operator's pause, but %s", s.PublishState)
	}
	if r := s.Active; r != nil && r.Deadline != 0 && r.Deadline.Sub(r.PausedAt).Milliseconds() > r.Policy.PauseTimeoutMs {
		m.rt.Fatalf("the pause was extended: %s to %s", r.PausedAt, r.Deadline)
	}
	stream.View(s)
	if m.lossy {
		return
	}
	for i, sh := range m.w.shards {
		for name := range sh.groups {
			_, goes := s.Removing[name]
			if s.Groups[name] == nil && !goes && sh.retired == "" {
				m.rt.Fatalf("shard %d has group %s, which was deleted\n%s", i, name, m.log())
			}
		}
	}
}

func (m *machine) step(rt *rapid.T) {
	p := stream.Plan(m.s, m.w.now)
	rate := rapid.SampledFrom([]int{0, 0, 0, 5, 30}).Draw(rt, "faults")
	m.fault = func(st stream.Step) fate {
		m.late = append(m.late, lateStep{st, m.rev, m.w.now + effectLease})
		if rate == 0 || rapid.IntRange(0, 99).Draw(rt, "dice") >= rate {
			return run
		}
		return rapid.SampledFrom([]fate{dropped, unanswered}).Draw(rt, "fate")
	}
	m.unconfirmed = func(stream.Pass) bool { return rate > 0 && rapid.Bool().Draw(rt, "unconfirmed") }
	if next := stream.Next(m.s); next != 0 && next <= m.w.now {
		m.turn(func(x *stream.Turn) { x.Advance(m.progress(), m.w.now) })
		p = stream.Plan(m.s, m.w.now)
	}
	if p.Empty() {
		return
	}
	m.watch(p)
	res := m.pass(p)
	m.old = append(m.old, res)
	m.w.now += protocol.Instant(rapid.IntRange(0, 40).Draw(rt, "ms"))
	m.apply(res)
	m.saved = append(m.saved, savedState{m.s, m.rev})
	m.shards = append(m.shards, m.w.snapshot())
}

// watch asserts what must be so at the moment of a decision: where the order of keys is
// promised, every old shard is sealed and drained.
func (m *machine) watch(p stream.Pass) {
	r := m.s.Active
	if m.lossy || r == nil || p.Phase != protocol.PhaseActivating || r.Policy.Strategy != protocol.StrategyQuiesce {
		return
	}
	st := p.Stages[0][0]
	s0 := m.w.shards[0].clone()
	probe := &world{now: m.w.now, shards: []*shard{s0}}
	if code, _ := probe.script(s0, st, m.rev, m.w.now+effectLease); code != shardscript.OK {
		return
	}
	for i := range r.Old {
		sh := m.w.shards[i]
		if !sh.sealed {
			m.rt.Fatalf("decides while shard %d is not sealed\n%s", i, m.log())
		}
		code, _ := sh.evidence(stream.Step{Index: i, Ignored: r.Ignored})
		if code != shardscript.Drained && (r.Policy.DrainScope == protocol.DrainAll || i >= r.To.Count) {
			m.rt.Fatalf("decides while shard %d is %s\n%s", i, code, m.log())
		}
	}
}

func (m *machine) actions() map[string]func(*rapid.T) {
	draw := func(rt *rapid.T, n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) }
	return map[string]func(*rapid.T){
		"": m.check,
		"step": func(rt *rapid.T) {
			for range 1 + draw(rt, 6, "steps") {
				m.step(rt)
			}
		},
		"time": func(rt *rapid.T) {
			m.w.now += protocol.Instant(rapid.SampledFrom([]int{10, 300, 1100, 2500, 16_000, 301_000, 3_700_000}).Draw(rt, "ms"))
		},
		"append": func(rt *rapid.T) {
			l := m.s.Layout
			if rapid.Bool().Draw(rt, "asks shard 0") {
				l = stream.Layout{Epoch: m.w.shards[0].epoch, Count: m.w.shards[0].count}
			}
			if l.Count == 0 {
				return
			}
			if !m.w.add(draw(rt, l.Count, "shard"), l) {
				return
			}
			if l.Epoch < m.landed && !m.online && !m.lossy {
				rt.Fatalf("an entry landed under epoch %d after one under %d\n%s", l.Epoch, m.landed, m.log())
			}
			m.landed = max(m.landed, l.Epoch)
		},
		"work": func(rt *rapid.T) { m.work() },
		"read": func(rt *rapid.T) { m.w.read(draw(rt, 8, "shard")) },
		"put": func(rt *rapid.T) {
			p := protocol.DefaultPolicy()
			p.Strategy = rapid.SampledFrom([]protocol.Strategy{protocol.StrategyQuiesce, protocol.StrategyQuiesce, protocol.StrategyOnline}).Draw(rt, "strategy")
			p.DrainScope = rapid.SampledFrom([]protocol.DrainScope{protocol.DrainAll, protocol.DrainRemoved}).Draw(rt, "scope")
			p.OnTimeout = rapid.SampledFrom([]protocol.OnTimeout{protocol.OnTimeoutRollback, protocol.OnTimeoutFail}).Draw(rt, "timeout")
			n := draw(rt, 6, "count")
			id := m.id()
			m.turn(func(x *stream.Turn) {
				before := x.State()
				got, started, err := x.Put(protocol.StreamSpec{ShardCount: n, Resharding: p}, stream.Request{ID: id}, m.w.now)
				switch {
				case err != nil && x.Changed():
					rt.Fatalf("a refused put changed the state")
				case err == nil && started != (before.Active == nil && n != before.Layout.Count):
					rt.Fatalf("put %d: started %v, %q, from %+v", n, started, got, before.Layout)
				}
			})
			m.online = m.online || p.Strategy == protocol.StrategyOnline
		},
		"rollback": func(rt *rapid.T) {
			if r := m.s.Active; r != nil {
				_ = m.rollback(r.ID)
			}
		},
		"pause": func(rt *rapid.T) {
			until := m.w.now + protocol.Instant(rapid.SampledFrom([]int{50, 5_000, 900_000}).Draw(rt, "ms"))
			m.turn(func(x *stream.Turn) { _ = x.Pause(until, stream.Request{}, m.w.now) })
		},
		"resume": func(rt *rapid.T) { m.turn(func(x *stream.Turn) { _ = x.Resume(stream.Request{}, m.w.now) }) },
		"register": func(rt *rapid.T) {
			name := rapid.SampledFrom([]string{"g", "h", "late"}).Draw(rt, "group")
			start := rapid.SampledFrom([]protocol.StartPosition{protocol.StartEarliest, protocol.StartLatest}).Draw(rt, "start")
			m.turn(func(x *stream.Turn) { x.RegisterGroup(name, start, m.w.now) })
		},
		"forget": func(rt *rapid.T) { m.turn(func(x *stream.Turn) { x.RemoveGroup("late", 1, m.w.now) }) },
		"members": func(rt *rapid.T) {
			m.held = rapid.Bool().Draw(rt, "held")
			m.turn(func(x *stream.Turn) { x.Advance(m.progress(), m.w.now) })
		},
		"late script": func(rt *rapid.T) {
			if n := len(m.late); n > 0 {
				l := m.late[n-1-draw(rt, min(n, 40), "which")]
				m.w.run(l.step, l.rev, l.notAfter)
			}
		},
		"late reply": func(rt *rapid.T) {
			if n := len(m.old); n > 0 {
				res := m.old[n-1-draw(rt, min(n, 6), "which")]
				m.turn(func(x *stream.Turn) { x.Apply(res, m.w.now) })
			}
		},
		"producer": func(rt *rapid.T) { m.endPause(draw(rt, 6, "shard")) },
		"sweep": func(rt *rapid.T) {
			if m.s.Active == nil {
				m.fault = nil
				m.sweep()
			}
		},
	}
}

// endPause is a producer that meets an overdue shard: RESOLVE at shard 0, then BRING.
func (m *machine) endPause(index int) {
	sh := m.w.shards[index]
	if sh.retired != "" || !sh.exists || (sh.until == 0 || m.w.now < sh.until) {
		return
	}
	id, until := sh.gate, sh.until
	if !m.w.resolve(id, until, sh.epoch) {
		return
	}
	s0 := m.w.shards[0]
	if s0.epoch < sh.epoch || sh.until != 0 && (sh.gate != id || m.w.now < sh.until) {
		return
	}
	sh.epoch, sh.count, sh.gate, sh.until = s0.epoch, s0.count, "", 0
	if sh.hold != 0 && m.w.now >= sh.hold {
		sh.hold = 0
	}
	sh.settle(index)
}

// losses are the actions of a Redis that loses its last writes.
func (m *machine) losses(actions map[string]func(*rapid.T)) {
	m.lossy, m.harness.lossy = true, true
	actions["aggregate lost"] = func(rt *rapid.T) {
		if n := len(m.saved); n > 0 {
			back := m.saved[n-1-rapid.IntRange(0, min(n, 5)-1).Draw(rt, "back")]
			m.s, m.rev = back.s, back.rev
		}
	}
	actions["shard lost"] = func(rt *rapid.T) {
		if n := len(m.shards); n > 0 {
			i := rapid.IntRange(0, 5).Draw(rt, "shard")
			m.w.shards[i] = m.shards[n-1-rapid.IntRange(0, min(n, 5)-1).Draw(rt, "back")][i].clone()
		}
	}
	actions["control hash lost"] = func(rt *rapid.T) {
		if rapid.IntRange(0, 3).Draw(rt, "rarely") > 0 {
			return
		}
		i := rapid.IntRange(0, 5).Draw(rt, "shard")
		s := m.w.shards[i]
		*s = shard{exists: s.exists, sealed: s.sealed, entries: s.entries, last: s.last, added: s.added, groups: s.groups}
	}
}

// end lets everything work again: all that runs must end, and the stream be as its state says.
func (m *machine) end() {
	m.fault, m.unconfirmed, m.held = nil, nil, false
	m.turn(func(x *stream.Turn) { _ = x.Resume(stream.Request{}, m.w.now) })
	for range 60 {
		m.work()
		for range 40 {
			m.harness.step()
			m.work()
			m.w.now += 100
		}
		if m.s.Active != nil {
			m.w.now += 400_000 // a deadline ends what waits
			continue
		}
		before := m.s
		m.sweep()
		if m.s == before && stream.Plan(m.s, m.w.now).Empty() && stream.Next(m.s) == 0 {
			m.final()
			return
		}
	}
	m.rt.Fatalf("does not end: %s, waiting for %v\n%s", phaseOf(m.s), waiting(m.s), m.log())
}

func (m *machine) final() {
	m.rt.Helper()
	l := m.s.Layout
	if m.s.PublishState != protocol.PublishOpen {
		m.rt.Fatalf("ends %s", m.s.PublishState)
	}
	for i, sh := range m.w.shards {
		if i >= l.Count {
			if m.lossy && i >= m.s.HighCount {
				continue // the aggregate and shard 0 have both lost that it ever was; it is sealed
			}
			if sh.exists && sh.fenced && sh.retired == "" {
				m.rt.Fatalf("shard %d is left over: %+v\n%s", i, sh.control(), m.log())
			}
			continue
		}
		if len(m.s.Removing) > 0 {
			m.rt.Fatalf("groups %v are still being removed\n%s", m.s.Removals(), m.log())
		}
		if !sh.exists || sh.sealed || sh.gate != "" || sh.until != 0 || sh.hold != 0 || sh.epoch != l.Epoch || sh.count != l.Count {
			m.rt.Fatalf("shard %d is not open at %v: %+v\n%s", i, l, sh.control(), m.log())
		}
		if m.lossy {
			continue
		}
		for name, g := range m.s.Groups {
			if !g.Ready || sh.groups[name] == nil {
				m.rt.Fatalf("group %s is missing on shard %d\n%s", name, i, m.log())
			}
		}
	}
	for _, r := range m.s.History {
		if r.Phase == protocol.PhaseRolledBack && r.To.Epoch == l.Epoch && !m.lossy {
			m.rt.Fatalf("%s was rolled back, and its layout is in force", r.ID)
		}
	}
}

func newMachine(rt *rapid.T) *machine {
	m := &machine{rt: rt}
	m.harness = newHarness(rt, rapid.IntRange(0, 4).Draw(rt, "shards"))
	calm := m.progress
	m.progress = func() []stream.GroupProgress {
		all := calm()
		if m.held {
			for i := range all {
				all[i].HeldAbove = []int{m.s.Layout.Count}
			}
		}
		return all
	}
	return m
}

func TestAnythingEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		rt.Repeat(m.actions())
		m.end()
	})
}

// TestAnythingEndsAfterLosses adds a Redis that loses its last writes. Entries may then be lost
// with the writes, so only the end is asserted: nothing runs, and shards and state agree.
func TestAnythingEndsAfterLosses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		actions := m.actions()
		m.losses(actions)
		rt.Repeat(actions)
		m.end()
	})
}

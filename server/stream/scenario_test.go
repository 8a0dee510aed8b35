package stream_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// frozen is a replica that stopped between computing a script and sending it.
type frozen struct {
	h    *harness
	step stream.Step
	rev  int64
	at   protocol.Instant
}

// freeze takes the step of the present pass for a script and a shard.
func (h *harness) freeze(script shardscript.Name, index int) frozen {
	h.t.Helper()
	for _, stage := range stream.Plan(h.s, h.w.now).Stages {
		for _, st := range stage {
			if st.Script == script && st.Index == index {
				return frozen{h, st, h.rev, h.w.now}
			}
		}
	}
	h.t.Fatalf("%s of shard %d is not planned in %s", script, index, phaseOf(h.s))
	return frozen{}
}

// release sends it now. inLease pretends that it is not too late for the effect lease, so that
// the other guards have to hold.
func (f frozen) release(inLease bool) stream.Reply {
	notAfter := f.at + effectLease
	if inLease {
		notAfter = f.h.w.now + effectLease
	}
	return f.h.w.run(f.step, f.rev, notAfter)
}

func (f frozen) refused(t *testing.T) {
	t.Helper()
	for _, inLease := range []bool{true, false} {
		if rep := f.release(inLease); rep.Code != shardscript.Ahead && rep.Code != shardscript.Late {
			t.Fatalf("released: %s, %+v", rep.Code, rep.Control)
		}
	}
}

// without fails every step of a script on a shard, and lets everything else work.
func without(script shardscript.Name, index int) func(stream.Step) fate {
	return func(st stream.Step) fate {
		if st.Script == script && st.Index == index {
			return dropped
		}
		return run
	}
}

// lose takes the aggregate back to an earlier commit.
func (h *harness) lose(s *stream.State, rev int64) {
	h.lossy = true
	h.note("the aggregate is back at %s (rev %d)", phaseOf(s), rev)
	h.s, h.rev = s, rev
}

func TestScenario(t *testing.T) {
	t.Parallel()
	for name, scenario := range map[string]func(t *testing.T){
		"late-seal": func(t *testing.T) {
			h := running(t, 3)
			id := h.put(2)
			h.until(protocol.PhaseSealing)
			a := h.freeze(shardscript.Seal, 0)
			h.settle() // B completes
			h.ended(id, protocol.PhaseCompleted)
			a.refused(t)
			h.open(stream.Layout{Epoch: 2, Count: 2})
			h.add(0, h.s.Layout)
		},
		"late-seal, rolled back": func(t *testing.T) {
			h := running(t, 3)
			id := h.put(2)
			h.until(protocol.PhaseSealing)
			a := h.freeze(shardscript.Seal, 0)
			_ = h.rollback(id) // before s0 was sealed
			h.settle()
			h.ended(id, protocol.PhaseRolledBack)
			a.refused(t)
			h.open(stream.Layout{Epoch: 1, Count: 3})
		},
		"late-open": func(t *testing.T) {
			h := running(t, 2)
			h.put(3)
			h.until(protocol.PhaseOpening)
			a := h.freeze(shardscript.Open, 2)
			h.settle()
			h.put(2)
			h.until(protocol.PhaseActivating)
			a.refused(t)
			if !h.w.shards[2].sealed {
				t.Fatal("s2 is open")
			}
			h.settle()
			if h.w.add(2, stream.Layout{Epoch: 2, Count: 3}) {
				t.Fatal("an entry of the layout before has landed")
			}
			h.open(stream.Layout{Epoch: 3, Count: 2})
		},
		"late-release": func(t *testing.T) {
			h := running(t, 2)
			first := h.put(3)
			h.until(protocol.PhaseDraining)
			_ = h.rollback(first)
			h.step() // RELEASE 0
			a := h.freeze(shardscript.Release, 1)
			h.settle()
			h.put(3)
			h.until(protocol.PhaseDraining)
			a.refused(t)
			if !h.w.shards[1].sealed {
				t.Fatal("s1 is open")
			}
			h.settle()
			h.open(stream.Layout{Epoch: 3, Count: 3})
		},
		"late-provision": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			a := h.freeze(shardscript.Provision, 2)
			_ = h.rollback(id)
			h.settle()
			a.refused(t)
			h.open(stream.Layout{Epoch: 1, Count: 2})
		},
		"late-retire": func(t *testing.T) {
			h := running(t, 3)
			h.put(2)
			h.until(protocol.PhaseRetiring)
			a := h.freeze(shardscript.RetireOne, 2)
			h.settle()
			h.put(3)
			h.settle()
			a.refused(t)
			if s := h.w.shards[2]; !s.exists || s.groups["g"] == nil {
				t.Fatalf("s2 is gone: %+v", s.control())
			}
			h.open(stream.Layout{Epoch: 3, Count: 3})
		},
		"no-coordinator-before": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseSealing)
			h.fault = without(shardscript.Seal, 0)
			h.step() // half of the shards are sealed, and then nobody is left
			h.fault = nil
			s1 := h.w.shards[1]
			h.w.now = s1.until
			if !h.w.resolve(s1.gate, s1.until, s1.epoch) {
				t.Fatal("cannot be resolved")
			}
			s1.gate, s1.until, s1.sealed = "", 0, false // BRING
			h.add(1, h.s.Layout)
			h.settle()
			h.ended(id, protocol.PhaseRolledBack)
			h.open(stream.Layout{Epoch: 1, Count: 2})
		},
		"no-coordinator-after": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseActivating)
			h.pass(stream.Plan(h.s, h.w.now)) // DECIDE, and the commit never comes
			h.w.now = h.s.Active.Deadline + seconds(1)
			h.settle()
			r := h.ended(id, protocol.PhaseCompleted)
			if !strings.Contains(r.Reason, "decided") || r.Error != "" {
				t.Errorf("reason %q, error %q", r.Reason, r.Error)
			}
			h.open(stream.Layout{Epoch: 2, Count: 3})
		},
		"rollback-or-decision, RELEASE first": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseActivating)
			decide := h.freeze(shardscript.Decide, 0)
			_ = h.rollback(id)
			h.step() // RELEASE 0
			if rep := decide.release(true); rep.Code == shardscript.OK || rep.Code == shardscript.Decided {
				t.Fatalf("DECIDE after RELEASE: %s", rep.Code)
			}
			h.settle()
			h.ended(id, protocol.PhaseRolledBack)
			h.open(stream.Layout{Epoch: 1, Count: 2})
		},
		"rollback-or-decision, DECIDE first": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseActivating)
			decide := h.freeze(shardscript.Decide, 0)
			if rep := decide.release(true); rep.Code != shardscript.OK {
				t.Fatal(rep.Code)
			}
			if err := h.rollback(id); err != nil { // 202: nobody knows yet that it is too late
				t.Fatal(err)
			}
			h.step()
			if rep := h.w.shards[1]; rep.aborted == id || rep.epoch != 1 {
				t.Fatalf("s1 was released although shard 0 had decided: %+v", rep.control())
			}
			if p := stream.Plan(h.s, h.w.now); p.Stages[0][0].Script != shardscript.Look || !p.Confirm {
				t.Fatalf("DECIDED is not looked into: %+v", p)
			}
			h.unconfirmed = func(stream.Pass) bool { return true }
			h.step()
			if h.s.Layout.Epoch != 1 {
				t.Fatal("opens on a decision that no replica has confirmed")
			}
			h.unconfirmed = nil
			h.settle()
			r := h.ended(id, protocol.PhaseCompleted)
			if !strings.Contains(r.Reason, "decided") {
				t.Errorf("reason %q", r.Reason)
			}
			h.open(stream.Layout{Epoch: 2, Count: 3})
		},
		"seal-after-deadline": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseSealing)
			h.fault = without(shardscript.Seal, 1)
			h.step()
			h.fault = nil
			s0 := h.w.shards[0]
			h.w.now = s0.until
			if !h.w.resolve(id, s0.until, 1) {
				t.Fatal("P cannot abort")
			}
			res := h.pass(stream.Plan(h.s, h.w.now)) // A goes on: Plan is of the state before the deadline
			h.turn(func(x *stream.Turn) { x.Apply(res, h.w.now) })
			if h.s.Active.Phase != protocol.PhaseRollingBack {
				t.Fatalf("%s after %s\n%s", h.s.Active.Phase, res.Replies[0].Code, h.log())
			}
			h.settle()
			r := h.ended(id, protocol.PhaseRolledBack)
			if r.PausedMs > protocol.DefaultPolicy().PauseTimeoutMs+100 {
				t.Errorf("paused for %d ms", r.PausedMs)
			}
			h.open(stream.Layout{Epoch: 1, Count: 2})
		},
		"aggregate-loses-decision": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseDraining)
			old, rev := h.s, h.rev
			h.until(protocol.PhaseConverging)
			h.add(2, stream.Layout{Epoch: 2, Count: 3})
			h.lose(old, rev)
			_ = h.rollback(id)
			for range 100 {
				h.step()
				h.w.now += 20
			}
			if s2 := h.w.shards[2]; len(s2.entries) != 1 {
				t.Fatalf("s2's entry is lost: %+v\n%s", s2.control(), h.log())
			}
			h.ended(id, protocol.PhaseCompleted)
			h.open(stream.Layout{Epoch: 2, Count: 3})
			if h.s.Alert == "" {
				t.Error("no alert")
			}
		},
		"aggregate-loses-two": func(t *testing.T) {
			h := running(t, 2)
			old, rev := h.s, h.rev
			h.put(3)
			h.settle()
			h.put(2)
			h.until(protocol.PhaseActivating)
			h.pass(stream.Plan(h.s, h.w.now)) // decided: e3/2 at shard 0; the others still show e2/3
			h.lose(old, rev)
			h.sweep()
			if h.s.Layout != (stream.Layout{Epoch: 3, Count: 2}) || h.s.Active == nil || h.s.Active.Kind != stream.KindAdopt {
				t.Fatalf("adopted %v by %+v\n%s", h.s.Layout, h.s.Active, h.log())
			}
			h.step()
			for i := range 3 {
				if h.w.add(i, stream.Layout{Epoch: 2, Count: 3}) {
					t.Fatalf("an entry of e2 lands on s%d", i)
				}
			}
			h.settle()
			h.open(stream.Layout{Epoch: 3, Count: 2})
		},
		"aggregate-loses-retirement": func(t *testing.T) {
			h := running(t, 3)
			id := h.put(2)
			h.until(protocol.PhaseDraining)
			old, rev := h.s, h.rev
			h.settle()
			h.lose(old, rev)
			h.step()
			if err := h.rollback(id); err == nil || err.Code != protocol.CodeRollbackNotAllowed {
				t.Fatalf("rollback after it turned out to be decided: %v\n%s", err, h.log())
			}
			h.settle()
			h.ended(id, protocol.PhaseCompleted)
			h.open(stream.Layout{Epoch: 2, Count: 2})
		},
		"seal-lost": func(t *testing.T) {
			for _, phase := range []protocol.Phase{protocol.PhaseDraining, protocol.PhaseActivating} {
				h := running(t, 2)
				id := h.put(3)
				h.until(protocol.PhaseSealing)
				before := h.w.shards[1].clone()
				h.until(phase)
				deadline := h.s.Active.Deadline
				h.w.shards[1] = before
				h.add(1, stream.Layout{Epoch: 1, Count: 2})
				if phase == protocol.PhaseActivating {
					// The certificate was taken before; DECIDE is late by its age, or has come first.
					h.w.now += seconds(3)
				}
				for range 10 {
					h.step()
					h.w.now += 20
				}
				if h.s.Layout.Epoch != 1 || h.s.Active.Deadline != deadline {
					t.Fatalf("decided on old evidence: %+v\n%s", h.s.Layout, h.log())
				}
				h.work()
				h.settle()
				h.ended(id, protocol.PhaseCompleted)
				h.open(stream.Layout{Epoch: 2, Count: 3})
			}
		},
		"opening-lost": func(t *testing.T) {
			h := running(t, 2)
			h.put(3)
			h.until(protocol.PhaseOpening)
			before := h.w.shards[1].clone()
			h.settle()
			h.w.shards[1] = before // sealed, e1, gate
			h.sweep()
			if h.s.Active == nil || h.s.Active.Kind != stream.KindRepair {
				t.Fatalf("not repaired\n%s", h.log())
			}
			if h.w.add(1, stream.Layout{Epoch: 1, Count: 2}) {
				t.Fatal("an entry of e1 has landed")
			}
			h.settle()
			h.open(stream.Layout{Epoch: 2, Count: 3})
		},
		"retirement-lost": func(t *testing.T) {
			h := running(t, 3)
			h.put(2)
			before := h.w.shards[2].clone()
			h.settle()
			h.w.shards[2] = before // neither seal nor tombstone
			h.add(2, stream.Layout{Epoch: 1, Count: 3})
			h.sweep()
			if h.s.Active == nil || h.s.Assignable() != 3 {
				t.Fatalf("s2 is not assigned again\n%s", h.log())
			}
			h.step()
			if !h.w.shards[2].sealed {
				t.Fatal("s2 is not sealed")
			}
			for range 10 {
				h.step()
				h.w.now += 20
			}
			if !h.w.shards[2].exists || h.s.Active.Phase != protocol.PhaseDrainingRemoved {
				t.Fatalf("%s before the entry was delivered", phaseOf(h.s))
			}
			h.work()
			h.settle()
			h.open(stream.Layout{Epoch: 2, Count: 2})
		},
		"retire-refused": func(t *testing.T) {
			h := running(t, 3)
			id := h.put(2)
			h.until(protocol.PhaseRetiring)
			h.w.shards[2].groups["g"].pending[1] = true // its acknowledgement was lost
			h.step()
			if h.s.Active.Phase != protocol.PhaseDrainingRemoved || h.s.Assignable() != 3 {
				t.Fatalf("%s, %d shards assigned", h.s.Active.Phase, h.s.Assignable())
			}
			h.work()
			h.settle()
			h.ended(id, protocol.PhaseCompleted)
			h.open(stream.Layout{Epoch: 2, Count: 2})
		},
		"register-while-retiring": func(t *testing.T) {
			h := running(t, 3)
			h.add(2, h.s.Layout)
			h.w.work(2)
			h.put(2)
			h.until(protocol.PhaseRetiring)
			a := h.freeze(shardscript.RetireOne, 2)
			h.turn(func(x *stream.Turn) { x.RegisterGroup("new", protocol.StartEarliest, h.w.now) })
			h.step()
			if !h.s.Groups["new"].Ready || h.w.shards[2].groups["new"] == nil {
				t.Fatalf("registered without s2\n%s", h.log())
			}
			a.refused(t)
			for range 10 {
				h.step()
				h.w.now += 20
			}
			if !h.w.shards[2].exists {
				t.Fatal("s2 went before its entry reached the new group")
			}
			h.work()
			h.settle()
			h.open(stream.Layout{Epoch: 2, Count: 2})
		},
		"operator-and-resharding": func(t *testing.T) {
			for _, operatorFirst := range []bool{true, false} {
				h := running(t, 2)
				h.add(0, h.s.Layout)
				id := h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.PauseTimeoutMs = 5000 })(3))
				h.until(protocol.PhaseDraining)
				until := h.w.now + seconds(10)
				if operatorFirst {
					until = h.w.now + seconds(1)
				}
				h.turn(func(x *stream.Turn) { _ = x.Pause(until, stream.Request{}, h.w.now) })
				reasons := func() bool { return h.s.Hold != nil || h.s.Active != nil && h.s.PublishState == protocol.PublishPaused }
				for range 700 {
					h.step()
					h.w.now += 20
					if reasons() && h.w.add(1, h.s.Layout) && h.s.Active != nil && h.s.Active.Phase != protocol.PhaseRollingBack {
						t.Fatalf("an append landed while a reason is left\n%s", h.log())
					}
				}
				h.ended(id, protocol.PhaseRolledBack)
				h.open(stream.Layout{Epoch: 1, Count: 2})
			}
		},
		"full-or-forbidden": func(t *testing.T) {
			h := running(t, 2)
			id := h.put(3)
			for h.s.Active.Phase != protocol.PhaseOpening {
				res := h.pass(stream.Plan(h.s, h.w.now))
				res.Barrier = stream.BarrierLease
				h.apply(res)
				h.w.now += 10
			}
			h.settle()
			if r := h.ended(id, protocol.PhaseCompleted); r.Certificate.Barrier != stream.BarrierLease {
				t.Errorf("the certificate names %s", r.Certificate.Barrier)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t)
		})
	}
}

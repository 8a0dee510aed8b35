package stream_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// silent makes the scripts of a shard get no answer; late ones do not run either.
func silent(script shardscript.Name, index int, how fate) func(stream.Step) fate {
	return func(st stream.Step) fate {
		if st.Script == script && st.Index == index {
			return how
		}
		return run
	}
}

// waitOut steps until the phase is left, and fails if that is not by its deadline.
func (h *harness) waitOut(phase protocol.Phase, limit protocol.Instant) {
	h.t.Helper()
	begun := h.w.now
	for h.s.Active != nil && h.s.Active.Phase == phase {
		if h.w.now > begun+limit {
			h.t.Fatalf("still in %s, waiting for %v\n%s", phase, waiting(h.s), h.log())
		}
		if next := stream.Next(h.s); next == 0 {
			h.t.Fatalf("%s has no deadline", phase)
		}
		h.step()
		h.w.now += 50
	}
}

// Before the decision every phase has an end, also where nothing is paused.
func TestProvisioningHasADeadline(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*protocol.ReshardingPolicy){
		"QUIESCE": func(p *protocol.ReshardingPolicy) { p.DrainTimeoutMs = 5000 },
		"ONLINE":  func(p *protocol.ReshardingPolicy) { p.Strategy, p.DrainTimeoutMs = protocol.StrategyOnline, 5000 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			h.fault = silent(shardscript.Provision, 2, dropped)
			id := h.putSpec(policy(change)(4))
			begun := h.w.now
			h.waitOut(protocol.PhaseProvisioning, 5100)
			if h.w.now < begun+5000 {
				t.Errorf("ended after %d ms", h.w.now-begun)
			}
			h.settle()
			r := h.ended(id, protocol.PhaseRolledBack)
			if want := "drain timeout of 5s passed in PROVISIONING: shard 2: no answer to PROVISION: timeout"; r.Error != want {
				t.Errorf("error %q, want %q", r.Error, want)
			}
			h.open(stream.Layout{Epoch: 1, Count: 2})
			h.fault = nil
			id = h.put(4)
			h.settle()
			h.ended(id, protocol.PhaseCompleted)
		})
	}
	t.Run("creation", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, 0)
		h.settle()
		h.fault = silent(shardscript.Provision, 1, unanswered)
		id := h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.DrainTimeoutMs, p.OnTimeout = 5000, protocol.OnTimeoutFail })(3))
		h.waitOut(protocol.PhaseProvisioning, 5100)
		h.settle()
		if r := h.ended(id, protocol.PhaseFailed); !strings.Contains(r.Error, "shard 1: no answer to PROVISION") {
			t.Errorf("error %q", r.Error)
		}
		for i, sh := range h.w.shards[:3] {
			if sh.exists {
				t.Errorf("shard %d is left over", i)
			}
		}
		h.fault = nil
		id = h.put(3)
		h.settle()
		h.ended(id, protocol.PhaseCompleted)
	})
}

// Where the decision itself gets no answer, shard 0 says who was first.
func TestActivatingOnlineHasADeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		how  fate
		want protocol.Phase
	}{
		"not decided": {dropped, protocol.PhaseRolledBack},
		"decided":     {unanswered, protocol.PhaseCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			id := h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.Strategy, p.DrainTimeoutMs = protocol.StrategyOnline, 5000 })(3))
			h.until(protocol.PhaseActivating)
			entered := h.w.now
			h.fault = silent(shardscript.Decide, 0, c.how)
			h.waitOut(protocol.PhaseActivating, 5100)
			h.fault = nil
			h.settle()
			r := h.ended(id, c.want)
			if c.want == protocol.PhaseRolledBack {
				if !strings.Contains(r.Error, "drain timeout of 5s passed in ACTIVATING: shard 0: no answer to DECIDE") || r.OrderWindow != nil {
					t.Errorf("%+v", r)
				}
				return
			}
			// The answer was lost, so that the window begins when the decision may first have been made.
			if w := r.OrderWindow; w == nil || protocol.InstantOf(w.From) > entered || w.To == nil || w.To.Before(w.From) {
				t.Errorf("window %+v, ACTIVATING at %s", r.OrderWindow, entered)
			}
		})
	}
}

func TestOrderWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*protocol.ReshardingPolicy)
		want   bool
	}{
		"kept":    {func(*protocol.ReshardingPolicy) {}, false},
		"REMOVED": {func(p *protocol.ReshardingPolicy) { p.DrainScope = protocol.DrainRemoved }, true},
		"ONLINE":  {func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			id := h.putSpec(policy(c.change)(3))
			h.until(protocol.PhaseActivating)
			if stream.ReshardingOf(h.s, id, h.s.UpdatedAt).OrderWindow != nil {
				t.Error("there is a window before the decision")
			}
			decided := h.w.now
			h.step()
			if w := stream.ReshardingOf(h.s, id, h.s.UpdatedAt).OrderWindow; c.want && (w == nil || protocol.InstantOf(w.From) != decided || w.To != nil) {
				t.Errorf("in OPENING: %+v, decided at %s", w, decided)
			}
			h.w.now += 70
			h.fault = silent(shardscript.Open, 2, dropped)
			h.step()
			h.fault = nil
			h.w.now += 70
			opened := h.w.now
			h.settle()
			r := h.ended(id, protocol.PhaseCompleted)
			if w := r.OrderWindow; (w != nil) != c.want || w != nil && (protocol.InstantOf(w.From) != decided || w.To == nil || protocol.InstantOf(*w.To) != opened) {
				t.Errorf("%+v, from %s to %s", w, decided, opened)
			}
		})
	}
}

// The highest count that ever was must outlive the node of shard 0 before another shard may come to
// exist.
func TestPrepareOfShard0IsConfirmed(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	id := h.put(3)
	h.unconfirmed = func(p stream.Pass) bool { return p.ConfirmFirst }
	for range 5 {
		h.step()
		h.w.now += 1100
	}
	if h.s.Active == nil || h.s.Active.Phase != protocol.PhaseProvisioning || h.w.shards[2].exists {
		t.Fatalf("goes on to %s; shard 2 exists: %v", phaseOf(h.s), h.w.shards[2].exists)
	}
	if text := strings.Join(waiting(h.s), ";"); text != "PREPARE of shard 0: no replica has confirmed it yet" {
		t.Errorf("waits for %q", text)
	}
	h.unconfirmed = nil
	h.settle()
	h.ended(id, protocol.PhaseCompleted)
}

// A pass of an earlier pause says nothing of the present one, though both end at the same time.
func TestHoldPassOfAnEarlierPause(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	until := h.w.now + 60_000
	pause := func() {
		h.turn(func(x *stream.Turn) {
			if err := x.Pause(until, stream.Request{}, h.w.now); err != nil {
				t.Fatal(err)
			}
		})
	}
	pause()
	early := h.pass(stream.Plan(h.s, h.w.now)) // its reply is late
	h.turn(func(x *stream.Turn) {
		if err := x.Resume(stream.Request{}, h.w.now); err != nil {
			t.Fatal(err)
		}
	})
	h.step() // the shards are open again
	pause()
	h.turn(func(x *stream.Turn) { x.Apply(early, h.w.now) })
	if !h.s.HoldDirty {
		t.Fatal("counts as paused, while the shards are open")
	}
	h.step()
	if h.s.HoldDirty || !h.w.shards[0].sealed || !h.w.shards[1].sealed {
		t.Fatalf("dirty %v, shards %+v", h.s.HoldDirty, h.w.shards[0])
	}
}

// What a group may have lost is kept in the record, by shard, also when another pass does not see it.
func TestWarnings(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	id := h.put(2)
	h.until(protocol.PhaseDraining)
	three := int64(3)
	lossy := func(rep *stream.Reply) {
		if rep.Evidence != nil && rep.Step.Index == 1 {
			ev := *rep.Evidence
			ev.Groups = append([]protocol.GroupEvidence(nil), ev.Groups...)
			ev.Groups[0].PossibleLoss, ev.Groups[0].Gone, ev.Groups[0].Trimmed = &three, 2, 4
			rep.Evidence = &ev
		}
	}
	h.answer(lossy)
	h.settle()
	r := h.ended(id, protocol.PhaseCompleted)
	want := "shard 1: group g may have lost at least 6 entries, removed before it had acknowledged them: 3 before delivery, by Redis's counters, 2 while pending, 4 by the stream's retention"
	if len(r.Warnings) != 1 || r.Warnings[0] != want {
		t.Errorf("warnings %q", r.Warnings)
	}
	if g := r.Certificate.Shards[1].Groups[0]; g.Gone != 2 || g.Trimmed != 4 || *g.PossibleLoss != 3 {
		t.Errorf("certificate %+v", g)
	}
}

package stream_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// answer runs the pass of the present phase, but for what edit makes of each reply.
func (h *harness) answer(edit func(rep *stream.Reply)) stream.PassResult {
	h.t.Helper()
	res := h.pass(stream.Plan(h.s, h.w.now))
	for i := range res.Replies {
		edit(&res.Replies[i])
	}
	h.turn(func(x *stream.Turn) { x.Apply(res, h.w.now) })
	return res
}

// on changes the reply of one shard.
func on(index int, code shardscript.Code) func(rep *stream.Reply) {
	return func(rep *stream.Reply) {
		if rep.Step.Index == index {
			rep.Code, rep.Evidence = code, nil
			if rep.Control.Retired != "" && !rep.Control.StreamExists && code != shardscript.Retired { // a refusal has had no effect
				rep.Control.Retired, rep.Control.StreamExists = "", true
			}
		}
	}
}

// TestPhases has one row for each "else" of the phase table: what one reply makes of the phase.
func TestPhases(t *testing.T) {
	t.Parallel()
	const (
		provisioning = protocol.PhaseProvisioning
		sealing      = protocol.PhaseSealing
		draining     = protocol.PhaseDraining
		activating   = protocol.PhaseActivating
		opening      = protocol.PhaseOpening
		removed      = protocol.PhaseDrainingRemoved
		converging   = protocol.PhaseConverging
		retiring     = protocol.PhaseRetiring
		back         = protocol.PhaseRollingBack
	)
	online := policy(func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline })
	late := func(index int, past protocol.Instant) func(rep *stream.Reply) {
		return func(rep *stream.Reply) {
			if rep.Step.Index == index {
				rep.Code, rep.At = shardscript.Late, rep.At+past
			}
		}
	}
	deadline := protocol.Instant(protocol.DefaultPolicy().PauseTimeoutMs)
	for _, c := range []struct {
		name     string
		from, to int
		spec     func(int) protocol.StreamSpec
		in       protocol.Phase
		edit     func(rep *stream.Reply)
		want     protocol.Phase
	}{
		{"all OK seals", 2, 3, spec, provisioning, func(*stream.Reply) {}, sealing},
		{"all OK decides when ONLINE", 2, 3, online, provisioning, func(*stream.Reply) {}, activating},
		{"no answer stays", 2, 3, spec, provisioning, on(2, ""), provisioning},
		{"FOREIGN rolls back", 2, 3, spec, provisioning, on(2, shardscript.Foreign), back},
		{"LEFTOVER rolls back", 2, 3, spec, provisioning, on(2, shardscript.Leftover), back},
		{"UNKNOWN rolls back", 2, 3, spec, provisioning, on(1, shardscript.Unknown), back},
		{"LATE stays", 2, 3, spec, provisioning, on(1, shardscript.Late), provisioning},

		{"all OK drains", 2, 3, spec, sealing, func(*stream.Reply) {}, draining},
		{"no answer stays", 2, 3, spec, sealing, on(1, ""), sealing},
		{"LATE by lease stays", 2, 3, spec, sealing, late(1, 0), sealing},
		{"LATE by deadline rolls back", 2, 3, spec, sealing, late(1, deadline), back},
		{"ABORTED rolls back", 2, 3, spec, sealing, on(0, shardscript.Aborted), back},
		{"UNFENCED provisions", 2, 3, spec, sealing, on(1, shardscript.Unfenced), provisioning},
		{"NOTHELD provisions", 2, 3, spec, sealing, on(1, shardscript.NotHeld), provisioning},
		{"SEALERR stays", 2, 3, spec, sealing, on(1, shardscript.SealError), sealing},

		{"drained decides", 2, 3, spec, draining, func(*stream.Reply) {}, activating},
		{"BUSY stays", 2, 3, spec, draining, on(1, shardscript.Busy), draining},
		{"UNKNOWN stays", 2, 3, spec, draining, on(1, shardscript.Unknown), draining},
		{"no answer stays", 2, 3, spec, draining, on(1, ""), draining},
		{"DRAINED without evidence stays", 2, 3, spec, draining, on(1, shardscript.Drained), draining},
		{"unsealed seals", 2, 3, spec, draining, func(r *stream.Reply) { r.Control.Sealed = r.Step.Index != 1 }, sealing},
		{"not held seals", 2, 3, spec, draining, func(r *stream.Reply) { r.Control.Gate = "other" }, sealing},
		{"unfenced seals", 2, 3, spec, draining, func(r *stream.Reply) {
			if r.Step.Index == 1 {
				r.Code, r.Control = shardscript.Unfenced, stream.Control{StreamExists: true}
			}
		}, sealing},
		{"aborted rolls back", 2, 3, spec, draining, func(r *stream.Reply) { r.Control.Aborted = r.Step.ID }, back},
		{"BUSY out of scope decides", 3, 2, policy(func(p *protocol.ReshardingPolicy) { p.DrainScope = protocol.DrainRemoved }), draining, on(1, shardscript.Busy), activating},
		{"BUSY in scope stays", 3, 2, policy(func(p *protocol.ReshardingPolicy) { p.DrainScope = protocol.DrainRemoved }), draining, on(2, shardscript.Busy), draining},

		{"OK opens", 2, 3, spec, activating, func(*stream.Reply) {}, opening},
		{"DECIDED opens", 2, 3, spec, activating, on(0, shardscript.Decided), opening},
		{"LATE by age drains", 2, 3, spec, activating, late(0, 2000), draining},
		{"LATE by deadline rolls back", 2, 3, spec, activating, late(0, deadline), back},
		{"LATE when ONLINE stays", 2, 3, online, activating, late(0, 2000), activating},
		{"ABORTED rolls back", 2, 3, spec, activating, on(0, shardscript.Aborted), back},
		{"NOTHELD seals", 2, 3, spec, activating, on(0, shardscript.NotHeld), sealing},
		{"UNSEALED seals", 2, 3, spec, activating, on(0, shardscript.Unsealed), sealing},
		{"BUSY seals", 2, 3, spec, activating, on(0, shardscript.Busy), sealing},
		{"NOTHELD provisions when ONLINE", 2, 3, online, activating, on(0, shardscript.NotHeld), provisioning},
		{"no answer stays", 2, 3, spec, activating, on(0, ""), activating},

		{"all OK converges", 2, 3, spec, opening, func(*stream.Reply) {}, converging},
		{"all OK drains what was removed", 3, 2, spec, opening, func(*stream.Reply) {}, removed},
		{"no answer stays", 2, 3, spec, opening, on(1, ""), opening},
		{"LATE stays", 2, 3, spec, opening, on(1, shardscript.Late), opening},
		{"EXHAUSTED goes on", 2, 3, spec, opening, on(1, shardscript.Exhausted), converging},

		{"drained converges", 3, 2, spec, removed, func(*stream.Reply) {}, converging},
		{"BUSY stays", 3, 2, spec, removed, on(2, shardscript.Busy), removed},
		{"UNKNOWN stays", 3, 2, spec, removed, on(2, shardscript.Unknown), removed},
		{"no answer stays", 3, 2, spec, removed, on(2, ""), removed},
		{"unsealed stays", 3, 2, spec, removed, func(r *stream.Reply) { r.Control.Sealed = false }, removed},
		{"retired converges", 3, 2, spec, removed, on(2, shardscript.Retired), converging},

		{"BUSY drains again", 3, 2, spec, retiring, on(2, shardscript.Busy), removed},
		{"UNSEALED drains again", 3, 2, spec, retiring, on(2, shardscript.Unsealed), removed},
		{"NOTFENCED drains again", 3, 2, spec, retiring, on(2, shardscript.NotFenced), removed},
		{"UNKNOWN drains again", 3, 2, spec, retiring, on(2, shardscript.Unknown), removed},
		{"LATE stays", 3, 2, spec, retiring, on(2, shardscript.Late), retiring},
		{"no answer stays", 3, 2, spec, retiring, on(2, ""), retiring},
		{"EXISTS stays", 3, 2, spec, retiring, on(2, shardscript.Exists), retiring},
	} {
		t.Run(string(c.in)+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			h := running(t, c.from)
			h.putSpec(c.spec(c.to))
			h.until(c.in)
			first := h.s.Active.Deadline
			h.answer(c.edit)
			if got := h.s.Active.Phase; got != c.want {
				t.Fatalf("%s, want %s\n%s", got, c.want, h.log())
			}
			if c.want == back && h.s.Active.Error == "" {
				t.Error("rolls back without a reason")
			}
			if first != 0 && h.s.Active.Deadline != first {
				t.Errorf("the deadline moved from %s to %s", first, h.s.Active.Deadline)
			}
			// whatever it was, it ends
			h.settle()
			if h.s.Active != nil || h.s.PublishState != protocol.PublishOpen {
				t.Errorf("ends with %+v, %s", h.s.Active, h.s.PublishState)
			}
		})
	}
}

func TestAheadLeavesTheState(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	h.put(2)
	for range 40 {
		if h.s.Active == nil {
			return
		}
		before := h.s
		res := h.pass(stream.Plan(h.s, h.w.now))
		res.Replies[0].Code = shardscript.Ahead
		h.turn(func(x *stream.Turn) { x.Apply(res, h.w.now) })
		if h.s != before {
			t.Fatalf("%s: AHEAD changed the state to %s", phaseOf(before), phaseOf(h.s))
		}
		h.step()
		h.w.now += 5
	}
	t.Fatal("does not end")
}

func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	for _, phase := range []protocol.Phase{protocol.PhaseSealing, protocol.PhaseActivating} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			id := h.put(3)
			h.until(phase)
			h.unconfirmed = func(stream.Pass) bool { return true }
			for range 3 {
				h.step()
				h.w.now += 10
				if h.s.Active.Phase != phase {
					t.Fatalf("went on to %s", h.s.Active.Phase)
				}
			}
			h.unconfirmed = nil
			h.settle()
			h.ended(id, protocol.PhaseCompleted)
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on   protocol.OnTimeout
		want protocol.Phase
	}{
		"ROLLBACK": {protocol.OnTimeoutRollback, protocol.PhaseRolledBack},
		"FAIL":     {protocol.OnTimeoutFail, protocol.PhaseFailed},
	} {
		t.Run("pause "+name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			h.add(1, h.s.Layout)
			h.w.read(1)
			id := h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.OnTimeout, p.PauseTimeoutMs = c.on, 3000 })(5))
			generation := h.s.Generation
			h.settle()
			r := h.ended(id, c.want)
			for _, part := range []string{"pause timeout of 3s passed in DRAINING", "shard 1: group g has 1 pending", "group h has 1 pending"} {
				if !strings.Contains(r.Error, part) {
					t.Errorf("error %q lacks %q", r.Error, part)
				}
			}
			if r.PausedMs > 3200 {
				t.Errorf("paused for %d ms", r.PausedMs)
			}
			h.open(stream.Layout{Epoch: 1, Count: 2})
			if h.s.Spec.ShardCount != 2 || h.s.Generation != generation+1 {
				t.Errorf("spec %+v at generation %d, from %d", h.s.Spec, h.s.Generation, generation)
			}
			id = h.put(3) // the epoch of the change that was rolled back is not given out again
			h.work()
			h.settle()
			h.ended(id, protocol.PhaseCompleted)
			h.open(stream.Layout{Epoch: 3, Count: 3})
		})
	}
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		h := running(t, 3)
		h.add(2, h.s.Layout)
		id := h.putSpec(policy(func(p *protocol.ReshardingPolicy) {
			p.Strategy, p.DrainTimeoutMs = protocol.StrategyOnline, 5000
		})(1))
		h.settle()
		r := h.ended(id, protocol.PhaseFailed)
		for _, part := range []string{"drain timeout of 5s", "shard 2: group g has 1 undelivered"} {
			if !strings.Contains(r.Error, part) {
				t.Errorf("error %q lacks %q", r.Error, part)
			}
		}
		back := h.ended(id+"-back", protocol.PhaseCompleted)
		if back.Strategy != protocol.StrategyOnline || back.FromShardCount != 1 || back.ToShardCount != 3 {
			t.Errorf("went back by %+v", back)
		}
		h.open(stream.Layout{Epoch: 3, Count: 3})
		if len(h.w.shards[2].entries) != 1 || h.s.Spec.ShardCount != 3 {
			t.Errorf("entries %v, spec %+v", h.w.shards[2].entries, h.s.Spec)
		}
	})
}

func TestPut(t *testing.T) {
	t.Parallel()
	put := func(h *harness, sp protocol.StreamSpec, req stream.Request) (id string, started bool, err *protocol.Error) {
		h.turn(func(x *stream.Turn) { id, started, err = x.Put(sp, req, h.w.now) })
		return id, started, err
	}
	t.Run("the same spec changes nothing", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		before := h.s
		if id, started, err := put(h, spec(2), stream.Request{ID: "x"}); id != "" || started || err != nil || h.s != before {
			t.Fatalf("%q %v %v", id, started, err)
		}
	})
	t.Run("another policy is a generation", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		generation := h.s.Generation
		sp := policy(func(p *protocol.ReshardingPolicy) { p.Retire = protocol.RetireArchive })(2)
		if id, _, err := put(h, sp, stream.Request{ID: "x", IfMatch: generation}); id != "" || err != nil || h.s.Generation != generation+1 {
			t.Fatalf("%q %v, generation %d", id, err, h.s.Generation)
		}
		if _, _, err := put(h, sp, stream.Request{ID: "x", IfMatch: generation}); err == nil || err.Code != protocol.CodeGenerationMismatch {
			t.Fatalf("stale generation: %v", err)
		}
		if _, _, err := put(h, spec(4), stream.Request{ID: "x", IfMatch: stream.MustBeNew}); err == nil || err.Code != protocol.CodeGenerationMismatch || h.s.Active != nil {
			t.Fatalf("a creation of what exists: %v", err)
		}
	})
	t.Run("the same count attaches", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		first := h.put(4)
		h.step()
		if id, started, err := put(h, spec(4), stream.Request{ID: "x"}); id != first || started || err != nil {
			t.Fatalf("%q %v %v, want %q", id, started, err, first)
		}
	})
	t.Run("another count conflicts", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		first := h.put(4)
		h.until(protocol.PhaseDraining)
		_, _, err := put(h, spec(5), stream.Request{ID: "x"})
		if err == nil || err.Code != protocol.CodeActiveMigration {
			t.Fatalf("%v", err)
		}
		for _, part := range []string{first, "from 2 to 4", "DRAINING"} {
			if !strings.Contains(err.Message, part) {
				t.Errorf("%q lacks %q", err.Message, part)
			}
		}
	})
	t.Run("the old count cancels", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		first := h.put(4)
		h.until(protocol.PhaseDraining)
		for range 2 { // idempotent
			if id, started, err := put(h, spec(2), stream.Request{ID: "x"}); id != first || started || err != nil {
				t.Fatalf("%q %v %v, want %q", id, started, err, first)
			}
			if h.s.Active.Phase != protocol.PhaseRollingBack {
				t.Fatalf("phase %s", h.s.Active.Phase)
			}
		}
		if _, _, err := put(h, spec(4), stream.Request{ID: "x"}); err == nil || err.Code != protocol.CodeActiveMigration {
			t.Fatalf("the new count while rolling back: %v", err)
		}
		h.settle()
		h.ended(first, protocol.PhaseRolledBack)
		h.open(stream.Layout{Epoch: 1, Count: 2})
	})
	t.Run("the old count after the decision conflicts", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		first := h.put(4)
		h.until(protocol.PhaseOpening)
		if _, _, err := put(h, spec(2), stream.Request{ID: "x"}); err == nil || err.Code != protocol.CodeActiveMigration {
			t.Fatalf("%v", err)
		}
		if err := h.rollback(first); err == nil || err.Code != protocol.CodeRollbackNotAllowed {
			t.Fatalf("rollback: %v", err)
		}
	})
	t.Run("an orphan is in the way", func(t *testing.T) {
		t.Parallel()
		h := running(t, 3)
		h.put(2)
		h.settle()
		h.w.shards[2].make(nil) // somebody's stream beside the tombstone
		h.w.shards[2].entries = []int{1}
		h.sweep()
		if h.s.Active != nil || !reflect.DeepEqual(h.s.Orphans, []string{"orders:2 (1 entry)"}) {
			t.Fatalf("orphans %v, %+v", h.s.Orphans, h.s.Active)
		}
		if _, _, err := put(h, spec(4), stream.Request{ID: "x"}); err == nil || err.Code != protocol.CodeForeignKeys || !strings.Contains(err.Message, "orders:2") {
			t.Fatalf("%v", err)
		}
		h.w.shards[2].unlink()
		h.sweep()
		h.put(4)
		h.settle()
		h.open(stream.Layout{Epoch: 3, Count: 4})
	})
	t.Run("counts out of range", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		for _, n := range []int{-1, protocol.MaxShardCount + 1} {
			if _, _, err := put(h, spec(n), stream.Request{ID: "x"}); err == nil || err.Code != protocol.CodeInvalidRequest {
				t.Errorf("%d: %v", n, err)
			}
		}
	})
}

func TestRollback(t *testing.T) {
	t.Parallel()
	for _, phase := range []protocol.Phase{protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			entries := h.s.MetadataVersion
			id := h.put(5)
			h.until(phase)
			for range 2 {
				if err := h.rollback(id); err != nil {
					t.Fatal(err)
				}
			}
			h.settle()
			r := h.ended(id, protocol.PhaseRolledBack)
			if !strings.Contains(r.Error, "by ann: test") {
				t.Errorf("error %q", r.Error)
			}
			h.open(stream.Layout{Epoch: 1, Count: 2})
			if h.s.MetadataVersion != entries {
				t.Errorf("metadata version %d", h.s.MetadataVersion)
			}
			if err := h.rollback(id); err != nil {
				t.Errorf("again: %v", err)
			}
		})
	}
	t.Run("a shard that lost its control hash", func(t *testing.T) {
		t.Parallel()
		for index := range 2 {
			h := running(t, 2)
			id := h.put(3)
			h.until(protocol.PhaseDraining)
			s := h.w.shards[index]
			*s = shard{exists: true, sealed: true, groups: s.groups}
			_ = h.rollback(id)
			h.settle()
			h.ended(id, protocol.PhaseRolledBack)
			h.open(stream.Layout{Epoch: 1, Count: 2})
		}
	})
	t.Run("RELEASE 0 alone comes first", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		id := h.put(3)
		h.until(protocol.PhaseDraining)
		_ = h.rollback(id)
		p := stream.Plan(h.s, h.w.now)
		if len(p.Stages) != 1 || len(p.Stages[0]) != 1 || p.Stages[0][0].Script != shardscript.Release || p.Stages[0][0].Index != 0 {
			t.Fatalf("%+v", p)
		}
		res := h.pass(p)
		h.apply(res)
		h.turn(func(x *stream.Turn) { x.Apply(res, h.w.now) }) // a repeat says nothing of the others
		if h.s.Active == nil {
			t.Fatal("ended before the other shards were released")
		}
		h.settle()
		h.open(stream.Layout{Epoch: 1, Count: 2})
	})
	t.Run("creation", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, 3)
		id := h.s.Active.ID
		h.step()
		_ = h.rollback(id)
		h.settle()
		h.ended(id, protocol.PhaseRolledBack)
		h.open(stream.Layout{})
		h.put(2)
		h.settle()
		h.open(stream.Layout{Epoch: 2, Count: 2})
	})
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		h := running(t, 1)
		if err := h.rollback("nobody"); err == nil || err.Code != protocol.CodeMigrationNotFound {
			t.Fatal(err)
		}
	})
}

func TestForeignStream(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 3)
	h.w.shards[1].make(nil)
	h.w.shards[1].entries = []int{1}
	id := h.s.Active.ID
	h.settle()
	r := h.ended(id, protocol.PhaseRolledBack)
	if !strings.Contains(r.Error, "orders:1") || h.s.History[0].ErrorCode != protocol.CodeForeignKeys {
		t.Errorf("error %q %q", r.Error, h.s.History[0].ErrorCode)
	}
	if len(h.w.shards[1].entries) != 1 || h.s.Layout.Count != 0 || h.s.Spec.ShardCount != 0 {
		t.Errorf("%+v %+v", h.w.shards[1], h.s.Layout)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	pause := func(h *harness, until protocol.Instant) {
		h.turn(func(x *stream.Turn) {
			if err := x.Pause(until, stream.Request{RequestedBy: "ann"}, h.w.now); err != nil {
				h.t.Fatalf("%v", err)
			}
		})
	}
	sealed := func(t *testing.T, h *harness, want bool) {
		t.Helper()
		for i := range h.s.Layout.Count {
			if s := h.w.shards[i]; s.sealed != want || (s.hold != 0) != want {
				t.Fatalf("shard %d: sealed %v, hold %s", i, s.sealed, s.hold)
			}
		}
	}
	t.Run("at rest", func(t *testing.T) {
		t.Parallel()
		h := running(t, 3)
		pause(h, h.w.now+seconds(60))
		if h.s.PublishState != protocol.PublishPaused || !h.s.HoldDirty {
			t.Fatal(h.s.PublishState)
		}
		h.step()
		if h.s.HoldDirty {
			t.Fatal("is not in force")
		}
		sealed(t, h, true)
		h.sweep()
		if h.s.Active != nil {
			t.Fatalf("the sweep repairs a pause: %s", h.s.Active.Reason)
		}
		h.turn(func(x *stream.Turn) { _ = x.Resume(stream.Request{}, h.w.now) })
		h.settle()
		sealed(t, h, false)
		h.open(h.s.Layout)
	})
	t.Run("the deadline ends it", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		pause(h, h.w.now+seconds(2))
		h.step()
		if stream.Next(h.s) != h.s.Hold.Until {
			t.Fatal(stream.Next(h.s))
		}
		h.w.now += seconds(2)
		h.settle()
		h.open(h.s.Layout)
	})
	for _, phase := range []protocol.Phase{protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating, protocol.PhaseOpening, protocol.PhaseConverging} {
		t.Run("during "+string(phase), func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			id := h.put(4)
			h.until(phase)
			stale := h.pass(stream.Plan(h.s, h.w.now)) // runs before the pause is stamped
			pause(h, h.w.now+seconds(3600))
			h.apply(stale)
			for range 60 {
				h.step()
				h.w.now += 20
			}
			h.ended(id, protocol.PhaseCompleted)
			if h.s.PublishState != protocol.PublishPaused || h.s.HoldDirty {
				t.Fatalf("%s, dirty %v", h.s.PublishState, h.s.HoldDirty)
			}
			sealed(t, h, true)
			h.turn(func(x *stream.Turn) { _ = x.Resume(stream.Request{}, h.w.now) })
			h.settle()
			h.open(stream.Layout{Epoch: 2, Count: 4})
		})
	}
	t.Run("resume opens no barrier", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.add(1, h.s.Layout)
		pause(h, h.w.now+seconds(600))
		h.step()
		id := h.put(4)
		h.until(protocol.PhaseDraining)
		h.turn(func(x *stream.Turn) { _ = x.Resume(stream.Request{}, h.w.now) })
		h.step()
		if h.s.PublishState != protocol.PublishPaused || h.w.add(1, h.s.Layout) {
			t.Fatal("the barrier is open")
		}
		h.work()
		h.settle()
		h.ended(id, protocol.PhaseCompleted)
		h.open(stream.Layout{Epoch: 2, Count: 4})
	})
	t.Run("in the past", func(t *testing.T) {
		t.Parallel()
		h := running(t, 1)
		h.turn(func(x *stream.Turn) {
			if err := x.Pause(h.w.now, stream.Request{}, h.w.now); err == nil || x.Changed() {
				t.Errorf("%v", err)
			}
		})
	})
}

func TestGroups(t *testing.T) {
	t.Parallel()
	register := func(h *harness, name string, start protocol.StartPosition) {
		h.turn(func(x *stream.Turn) { x.RegisterGroup(name, start, h.w.now) })
	}
	everywhere := func(t *testing.T, h *harness, name string) {
		t.Helper()
		for i := range h.s.Layout.Count {
			if h.w.shards[i].groups[name] == nil {
				t.Fatalf("shard %d lacks %s\n%s", i, name, h.log())
			}
		}
	}
	t.Run("at rest", func(t *testing.T) {
		t.Parallel()
		h := running(t, 3)
		h.add(0, h.s.Layout)
		register(h, "early", protocol.StartEarliest)
		register(h, "late", protocol.StartLatest)
		if h.s.Groups["early"].Ready {
			t.Fatal("ready before it is made")
		}
		h.step()
		if !h.s.Groups["early"].Ready || !h.s.Groups["late"].Ready {
			t.Fatalf("not ready\n%s", h.log())
		}
		everywhere(t, h, "early")
		if g := h.w.shards[0].groups; g["early"].last != 0 || g["late"].last != 1 {
			t.Errorf("early at %d, late at %d", g["early"].last, g["late"].last)
		}
	})
	for _, phase := range []protocol.Phase{
		protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating, protocol.PhaseOpening,
		protocol.PhaseDrainingRemoved, protocol.PhaseConverging, protocol.PhaseRetiring,
	} {
		t.Run("during "+string(phase), func(t *testing.T) {
			t.Parallel()
			for _, to := range []int{4, 1} {
				h := running(t, 2)
				h.put(to)
				if to > 2 && (phase == protocol.PhaseDrainingRemoved || phase == protocol.PhaseRetiring) {
					continue
				}
				h.until(phase)
				stale := h.pass(stream.Plan(h.s, h.w.now)) // planned without the group
				register(h, "new", protocol.StartEarliest)
				h.apply(stale)
				h.settle()
				if !h.s.Groups["new"].Ready {
					t.Fatal("not ready")
				}
				everywhere(t, h, "new")
				h.open(h.s.Layout)
			}
		})
	}
	t.Run("a shard that does not answer delays it alone", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.fault = func(st stream.Step) fate {
			if st.Script == shardscript.MkGroup && st.Index == 1 {
				return dropped
			}
			return run
		}
		register(h, "new", protocol.StartEarliest)
		id := h.put(3)
		for range 400 {
			h.step()
			h.w.now += 20
		}
		h.ended(id, protocol.PhaseCompleted)
		if h.s.Groups["new"].Ready {
			t.Fatal("ready though shard 1 never answered")
		}
		h.fault = nil
		h.w.now += seconds(20)
		h.settle()
		everywhere(t, h, "new")
	})
	t.Run("a group without shards is ready", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, 0)
		register(h, "new", protocol.StartEarliest)
		if !h.s.Groups["new"].Ready || !stream.Plan(h.s, h.w.now).Empty() {
			t.Fatalf("%+v", h.s.Groups["new"])
		}
	})
	t.Run("an ignored group does not hold up a drain", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.add(0, h.s.Layout)
		h.w.shards[0].groups["g"].last = 1
		id := h.putSpec(policy(func(p *protocol.ReshardingPolicy) { p.IgnoreGroups = []string{"h"} })(3))
		h.settle()
		r := h.ended(id, protocol.PhaseCompleted)
		if !reflect.DeepEqual(r.IgnoreGroups, []string{"h"}) {
			t.Errorf("%v", r.IgnoreGroups)
		}
	})
	t.Run("a forgotten group is not expected", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		id := h.put(3)
		h.until(protocol.PhaseDraining)
		for i := range 2 {
			delete(h.w.shards[i].groups, "h")
		}
		h.step()
		if h.s.Active.Phase != protocol.PhaseDraining || !strings.Contains(strings.Join(h.s.Active.WaitingFor, " "), "consumer group h is missing") {
			t.Fatalf("%s %v", h.s.Active.Phase, h.s.Active.WaitingFor)
		}
		h.turn(func(x *stream.Turn) { x.RemoveGroup("h", 1, h.w.now) })
		h.settle()
		h.ended(id, protocol.PhaseCompleted)
	})
}

func TestPlainProducers(t *testing.T) {
	t.Parallel()
	seen := func(h *harness, ago protocol.Instant) {
		h.turn(func(x *stream.Turn) { x.PlainProducersSeen(h.w.now-ago, h.w.now) })
	}
	for _, c := range []struct {
		name   string
		spec   protocol.StreamSpec
		ago    protocol.Instant
		paused int64
		order  string
	}{
		{"within the lifetime", spec(3), seconds(3), 30_000, stream.OrderKept},
		{"long ago", spec(3), seconds(31), 0, stream.OrderKept},
		{"does not fit", policy(func(p *protocol.ReshardingPolicy) { p.PauseTimeoutMs = 10_000 })(3), seconds(3), 0, stream.OrderNotPromisedPlain},
		{"order not asked for", policy(func(p *protocol.ReshardingPolicy) { p.DrainScope = protocol.DrainRemoved })(3), seconds(3), 0, stream.OrderNotPromised},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 2)
			id := h.putSpec(c.spec)
			h.until(protocol.PhaseSealing)
			seen(h, c.ago)
			before := h.s
			seen(h, c.ago) // the same again is no change
			if h.s != before {
				t.Error("a sighting that changes nothing was stored")
			}
			for range 4000 {
				if !h.step() {
					break
				}
				h.w.now += 20
			}
			r := h.ended(id, protocol.PhaseCompleted)
			if r.Order != c.order {
				t.Errorf("order %q, want %q", r.Order, c.order)
			}
			if r.PausedMs < c.paused || r.PausedMs > c.paused+500 {
				t.Errorf("paused for %d ms, want %d", r.PausedMs, c.paused)
			}
		})
	}
}

func TestLeaseBarrier(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	id := h.put(3)
	lease := func() {
		p := stream.Plan(h.s, h.w.now)
		res := h.pass(p)
		res.Barrier = stream.BarrierLease
		for i := range res.Replies {
			res.Replies[i].Control.Sealed = false
		}
		h.apply(res)
		h.w.now += 10
	}
	h.until(protocol.PhaseSealing)
	lease()
	lease()
	if h.s.Active.Phase != protocol.PhaseDraining || h.s.Active.Snapshot == nil {
		t.Fatalf("%s after one look", h.s.Active.Phase)
	}
	h.w.shards[1].last, h.w.shards[1].added = 7, 7 // a plain producer appends, and it is consumed
	h.w.work(1)
	lease()
	if h.s.Active.Phase != protocol.PhaseDraining {
		t.Fatalf("%s though the looks differ", h.s.Active.Phase)
	}
	if got := h.s.Active.WaitingFor; len(got) != 1 || !strings.HasPrefix(got[0], "shard 1: still grows (7 entries") {
		t.Fatalf("waits for %q", got)
	}
	lease()
	if h.s.Active.Phase != protocol.PhaseDraining {
		t.Fatalf("%s after two equal looks of which one is right behind the other", h.s.Active.Phase)
	}
	h.w.now += 1000
	lease()
	if h.s.Active.Phase != protocol.PhaseActivating || h.s.Active.Certificate.Barrier != stream.BarrierLease {
		t.Fatalf("%s though nothing was appended for a second, %+v", h.s.Active.Phase, h.s.Active.Certificate)
	}
	h.settle()
	h.ended(id, protocol.PhaseCompleted)
}

func TestDelete(t *testing.T) {
	t.Parallel()
	del := func(h *harness, force bool) (err *protocol.Error) {
		h.turn(func(x *stream.Turn) { err = x.Delete(force, stream.Request{}, h.w.now) })
		return err
	}
	h := running(t, 2)
	if err := del(h, false); err == nil || err.Code != protocol.CodeStreamNotEmpty {
		t.Fatalf("%v", err)
	}
	h.put(0)
	if err := del(h, false); err == nil || err.Code != protocol.CodeActiveMigration {
		t.Fatalf("%v", err)
	}
	h.settle()
	if err := del(h, false); err != nil {
		t.Fatal(err)
	}
	h.step()
	if !h.s.Gone {
		t.Fatal("PURGE is done, but the record stays")
	}

	h = running(t, 2)
	h.put(4)
	h.until(protocol.PhaseDraining)
	if err := del(h, true); err != nil {
		t.Fatal(err)
	}
	if p := stream.Plan(h.s, h.w.now); p.Kind != stream.PassPurge || len(p.Stages[0]) != 4 {
		t.Fatalf("%+v", p)
	}
	h.step()
	for i, s := range h.w.shards {
		if s.exists {
			t.Errorf("shard %d is left", i)
		}
	}
	if _, _, err := stream.Begin(h.s).Put(spec(1), stream.Request{}, h.w.now); err == nil || err.Code != protocol.CodeStateVersionConflict {
		t.Errorf("put: %v", err)
	}

	h = newHarness(t, 0)
	if err := del(h, false); err != nil || !h.s.Gone {
		t.Fatalf("%v", err)
	}
}

// TestStoredState: any replica goes on from what is stored.
func TestStoredState(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	h.add(1, h.s.Layout)
	h.put(2)
	for range 100 {
		b, err := json.Marshal(h.s)
		if err != nil {
			t.Fatal(err)
		}
		var again stream.State
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(stream.Plan(h.s, h.w.now), stream.Plan(&again, h.w.now)) {
			t.Fatalf("another pass from %s", b)
		}
		b2, _ := json.Marshal(&again)
		if string(b) != string(b2) {
			t.Fatalf("round trip:\n%s\n%s", b, b2)
		}
		h.s = &again
		if !h.step() {
			break
		}
		h.w.now += 20
		h.work()
	}
	h.open(stream.Layout{Epoch: 2, Count: 2})
}

// TestTurnLeavesTheBase: a lost commit is applied again to what was there.
func TestTurnLeavesTheBase(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	h.put(2)
	for range 100 {
		before, _ := json.Marshal(h.s)
		base := h.s
		if !h.step() {
			return
		}
		if after, _ := json.Marshal(base); string(before) != string(after) {
			t.Fatalf("the base was modified:\n%s\n%s", before, after)
		}
		h.w.now += 20
	}
}

func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	for i := range stream.MaxHistory + 5 {
		h.put(2 + (i+1)%2)
		h.settle()
	}
	if len(h.s.History) != stream.MaxHistory || len(stream.Reshardings(h.s, h.s.UpdatedAt)) != stream.MaxHistory {
		t.Fatalf("%d records", len(h.s.History))
	}
	if list := stream.Reshardings(h.s, h.s.UpdatedAt); list[0].ReshardingID != h.s.History[stream.MaxHistory-1].ID {
		t.Errorf("newest is not first: %s", list[0].ReshardingID)
	}
}

// TestWaitingCostsNoCommits: passes that find the same, or find it within a second, write nothing.
func TestWaitingCostsNoCommits(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	h.add(1, h.s.Layout)
	h.put(3)
	h.until(protocol.PhaseDraining)
	h.step()
	rev := h.rev
	for i := range 40 {
		h.w.shards[1].groups["g"].pending[i+100] = true // the numbers differ each time
		h.step()
		h.w.now += 10
	}
	if h.rev != rev {
		t.Errorf("%d commits in 400 ms of waiting", h.rev-rev)
	}
	h.w.now += seconds(1)
	h.step()
	if h.rev != rev+1 {
		t.Errorf("%d commits after a second", h.rev-rev)
	}
}

package stream_test

import (
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// TestCreateAgain: a stream that takes the name of an earlier one meets its tombstones.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	old := running(t, 3)
	old.put(0)
	old.settle()
	h := newHarness(t, 2)
	h.w = old.w
	h.settle()
	h.open(stream.Layout{Epoch: 3, Count: 2})
	if h.s.HighCount != 3 || h.s.MetadataVersion != 1 || h.s.Alert != "" {
		t.Errorf("high %d, metadata version %d, alert %q", h.s.HighCount, h.s.MetadataVersion, h.s.Alert)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	t.Run("the same layout only lifts the revision", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.put(3)
		h.until(protocol.PhaseDraining)
		x := stream.Begin(h.s)
		least := x.Adopt(stream.Control{HasEpoch: true, Epoch: 1, Count: 2, Rev: 90}, "adopt", h.w.now)
		if least != 91 || !x.Changed() || x.State().Active.Phase != protocol.PhaseDraining || x.State().Alert == "" {
			t.Fatalf("%d, %+v", least, x.State().Active)
		}
	})
	t.Run("another layout replaces what runs", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		id := h.put(3)
		h.until(protocol.PhaseDraining)
		h.turn(func(x *stream.Turn) {
			x.Adopt(stream.Control{HasEpoch: true, Epoch: 7, Count: 4, High: 6, Rev: 90}, "adopt", h.w.now)
		})
		h.ended(id, protocol.PhaseFailed)
		r := h.s.Active
		if r.Kind != stream.KindAdopt || r.Phase != protocol.PhaseOpening || r.Old != 6 || h.s.Layout != (stream.Layout{Epoch: 7, Count: 4}) {
			t.Fatalf("%+v, %v", r, h.s.Layout)
		}
		if h.s.Spec.ShardCount != 4 || h.s.PublishState != protocol.PublishOpen || h.s.LastEpoch != 7 {
			t.Errorf("spec %+v, %s, last epoch %d", h.s.Spec, h.s.PublishState, h.s.LastEpoch)
		}
		h.settle()
		h.open(stream.Layout{Epoch: 7, Count: 4})
	})
	t.Run("the epoch was given out twice", func(t *testing.T) {
		t.Parallel()
		h := running(t, 2)
		h.turn(func(x *stream.Turn) {
			x.Adopt(stream.Control{HasEpoch: true, Epoch: 1, Count: 3, Rev: 9}, "adopt", h.w.now)
		})
		if h.s.Layout != (stream.Layout{Epoch: 1, Count: 3}) {
			t.Fatalf("%v", h.s.Layout)
		}
	})
}

func TestBehind(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	h.put(3)
	h.until(protocol.PhaseActivating)
	for name, c := range map[string]struct {
		seen stream.Control
		want bool
	}{
		"an older revision":        {stream.Control{HasEpoch: true, Epoch: 1, Rev: h.rev}, false},
		"a newer revision":         {stream.Control{HasEpoch: true, Epoch: 1, Rev: h.rev + 1}, true},
		"the layout to be decided": {stream.Control{HasEpoch: true, Epoch: 2, Rev: h.rev}, true},
	} {
		if got := stream.Behind(h.s, h.rev, c.seen); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm     func(h *harness)
		repaired bool
	}{
		"nothing":              {func(*harness) {}, false},
		"missing inside":       {func(h *harness) { h.w.shards[1].unlink() }, true},
		"unfenced inside":      {func(h *harness) { h.w.shards[1].fenced = false }, true},
		"held":                 {func(h *harness) { h.w.shards[1].gate = "x" }, true},
		"sealed for no reason": {func(h *harness) { h.w.shards[1].sealed = true }, true},
		"lower epoch":          {func(h *harness) { h.w.shards[1].epoch = 1 }, true},
		"tombstone inside":     {func(h *harness) { h.w.shards[1].retired = "x"; h.w.shards[1].unlink() }, true},
		"left over outside":    {func(h *harness) { h.w.shards[2].make([]string{"g"}); h.w.shards[2].retired = "" }, true},
		"orphan outside":       {func(h *harness) { h.w.shards[2].make([]string{"g"}) }, false},
		"foreign outside":      {func(h *harness) { s := h.w.shards[2]; *s = shard{exists: true} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 3)
			h.put(2)
			h.settle()
			c.harm(h)
			orphan := h.w.shards[2].clone()
			h.sweep()
			if got := h.s.Active != nil; got != c.repaired {
				t.Fatalf("repair started: %v", got)
			}
			h.settle()
			h.sweep()
			if h.s.Active != nil {
				t.Fatalf("repaired again: %s\n%s", h.s.Active.Reason, h.log())
			}
			if len(h.s.Orphans) > 0 {
				if !h.w.shards[2].exists || h.w.shards[2].sealed != orphan.sealed {
					t.Error("the orphan was touched")
				}
				h.w.shards[1].sealed = true // a repair beside it leaves it alone
				h.sweep()
				h.settle()
				if !h.w.shards[2].exists || h.w.shards[2].sealed != orphan.sealed || h.w.shards[2].fenced != orphan.fenced {
					t.Error("a repair has touched the orphan")
				}
				h.w.shards[2].unlink()
			}
			h.open(stream.Layout{Epoch: 2, Count: 2})
		})
	}
}

// TestExhausted: a shard that cannot be unsealed is reported, not repaired for ever.
func TestExhausted(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	h.putSpec(spec(3))
	h.until(protocol.PhaseOpening)
	h.answer(on(1, "EXHAUSTED"))
	h.settle()
	h.w.shards[1].sealed = true
	h.sweep()
	if h.s.Active != nil || h.s.Alert == "" || len(h.s.Exhausted) != 1 {
		t.Fatalf("alert %q, %v", h.s.Alert, h.s.Exhausted)
	}
}

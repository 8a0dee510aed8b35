package engine_test

import (
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A change that a shard holds up before anything is paused ends by itself, says which one that was,
// and leaves nothing behind; then the next one goes through. The creation of a stream is one, too.
func TestNothingWaitsForEver(t *testing.T) {
	t.Parallel()
	t.Run("online", func(t *testing.T) {
		t.Parallel()
		policy := protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline, DrainTimeoutMs: 700}
		w, coordinators, line := withCut(t, redistest.Shared(t), "")
		e, _, _ := coordinators.start("a")
		w.create(e, 2)
		line.set(protocol.ShardKey(w.prefix, 2))
		id := w.scale(e, 3, policy)
		w.waitsFor(e, id, protocol.PhaseRollingBack, "shard 2: no answer to UNDO: the line is cut")
		line.set("") // a shard that does not answer is told, sooner or later, that it came to nothing
		r := finish(t, e, w.prefix, id)
		if r.Phase != protocol.PhaseRolledBack || !strings.Contains(r.Error, "drain timeout of 700ms passed in PROVISIONING: shard 2: no answer to PROVISION: the line is cut") {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.healthy(e, 2)
		policy.DrainTimeoutMs = 60_000
		put(t, e, w.prefix, protocol.StreamSpec{ShardCount: 3, Resharding: policy})
		w.healthy(e, 3)
	})
	t.Run("creation", func(t *testing.T) {
		t.Parallel()
		w, coordinators, line := withCut(t, redistest.Shared(t), "")
		e, _, _ := coordinators.start("a")
		line.set(protocol.ShardKey(w.prefix, 1))
		id := w.scale(e, 2, protocol.ReshardingPolicy{DrainTimeoutMs: 700})
		w.waitsFor(e, id, protocol.PhaseRollingBack, "shard 1: no answer to UNDO")
		line.set("")
		r := finish(t, e, w.prefix, id)
		if r.Phase != protocol.PhaseRolledBack || !strings.Contains(r.Error, "shard 1: no answer to PROVISION: the line is cut") {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		if w.exists(0) || w.exists(1) {
			t.Error("shards are left over")
		}
		w.create(e, 2)
		w.healthy(e, 2)
	})
}

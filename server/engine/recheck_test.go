package engine_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// recheck compares a certificate with Redis; states are "index STATE" of each shard.
func (w *world) recheck(e *engine.Engine, id string) (c protocol.CertificateCheck, states []string) {
	w.t.Helper()
	r, err := e.Recheck(w.t.Context(), w.prefix, id)
	if err != nil || r.Recheck == nil || r.ReshardingID != id {
		w.t.Fatalf("%+v, %v", r, err)
	}
	for _, s := range r.Recheck.Shards {
		if s.Holds != (len(s.Problems) == 0) || s.Problems == nil {
			w.t.Errorf("shard %d holds: %v, with %q", s.ShardIndex, s.Holds, s.Problems)
		}
		states = append(states, s.State)
	}
	if r.Recheck.CheckedAt.IsZero() {
		w.t.Error("without a time")
	}
	return *r.Recheck, states
}

func (w *world) holds(e *engine.Engine, id string, want bool, states ...string) protocol.CertificateCheck {
	w.t.Helper()
	c, got := w.recheck(e, id)
	if c.Holds != want || !slices.Equal(got, states) {
		w.t.Fatalf("holds %v with %v, want %v with %v: %+v", c.Holds, got, want, states, c.Shards)
	}
	return c
}

// A certificate is compared with Redis as it is now, whatever became of its shards.
func TestRecheck(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 3)
		stop := w.consume(e, "m")
		for i := range 3 {
			w.add(e, i, 4)
		}
		id := w.scale(e, 2, quiesce)
		if r := finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.holds(e, id, true, "KEPT", "KEPT", "RETIRED")
		stop()
		w.add(e, 0, 2) // later entries, delivered or not, are not certified
		w.must("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", protocol.ShardKey(w.prefix, 0), ">")
		w.holds(e, id, true, "KEPT", "KEPT", "RETIRED")

		w.must("XGROUP", "SETID", protocol.ShardKey(w.prefix, 1), "g", "0")
		c := w.holds(e, id, false, "KEPT", "KEPT", "RETIRED")
		if text := strings.Join(c.Shards[1].Problems, "; "); !strings.Contains(text, "group g stands at 0-0") || !c.Shards[0].Holds {
			t.Errorf("%+v", c.Shards)
		}
		w.must("XREADGROUP", "GROUP", "g", "c", "COUNT", 3, "STREAMS", protocol.ShardKey(w.prefix, 1), ">")
		if c, _ = w.recheck(e, id); !strings.Contains(strings.Join(c.Shards[1].Problems, "; "), "group g has 3 pending up to the certified") {
			t.Errorf("%+v", c.Shards[1])
		}
		w.must("XGROUP", "DESTROY", protocol.ShardKey(w.prefix, 1), "g")
		if c, _ = w.recheck(e, id); !strings.Contains(strings.Join(c.Shards[1].Problems, "; "), "group g is gone") {
			t.Errorf("%+v", c.Shards[1])
		}
		w.must("XGROUP", "CREATE", protocol.ShardKey(w.prefix, 1), "g", "$")
		w.must("XGROUP", "SETID", protocol.ShardKey(w.prefix, 0), "g", "$")
		w.must("XACK", protocol.ShardKey(w.prefix, 0), "g", lastPending(w, 0))

		// The removed shard is made anew, and removed again, to an archive.
		put(t, e, w.prefix, spec(3))
		w.holds(e, id, true, "KEPT", "KEPT", "REPLACED")
		archive := quiesce
		archive.Retire = protocol.RetireArchive
		w.consume(e, "m2")
		w.add(e, 2, 2)
		second := w.scale(e, 2, archive)
		if r := finish(t, e, w.prefix, second); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("ended %s: %s", r.Phase, r.Error)
		}
		w.holds(e, second, true, "KEPT", "KEPT", "ARCHIVED")
		w.holds(e, id, true, "KEPT", "KEPT", "RETIRED") // by the later one
		key := protocol.ArchiveKey(w.prefix, 2, second)
		w.must("XGROUP", "SETID", key, "g", "0")
		if c = w.holds(e, second, false, "KEPT", "KEPT", "ARCHIVED"); !strings.Contains(strings.Join(c.Shards[2].Problems, "; "), "group g") {
			t.Errorf("%+v", c.Shards[2])
		}
		w.must("DEL", key) // somebody needs it no more
		w.holds(e, second, true, "KEPT", "KEPT", "RETIRED")

		// The tombstone is gone as well: nothing can be said.
		w.must("DEL", protocol.ControlKey(w.prefix, 2))
		w.holds(e, second, false, "KEPT", "KEPT", "UNKNOWN")
	})
}

// lastPending is an id that is pending in group g of a shard.
func lastPending(w *world, shard int) string {
	w.t.Helper()
	p, err := w.rdb.XPendingExt(w.t.Context(), &redis.XPendingExtArgs{Stream: protocol.ShardKey(w.prefix, shard), Group: "g", Start: "-", End: "+", Count: 1}).Result()
	if err != nil || len(p) != 1 {
		w.t.Fatalf("%v, %v", p, err)
	}
	return p[0].ID
}

func TestRecheckWithoutACertificate(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 1)
		refused := func(id string, code protocol.Code, part string) {
			t.Helper()
			r, err := e.Recheck(t.Context(), w.prefix, id)
			var p *protocol.Error
			if !errors.As(err, &p) || p.Code != code || !strings.Contains(p.Message, part) {
				t.Fatalf("%+v, %v; want %s with %q", r, err, code, part)
			}
		}
		refused("reshard-none", protocol.CodeMigrationNotFound, "reshard-none")
		id := w.scale(e, 2, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline})
		finish(t, e, w.prefix, id)
		refused(id, protocol.CodeCertificateNotFound, "phase COMPLETED")
		w.add(e, 0, 1)
		id = w.scale(e, 3, quiesce)
		w.waitsFor(e, id, protocol.PhaseDraining, "1 undelivered")
		refused(id, protocol.CodeCertificateNotFound, "phase DRAINING")
		if _, err := e.Recheck(t.Context(), "no-such-stream", id); !errors.Is(err, protocol.ErrStreamNotFound) {
			t.Fatal(err)
		}
	})
}

// What does not answer is unknown, and unknown never holds.
func TestRecheckOfAShardThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	w, coordinators, line := withCut(t, redistest.Shared(t), "")
	e, _, _ := coordinators.start("a")
	w.create(e, 2)
	id := w.scale(e, 3, quiesce)
	if r := finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
		t.Fatalf("ended %s: %s", r.Phase, r.Error)
	}
	line.set(protocol.ShardKey(w.prefix, 1))
	if c := w.holds(e, id, false, "KEPT", "UNKNOWN"); !strings.Contains(c.Shards[1].Problems[0], "no answer to RECHECK: the line is cut") {
		t.Errorf("%+v", c.Shards)
	}
	line.set("")
	w.holds(e, id, true, "KEPT", "KEPT")
}

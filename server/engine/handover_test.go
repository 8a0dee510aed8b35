package engine_test

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

// quick is a group with leases short enough to be waited for.
var quick = protocol.GroupSpec{MemberLeaseMs: 2000, HeartbeatIntervalMs: 400, RebalanceTimeoutMs: 5000}

// newGroup makes a stream of count shards with group "g".
func newGroup(t *testing.T, e *engine.Engine, count int, groupSpec protocol.GroupSpec) (prefix string) {
	t.Helper()
	prefix = redistest.Prefix(t)
	put(t, e, prefix, spec(count))
	if _, _, err := e.PutGroup(t.Context(), prefix, "g", groupSpec, mutation("PUT_GROUP")); err != nil {
		t.Fatal(err)
	}
	return prefix
}

func memberOf(e *engine.Engine, prefix, id string) *member {
	return &member{e: e, prefix: prefix, group: "g", id: id}
}

// until beats until the member owns exactly want, with held calls, at most for within.
func (m *member) until(t *testing.T, within time.Duration, want ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for ctx.Err() == nil {
		resp := m.beat(ctx, 200*time.Millisecond)
		if resp.Status == protocol.StatusOK && slices.Equal(m.owned, want) {
			return
		}
		if resp.Status == protocol.StatusFencedMemberEpoch || resp.Status == protocol.StatusUnknownMemberID {
			m.epoch, m.owned = 0, nil
		}
	}
	t.Fatalf("%s owns %v after %s, want %v", m.id, m.owned, within, want)
}

func TestScenario(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Shared(t)
	t.Run("held-call", func(t *testing.T) {
		t.Parallel()
		keys := redistest.KeyPrefix(t)
		r1 := startReplica(t, redisServer.Client(t), keys, "r1")
		r2 := startReplica(t, redisServer.Client(t), keys, "r2")
		prefix := newGroup(t, r1.Engine, 2, protocol.GroupSpec{})
		a, b := memberOf(r1.Engine, prefix, "a"), memberOf(r2.Engine, prefix, "b")
		a.until(t, 5*time.Second, 0, 1)
		told := make(chan protocol.HeartbeatResponse)
		go func() { told <- a.beat(t.Context(), 3*time.Second) }()
		waitHeld(t, r1.Engine, prefix)
		started := time.Now()
		if resp := b.beat(t.Context(), 0); resp.Status != protocol.StatusOK || len(resp.Assignment.PendingShards) != 1 || len(b.owned) != 0 {
			t.Fatalf("join of b: %+v", resp)
		}
		resp := <-told // by R2's notice to R1: at once, not when the hold ends
		if took := time.Since(started); took > time.Second || resp.Status != protocol.StatusOK || !slices.Equal(a.owned, []int{0}) {
			t.Fatalf("a is told %v after %s: %+v", a.owned, took, resp)
		}
		waiting := make(chan protocol.HeartbeatResponse)
		go func() { waiting <- b.beat(t.Context(), 3*time.Second) }()
		waitHeld(t, r2.Engine, prefix)
		started = time.Now()
		a.beat(t.Context(), 0) // releases 1
		resp = <-waiting
		if took := time.Since(started); took > time.Second || !slices.Equal(b.owned, []int{1}) {
			t.Fatalf("b is given %v after %s: %+v", b.owned, took, resp)
		}
	})
	t.Run("basic-handover", func(t *testing.T) {
		t.Parallel()
		r := startReplica(t, redisServer.Client(t), redistest.KeyPrefix(t), "r1")
		prefix := newGroup(t, r.Engine, 2, protocol.GroupSpec{})
		a, b := memberOf(r.Engine, prefix, "a"), memberOf(r.Engine, prefix, "b")
		first := a.beat(t.Context(), 0)
		b.beat(t.Context(), 0)
		a.beat(t.Context(), 0) // told: {0}
		if resp := b.beat(t.Context(), 0); len(resp.Assignment.AssignedShards) != 0 {
			t.Fatalf("b is given %v before a let go", resp.Assignment.AssignedShards)
		}
		a.beat(t.Context(), 0) // lets go of 1
		resp := b.beat(t.Context(), 0)
		if !slices.Equal(b.owned, []int{1}) || resp.Assignment.OwnershipEpochs["1"] <= first.Assignment.OwnershipEpochs["1"] {
			t.Fatalf("b owns %v under %v; a had %v", b.owned, resp.Assignment.OwnershipEpochs, first.Assignment.OwnershipEpochs)
		}
	})
	t.Run("expiry-races-renewal", func(t *testing.T) {
		t.Parallel()
		// The replica with the ticker sees renewals of the other one only through the rows.
		keys := redistest.KeyPrefix(t)
		r1 := startReplica(t, redisServer.Client(t), keys, "r1")
		prefix := newGroup(t, r1.Engine, 1, quick)
		r2 := startReplica(t, redisServer.Client(t), keys, "r2")
		a := memberOf(r2.Engine, prefix, "a")
		a.until(t, 5*time.Second, 0)
		epoch := a.epoch
		for deadline := time.Now().Add(3 * 2 * time.Second); time.Now().Before(deadline); {
			if resp := a.beat(t.Context(), 400*time.Millisecond); resp.Status != protocol.StatusOK {
				t.Fatalf("a live member was answered %s %s", resp.Status, resp.Reason)
			}
		}
		if a.epoch != epoch {
			t.Errorf("group epoch moved from %d to %d: a was expired", epoch, a.epoch)
		}
	})
	// Two cases: Redis comes back with a copy in which a's row (a) still runs, (b) has ended.
	for _, tc := range []struct {
		name  string
		after time.Duration // from the snapshot to the loss
		keeps []int         // what a is told during the recovery
	}{{"held", 500 * time.Millisecond, []int{0}}, {"ended", 2500 * time.Millisecond, nil}} {
		t.Run("failover-lost-leases/"+tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFailover(t, 1)
			a := memberOf(f.replica.Engine, f.prefix, "a")
			a.until(t, 5*time.Second, 0)
			f.snapshot(t)
			for end := time.Now().Add(tc.after); time.Now().Before(end); {
				a.beat(t.Context(), 200*time.Millisecond)
			}
			f.lose(t)
			b := memberOf(f.replica.Engine, f.prefix, "b")
			back := time.Now()
			joined := false
			for time.Since(back) < 1500*time.Millisecond { // less than one lease after the detection
				resp := a.beat(t.Context(), 100*time.Millisecond)
				if early := time.Since(back) < 1800*time.Millisecond; early && resp.Status.ExtendsLease() && !slices.Equal(a.owned, tc.keeps) {
					t.Fatalf("a is answered %v %s after the failover, want %v: %+v", a.owned, time.Since(back), tc.keeps, resp)
				}
				resp = b.beat(t.Context(), 0)
				joined = joined || resp.Status == protocol.StatusOK
				if early := time.Since(back) < 1800*time.Millisecond; early && len(b.owned) > 0 {
					t.Fatalf("shard %v was granted %s after the failover: its holder may still read it", b.owned, time.Since(back))
				}
			}
			if !joined {
				t.Error("b could not join during the recovery")
			}
			if len(a.owned)+len(b.owned) == 0 { // then it is given to its target
				for deadline := time.Now().Add(8 * time.Second); len(a.owned)+len(b.owned) == 0; {
					a.beat(t.Context(), 100*time.Millisecond)
					b.beat(t.Context(), 100*time.Millisecond)
					if time.Now().After(deadline) {
						t.Fatal("nobody is given the shard after the recovery")
					}
				}
			}
		})
	}
	t.Run("failover-same-revision", func(t *testing.T) {
		t.Parallel()
		f := newFailover(t, 2)
		a := memberOf(f.replica.Engine, f.prefix, "a")
		a.until(t, 5*time.Second, 0, 1)
		f.snapshot(t)
		b := memberOf(f.replica.Engine, f.prefix, "b")
		b.until(t, 5*time.Second) // its admission will be lost
		f.lose(t)
		other := startReplica(t, f.server.Client(t), f.keys, "r2")
		c := memberOf(other.Engine, f.prefix, "c")
		c.until(t, 5*time.Second) // another history grows from the snapshot
		// The first replica's cache is of the lost history: nothing of it may be answered.
		resp := b.beat(t.Context(), 0)
		if resp.Status == protocol.StatusOK || resp.Status == protocol.StatusInvalidRequest {
			t.Fatalf("the member whose admission was lost is answered %+v", resp)
		}
		b.epoch, b.owned = 0, nil
		for deadline := time.Now().Add(5 * time.Second); ; {
			if resp := b.beat(t.Context(), 0); resp.Status == protocol.StatusOK {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("b does not get in again")
			}
		}
	})
}

// waitHeld waits until a request is held at the stream's actor.
func waitHeld(t *testing.T, e *engine.Engine, prefix string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); engine.Held(e, prefix) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("no request is held")
		}
		runtime.Gosched()
	}
}

// failover is a Redis that can lose its last writes: it is killed and comes back with an older
// snapshot, as a replica that was promoted does.
type failover struct {
	server       *redistest.Server
	replica      *replica
	keys, prefix string
}

func newFailover(t *testing.T, shards int) *failover {
	s := redistest.Start(t)
	f := &failover{server: s, keys: redistest.KeyPrefix(t)}
	f.replica = startReplica(t, s.Client(t), f.keys, "r1")
	f.prefix = newGroup(t, f.replica.Engine, shards, quick)
	return f
}

// snapshot is what is left after lose.
func (f *failover) snapshot(t *testing.T) {
	t.Helper()
	if err := f.server.Client(t).Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

func (f *failover) lose(t *testing.T) {
	t.Helper()
	f.server.Kill()
	f.server.Restart(t)
	rdb := f.server.Client(t)
	if n, err := rdb.DBSize(t.Context()).Result(); err != nil || n == 0 {
		t.Fatalf("redis came back without its snapshot: %d keys, %v", n, err)
	}
}

// A steady call that is held, and the call that changes its answer, in one batch: the held one is
// told at once. It was once answered with its own old view, and its client waited out H.
func TestAReleaseInTheSameBatchIsTold(t *testing.T) {
	t.Parallel()
	r := startReplica(t, redistest.Shared(t).Client(t), redistest.KeyPrefix(t), "r1")
	for round := range 40 {
		prefix := newGroup(t, r.Engine, 2, protocol.GroupSpec{})
		a, b := memberOf(r.Engine, prefix, "a"), memberOf(r.Engine, prefix, "b")
		a.beat(t.Context(), 0)
		b.beat(t.Context(), 0) // 1 is b's as soon as a lets go
		a.beat(t.Context(), 0) // told
		b.beat(t.Context(), 0)
		started := time.Now()
		done := make(chan struct{})
		go func() { defer close(done); a.beat(t.Context(), 0) }()
		for len(b.owned) == 0 && time.Since(started) < 5*time.Second {
			b.beat(t.Context(), 3*time.Second)
		}
		<-done
		if took := time.Since(started); took > 2*time.Second || !slices.Equal(b.owned, []int{1}) {
			t.Fatalf("round %d: b owns %v after %s", round, b.owned, took)
		}
	}
}

// The index is in another slot and can be lost alone; a group's aggregate can outlive the loss of
// its stream's. Neither needs a hand.
func TestWhatIsLeftOfALostHistory(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	keys := redistest.KeyPrefix(t)
	r := startReplica(t, rdb, keys, "r1")
	prefix := newGroup(t, r.Engine, 1, quick)
	if err := rdb.Del(t.Context(), keys+":streams").Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		if all, err := r.Streams(t.Context()); err == nil && len(all.Streams) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the lost index is not made again")
		}
		runtime.Gosched()
	}
	if err := rdb.Del(t.Context(), keys+":{"+prefix+"}:stream").Err(); err != nil {
		t.Fatal(err)
	}
	put(t, r.Engine, prefix, spec(1))
	if g, created, err := r.PutGroup(t.Context(), prefix, "g", quick, mutation("PUT_GROUP")); err != nil || !created || !g.Ready {
		t.Fatalf("a group whose aggregate outlived its stream's: %+v, created %v, %v", g, created, err)
	}
	m := memberOf(r.Engine, prefix, "m")
	m.until(t, 5*time.Second, 0)
}

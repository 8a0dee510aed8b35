package engine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// replica is one engine on a Redis that others may use as well.
type replica struct {
	*engine.Engine
	store *redisstore.Store
}

func startReplica(t *testing.T, rdb redis.UniversalClient, keyPrefix, id string) *replica {
	t.Helper()
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	store, err := redisstore.New(redisstore.Config{Client: rdb, KeyPrefix: keyPrefix, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: store, CoordinatorID: id, Logger: log, SweepInterval: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Errorf("stop of replica %s: %v", id, err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close of store %s: %v", id, err)
		}
	})
	return &replica{e, store}
}

func mutation(action string) engine.Mutation {
	return engine.Mutation{Audit: protocol.AuditEvent{Action: action, Method: "PUT", RequestID: action, RequestedBy: "test", Reason: "test"}}
}

func spec(count int) protocol.StreamSpec { return protocol.StreamSpec{ShardCount: count} }

// put declares a shard count and waits until the stream has converged.
func put(t *testing.T, e *engine.Engine, prefix string, s protocol.StreamSpec) protocol.Stream {
	t.Helper()
	res, err := e.PutStream(t.Context(), prefix, s, mutation(fmt.Sprintf("PUT_%d", s.ShardCount)))
	if err != nil {
		t.Fatalf("put %d shards: %v", s.ShardCount, err)
	}
	if res.ReshardingID != "" {
		if r := finish(t, e, prefix, res.ReshardingID); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("resharding to %d: %s (%s), waiting for %v", s.ShardCount, r.Phase, r.Error, r.WaitingFor)
		}
	}
	view, err := e.Stream(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// finish waits for the end of a resharding by held reads.
func finish(t *testing.T, e *engine.Engine, prefix, id string) protocol.Resharding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := protocol.Phase("")
	for {
		r, err := e.Resharding(ctx, prefix, id, seen, time.Second)
		if err != nil {
			t.Fatalf("resharding %s in phase %s: %v", id, seen, err)
		}
		if r.Phase.Terminal() {
			return r
		}
		if ctx.Err() != nil {
			t.Fatalf("resharding %s hangs in %s: %v", id, r.Phase, r.WaitingFor)
		}
		seen = r.Phase
	}
}

// member speaks for one logical consumer.
type member struct {
	e              *engine.Engine
	prefix, group  string
	id             string
	epoch, version int64
	owned          []int
	n              int
}

func (m *member) beat(ctx context.Context, wait time.Duration) protocol.HeartbeatResponse {
	m.n++
	resp := m.e.Heartbeat(ctx, m.prefix, m.group, m.id, &protocol.HeartbeatRequest{
		ProtocolVersion: 1, RequestID: fmt.Sprintf("%s-%d", m.id, m.n), MemberID: m.id, MemberEpoch: m.epoch, MetadataVersion: m.version,
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
		OwnedShards:             protocol.Shards(m.owned), Incarnation: "inc-" + m.id, MaxWaitMs: wait.Milliseconds(),
	})
	if resp.Status.ExtendsLease() {
		m.epoch, m.version = resp.MemberEpoch, resp.MetadataVersion
		m.owned = protocol.Indexes(resp.Assignment.AssignedShards)
	}
	return resp
}

func backends(t *testing.T, f func(t *testing.T, rdb redis.UniversalClient)) {
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		f(t, redistest.Shared(t).Client(t))
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		f(t, redistest.SharedCluster(t).Client(t))
	})
}

func TestStreamLifecycle(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		e := startReplica(t, rdb, redistest.KeyPrefix(t), "r1")
		prefix := redistest.Prefix(t)
		view := put(t, e.Engine, prefix, spec(4))
		if view.Status.ShardCount != 4 || view.Status.PublishState != protocol.PublishOpen || view.MetadataVersion != 1 {
			t.Fatalf("created: %+v", view)
		}
		g, created, err := e.PutGroup(t.Context(), prefix, "billing", protocol.GroupSpec{}, mutation("PUT_GROUP"))
		if err != nil || !created || !g.Ready {
			t.Fatalf("group: %+v created=%v err=%v", g, created, err)
		}
		m := &member{e: e.Engine, prefix: prefix, group: "billing", id: "m1"}
		if resp := m.beat(t.Context(), 0); resp.Status != protocol.StatusOK || len(m.owned) != 4 {
			t.Fatalf("join: %+v", resp)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				m.beat(ctx, 3*time.Second)
			}
		}()
		for _, n := range []int{8, 3, 6, 1} {
			if view = put(t, e.Engine, prefix, spec(n)); view.Status.ShardCount != n || len(view.Shards) != n {
				t.Fatalf("after the change to %d: %+v", n, view)
			}
		}
		online := spec(5)
		online.Resharding.Strategy = protocol.StrategyOnline
		put(t, e.Engine, prefix, online)
		put(t, e.Engine, prefix, spec(0))
		cancel()
		<-done
		if err := e.DeleteStream(t.Context(), prefix, false, mutation("DELETE")); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Stream(t.Context(), prefix); !errors.Is(err, protocol.ErrStreamNotFound) {
			t.Fatalf("deleted stream: %v", err)
		}
		put(t, e.Engine, prefix, spec(2)) // the name can be used again, tombstones or not
	})
}

// A cursor that no listing returned is the caller's mistake, not a Redis that is away.
func TestAuditCursorIsChecked(t *testing.T) {
	t.Parallel()
	e := startReplica(t, redistest.Shared(t).Client(t), redistest.KeyPrefix(t), "a")
	_, err := e.AuditEvents(t.Context(), redisstore.AuditQuery{Cursor: "nonsense"})
	var refused *protocol.Error
	if !errors.As(err, &refused) || refused.Code != protocol.CodeInvalidRequest {
		t.Errorf("got %v", err)
	}
}

// Routing of a stream that is not leaves nothing behind, and is answered as each client knows it.
func TestRoutingOfNoStream(t *testing.T) {
	t.Parallel()
	rdb, keyPrefix, prefix := redistest.Shared(t).Client(t), redistest.KeyPrefix(t), redistest.Prefix(t)
	e := startReplica(t, rdb, keyPrefix, "a")
	var refused *protocol.Error
	if _, err := e.Routing(t.Context(), prefix, 0, 0, "p", false); !errors.As(err, &refused) || refused.Code != protocol.CodeStreamNotFound {
		t.Errorf("routing: %v", err)
	}
	if _, err := e.ProducerRouting(t.Context(), prefix, "g"); !errors.As(err, &refused) || refused.Code != protocol.CodeGroupNotFound {
		t.Errorf("producer routing: %v", err)
	}
	if keys := rdb.Keys(t.Context(), keyPrefix+":{"+prefix+"}*").Val(); len(keys) != 0 {
		t.Errorf("keys %v", keys)
	}
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// keeper is a replica that carries retention out often.
type keeper struct {
	*engine.Engine
	registry *prometheus.Registry
	stop     func()
}

func (w *world) keeper(id string, every, sweep time.Duration, beforePass func(stream.Pass)) *keeper {
	w.t.Helper()
	log := zaptest.NewLogger(w.t, zaptest.Level(zap.ErrorLevel))
	store, err := redisstore.New(redisstore.Config{Client: w.rdb, KeyPrefix: w.keys, Logger: log})
	if err != nil {
		w.t.Fatal(err)
	}
	k := &keeper{registry: prometheus.NewRegistry()}
	k.Engine, err = engine.New(engine.Config{
		Store: store, CoordinatorID: id, Logger: log, Registerer: k.registry, SweepInterval: sweep, TickerTTL: 600 * time.Millisecond, RetentionInterval: every,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if beforePass != nil {
		engine.BeforePass(k.Engine, beforePass)
	}
	if err := k.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	k.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := errors.Join(k.Stop(ctx), store.Close()); err != nil {
			w.t.Errorf("stop of replica %s: %v", id, err)
		}
	})
	w.t.Cleanup(k.stop)
	return k
}

// count reads a counter of the replica, summed over its labels.
func (k *keeper) count(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := k.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// pour appends n entries to a shard.
func (w *world) pour(shard, n int) {
	w.t.Helper()
	_, err := w.rdb.Pipelined(w.t.Context(), func(p redis.Pipeliner) error {
		for range n {
			p.XAdd(w.t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(w.prefix, shard), NoMkStream: true, Values: []string{"a", "b"}})
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) length(shard int) int64 {
	w.t.Helper()
	n, err := w.rdb.XLen(w.t.Context(), protocol.ShardKey(w.prefix, shard)).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) trimmed(shard int, group string) int64 {
	w.t.Helper()
	n, _ := strconv.ParseInt(w.control(shard)["trimmed:"+group], 10, 64)
	return n
}

// readAndAck reads up to n entries of a shard and acknowledges all but keep of them.
func (w *world) readAndAck(shard int, group string, n, keep int) {
	w.t.Helper()
	key := protocol.ShardKey(w.prefix, shard)
	res, err := w.rdb.XReadGroup(w.t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{key, ">"}, Count: int64(n), Block: -1}).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, m := range res[0].Messages[:len(res[0].Messages)-keep] {
		if err := w.rdb.XAck(w.t.Context(), key, group, m.ID).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) retain(e *engine.Engine, count int, r protocol.Retention) {
	w.t.Helper()
	if _, err := e.PutStream(w.t.Context(), w.prefix, protocol.StreamSpec{ShardCount: count, Retention: r}, mutation("PUT")); err != nil {
		w.t.Fatal(err)
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		k := w.keeper("a", 50*time.Millisecond, 300*time.Millisecond, nil)
		w.create(k.Engine, 3)
		if err := rdb.XGroupCreate(t.Context(), protocol.ShardKey(w.prefix, 1), "unmanaged", "0").Err(); err != nil {
			t.Fatal(err)
		}
		for shard := range 3 {
			w.pour(shard, 20)
			w.readAndAck(shard, "g", 10, 0)
		}
		w.readAndAck(1, "unmanaged", 8, 2)

		// Acknowledged by all: ten on shards 0 and 2, six on shard 1.
		w.retain(k.Engine, 3, protocol.Retention{Policy: protocol.RetentionAcked})
		w.eventually("the acknowledged entries go", 30*time.Second, func() (bool, string) {
			got := []int64{w.length(0), w.length(1), w.length(2)}
			return slices.Equal(got, []int64{10, 14, 10}), fmt.Sprint(got)
		})
		if n := k.count(t, "redis_stream_coord_retention_unacknowledged_total"); n != 0 {
			t.Errorf("ACKED took %v entries that were due", n)
		}

		// Too many, due or not; the counts say for whom.
		w.retain(k.Engine, 3, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 4})
		w.eventually("all shards are short", 30*time.Second, func() (bool, string) {
			got := []int64{w.length(0), w.length(1), w.length(2)}
			return slices.Equal(got, []int64{4, 4, 4}), fmt.Sprint(got)
		})
		report, err := k.Retention(t.Context(), w.prefix)
		if err != nil {
			t.Fatal(err)
		}
		// g had read ten of twenty everywhere: it misses six on each; on shard 1 the other group
		// had six acknowledged, so that it misses the next ten.
		if len(report.Groups) != 2 || report.Groups[0].Trimmed != 18 || !report.Groups[0].Managed || report.Groups[1].Group != "unmanaged" || report.Groups[1].Trimmed != 10 || len(report.Groups[0].Shards) != 3 {
			t.Fatalf("%+v", report)
		}
		w.eventually("the metrics have it", 30*time.Second, func() (bool, string) {
			removed, due := k.count(t, "redis_stream_coord_retention_trimmed_total"), k.count(t, "redis_stream_coord_retention_unacknowledged_total")
			return removed == 10+6+10+6+10+6 && due == 28, fmt.Sprint(removed, due)
		})

		// By age, then not at all.
		w.retain(k.Engine, 3, protocol.Retention{Policy: protocol.RetentionMaxAge, MaxAgeMs: 1000})
		w.eventually("the old entries go", 30*time.Second, func() (bool, string) {
			got := w.length(0) + w.length(1) + w.length(2)
			return got == 0, fmt.Sprint(got)
		})
		w.retain(k.Engine, 3, protocol.Retention{})
		w.eventually("what had begun has ended", 30*time.Second, func() (bool, string) { // the change is in force one effect lease later at the latest
			s, err := k.Stream(t.Context(), w.prefix)
			return err == nil && s.Spec.Retention.Policy == protocol.RetentionNone, fmt.Sprintf("%+v, %v", s.Spec, err)
		})
		// The shards go on from where they were: a drain, and its evidence, see the counts.
		res, err := k.PutStream(t.Context(), w.prefix, spec(2), mutation("SCALE"))
		if err != nil {
			t.Fatal(err)
		}
		r := finish(t, k.Engine, w.prefix, res.ReshardingID)
		if r.Phase != protocol.PhaseCompleted {
			t.Fatalf("%s: %s, waiting for %v", r.Phase, r.Error, r.WaitingFor)
		}
		for _, shard := range r.Certificate.Shards {
			for _, g := range shard.Groups {
				if g.Trimmed == 0 || g.Pending != 0 {
					t.Errorf("the certificate says of shard %d %+v", shard.ShardIndex, g)
				}
			}
		}
		w.healthy(k.Engine, 2)
	})
}

// Nobody speaks to the coordinator: what is periodic goes on, whatever its interval is to the time
// for which the state counts as proven.
func TestIdleStreamIsLookedAfter(t *testing.T) {
	t.Parallel()
	const every = 1300 * time.Millisecond
	t.Run("sweep", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, redistest.Shared(t).Client(t))
		w.create(w.keeper("a", time.Hour, every, nil).Engine, 2)
		for i := range 2 {
			if err := w.rdb.HDel(t.Context(), protocol.ControlKey(w.prefix, 1), "epoch").Err(); err != nil {
				t.Fatal(err)
			}
			w.eventually("the sweep repairs", 30*time.Second, func() (bool, string) {
				c := w.control(1)
				return c["epoch"] != "", fmt.Sprintf("round %d: %v", i, c)
			})
		}
	})
	t.Run("retention", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, redistest.Shared(t).Client(t))
		k := w.keeper("a", every, time.Hour, nil)
		w.create(k.Engine, 2)
		w.retain(k.Engine, 2, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 1})
		for i := range 3 {
			w.pour(0, 5)
			w.eventually("retention is carried out", 30*time.Second, func() (bool, string) {
				n := w.length(0)
				return n == 1, fmt.Sprintf("round %d: %d entries", i, n)
			})
		}
	})
}

// A replica stands still between two slices while another one goes on, and comes back late; the
// load never ends. What went is counted exactly once.
func TestRetentionIsCountedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	frozen, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var slicesOfA int
	a := w.keeper("a", 50*time.Millisecond, time.Hour, func(p stream.Pass) {
		if p.Kind != stream.PassRetain {
			return
		}
		if slicesOfA++; slicesOfA == 3 {
			once.Do(func() { close(frozen) })
			<-release
		}
	})
	var letGo sync.Once
	defer letGo.Do(func() { close(release) })
	w.create(a.Engine, 1)
	w.pour(0, 4500)
	w.retain(a.Engine, 1, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 10})
	await(t, "the third slice of replica a", frozen)
	if n := w.length(0); n != 2500 {
		t.Fatalf("%d entries are left behind two slices", n)
	}
	b := w.keeper("b", 50*time.Millisecond, time.Hour, nil)
	w.eventually("replica b goes on", 30*time.Second, func() (bool, string) { n := w.length(0); return n == 10, fmt.Sprint(n) })
	letGo.Do(func() { close(release) })
	total := int64(4500)
	for range 20 {
		w.pour(0, 137)
		total += 137
		if _, err := b.Stream(t.Context(), w.prefix); err != nil {
			t.Fatal(err)
		}
	}
	a.stop() // between any two of its slices
	w.pour(0, 1500)
	total += 1500
	w.eventually("all is short", 30*time.Second, func() (bool, string) { n := w.length(0); return n == 10, fmt.Sprint(n) })
	if got := w.trimmed(0, "g"); got != total-10 {
		t.Errorf("%d entries went before g had them, %d are counted", total-10, got)
	}
}

// While a change runs nothing is trimmed: the evidence of a drain is about all that there was.
func TestNoRetentionWhileAChangeRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	k := w.keeper("a", 20*time.Millisecond, 300*time.Millisecond, nil)
	w.create(k.Engine, 2)
	w.pour(0, 50)
	res, err := k.PutStream(t.Context(), w.prefix, protocol.StreamSpec{ShardCount: 3, Retention: protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 5}}, mutation("SCALE"))
	if err != nil {
		t.Fatal(err)
	}
	w.eventually("the drain waits", 30*time.Second, func() (bool, string) {
		r, err := k.Resharding(t.Context(), w.prefix, res.ReshardingID, "", 0)
		return err == nil && r.Phase == protocol.PhaseDraining && len(r.WaitingFor) > 0, fmt.Sprintf("%s %v %v", r.Phase, r.WaitingFor, err)
	})
	// The same script, sent by a replica that has not heard of the change, does nothing either.
	args := shardscript.Arguments{Revision: 1 << 50, ID: "retention", NotAfter: 1 << 52, Epoch: 1, Count: 2, Policy: "MAX_LEN", MaxLen: 5}.Args()
	reply, err := shardscript.ParseReply(w.run(shardscript.Retain, 0, args...))
	if err != nil || reply.Code != shardscript.NotFenced || w.length(0) != 50 {
		t.Fatalf("%+v, %v, %d entries", reply, err, w.length(0))
	}
	w.readAndAck(0, "g", 50, 0)
	if r := finish(t, k.Engine, w.prefix, res.ReshardingID); r.Phase != protocol.PhaseCompleted {
		t.Fatalf("%s: %s", r.Phase, r.Error)
	}
	w.eventually("then it is", 30*time.Second, func() (bool, string) { n := w.length(0); return n == 5, fmt.Sprint(n) })
}

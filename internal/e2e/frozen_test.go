package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// TestFrozenProducer: a producer is stopped with SIGSTOP while one batch is on its way to Redis and
// more entries are queued. The layout changes, shards are retired; the batch reaches Redis; the
// producer goes on. Nothing lands under the old routing: every entry arrives on the shard that the
// new layout gives its key, once, with the event id that it had.
func TestFrozenProducer(t *testing.T) {
	t.Parallel()
	for _, counts := range [][]int64{{3, 5}, {5, 2}, {3, 5, 2}} {
		t.Run(strings.Trim(strings.ReplaceAll(fmt.Sprint(counts), " ", "-"), "[]"), func(t *testing.T) {
			t.Parallel()
			frozenProducer(t, counts)
		})
	}
}

func frozenProducer(t *testing.T, counts []int64) {
	const entries = 60
	redis := redistest.Shared(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	url := startServer(t, redis.URL(), keyPrefix).URL()
	c := connect(t, url)
	declare(t, c, prefix, counts[0], protocol.ReshardingPolicy{})
	way := redistest.StartProxy(t, redis.Addr)
	held := make(chan struct{}) // closed: batches go on
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	var waiting atomic.Int64
	way.Watch(func(cmd redistest.Command) redistest.Verdict {
		if isScript(cmd, shardscript.Append) {
			waiting.Add(1)
			<-held
		}
		return redistest.Forward
	})
	w := startWorker(t, workerSettings{Kind: "producer", Coordinator: url, Redis: way.Addr, Prefix: prefix, Name: "p", MaxBatch: 4})
	w.await("a layout", func() bool { return slices.Contains(w.since(0), "ready") })
	for i := range entries {
		w.tell("key-" + strconv.Itoa(i))
	}
	w.await("a batch on its way and a full queue", func() bool { return waiting.Load() > 0 && len(w.said(0, "accepted")) == entries })
	w.freeze()
	for _, n := range counts[1:] {
		declare(t, c, prefix, n, protocol.ReshardingPolicy{})
	}
	release()
	w.thaw()
	w.await("the outcome of every append", func() bool { return len(w.said(0, "result")) == entries })

	last := int(counts[len(counts)-1])
	rdb := redis.Client(t)
	at := map[string]string{} // event id → shard/id
	total := 0
	for i := range int(slices.Max(counts)) {
		list, err := rdb.XRange(t.Context(), protocol.ShardKey(prefix, i), "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		total += len(list)
		for _, e := range list {
			key, _ := e.Values["key"].(string)
			event, _ := e.Values["event"].(string)
			if want, _ := protocol.ShardIndex([]byte(key), last); want != i {
				t.Errorf("%s landed on shard %d; %d shards give it %d", key, i, last, want)
			}
			at[event] = fmt.Sprint(i, "/", e.ID)
		}
	}
	if total != entries || len(at) != entries {
		t.Errorf("%d entries with %d event ids, want %d", total, len(at), entries)
	}
	for _, r := range w.said(0, "result") {
		if r[4] != "<nil>" || at[r[3]] != r[1]+"/"+r[2] {
			t.Errorf("append of %s: shard %s, id %s, event %s, error %v; the event stands at %q", r[0], r[1], r[2], r[3], r[4:], at[r[3]])
		}
	}
}

// TestFrozenConsumer: a consumer is stopped with SIGSTOP with entries that it has read and not
// acknowledged, and goes on after the layout has changed. What it had is handled by the new owner.
// It acknowledges nothing of it and hands nothing of it to its handler.
func TestFrozenConsumer(t *testing.T) {
	t.Parallel()
	t.Run("quiesced-5-2", func(t *testing.T) { t.Parallel(); frozenConsumer(t, 5, 2, protocol.StrategyQuiesce) })
	t.Run("online-2-4", func(t *testing.T) { t.Parallel(); frozenConsumer(t, 2, 4, protocol.StrategyOnline) })
}

func frozenConsumer(t *testing.T, from, to int, strategy protocol.Strategy) {
	const entries = 100
	redisServer := redistest.Shared(t)
	rdb := redisServer.Client(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	url := startServer(t, redisServer.URL(), keyPrefix).URL()
	c := connect(t, url)
	declare(t, c, prefix, int64(from), protocol.ReshardingPolicy{})
	putGroup(t, c, prefix, "g", protocol.GroupSpec{MemberLeaseMs: 2000, HeartbeatIntervalMs: 400})
	p, err := producer.New(producer.Config{Client: c, Redis: rdb, StreamPrefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p.Start()
	appendAll := func(what string) map[string]bool {
		ids := map[string]bool{}
		for i := range entries {
			r, err := p.Append(t.Context(), what+strconv.Itoa(i), producer.Fields{"k", "v"})
			if err != nil {
				t.Fatal(err)
			}
			ids[fmt.Sprint(r.Shard, "/", r.ID)] = true
		}
		return ids
	}
	old := appendAll("old-")
	w := startWorker(t, workerSettings{Kind: "consumer", Coordinator: url, Redis: redisServer.Addr, Prefix: prefix, Group: "g", Name: "frozen", HandlingMs: 25})
	w.await("entries that are read and not acknowledged", func() bool { return len(w.said(0, "end")) >= from && len(pendingOf(t, rdb, prefix, from)) > entries/4 })
	w.freeze()
	pending := pendingOf(t, rdb, prefix, from) // shard/id → consumer name
	until := w.count()

	// The other one. Online, it holds on to the first entry that it is given of each shard, so that an
	// acknowledgement by the frozen one would be seen.
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	var mu sync.Mutex
	handled := map[string]int{}
	stuck := map[int]string{} // shard → shard/id
	other, err := consumer.New(consumer.Config{
		Client: c, Redis: rdb, StreamPrefix: prefix, Group: "g", MemberID: "other", Logger: slog.New(slog.DiscardHandler),
		Handler: func(_ context.Context, d consumer.Delivery) error {
			id := fmt.Sprint(d.Shard, "/", d.ID)
			mu.Lock()
			handled[id]++
			wait := strategy == protocol.StrategyOnline && old[id] && stuck[d.Shard] == ""
			if wait {
				stuck[d.Shard] = id
			}
			mu.Unlock()
			if wait {
				<-hold
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := other.Run(running); err != nil {
			t.Errorf("the other consumer: %v", err)
		}
	})
	defer func() { release(); stop(); ended.Wait() }()
	res := declare(t, c, prefix, int64(to), protocol.ReshardingPolicy{Strategy: strategy})
	if strategy == protocol.StrategyOnline {
		if err := waitFor(t.Context(), time.Minute, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if len(stuck) < from {
				return fmt.Errorf("the other owner has begun on shards %v: %w", stuck, errNotYet)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}

	woken := w.count()
	if woken != until {
		t.Errorf("it said %q while it was frozen", w.since(until))
	}
	before := pendingOf(t, rdb, prefix, from)
	w.thaw()
	w.await("the end of what it owned", func() bool { return len(w.said(woken, "cut")) >= from })
	after := pendingOf(t, rdb, prefix, from)
	for _, id := range stuck {
		if after[id] == "" || after[id] != before[id] || !strings.HasPrefix(after[id], "other~") {
			t.Errorf("entry %s, which the new owner is at work on, was pending at %q and is at %q", id, before[id], after[id])
		}
	}
	release()

	fresh := appendAll("new-")
	if err := waitFor(t.Context(), time.Minute, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		left := map[string]bool{}
		for id := range fresh {
			left[id] = true
		}
		for id := range pending {
			left[id] = true
		}
		for id := range handled {
			delete(left, id)
		}
		for _, e := range w.said(woken, "end") {
			delete(left, e[0]+"/"+e[2])
		}
		if len(left) > 0 {
			return fmt.Errorf("%d entries are not handled: %w", len(left), errNotYet)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	for _, b := range w.said(woken, "begin") {
		if id := b[0] + "/" + b[2]; old[id] {
			t.Errorf("it handed %s to its handler after it woke", id)
		}
	}
	for id := range pending {
		if handled[id] != 1 {
			t.Errorf("entry %s, pending when it was frozen, was handled %d times by the new owner", id, handled[id])
		}
	}
	for _, e := range w.said(0, "end") { // what it had handled and acknowledged before
		if id := e[0] + "/" + e[2]; old[id] && pending[id] == "" && handled[id] > 0 {
			t.Errorf("entry %s was acknowledged, and handled by the new owner", id)
		}
	}
	mu.Unlock()
	if err := waitFor(t.Context(), time.Minute, func(context.Context) error {
		if left := pendingOf(t, rdb, prefix, to); len(left) > 0 {
			return fmt.Errorf("pending: %v: %w", left, errNotYet)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	checkShards(t, rdb, prefix, to, max(from, to))
	if res.Strategy == protocol.StrategyQuiesce {
		checkCertificate(t, *res)
	}
	closing, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Close(closing); err != nil {
		t.Error(err)
	}
}

// pendingOf is what group g has read and not acknowledged: "shard/id" → name of the consumer.
func pendingOf(t *testing.T, rdb *redis.Client, prefix string, shards int) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i := range shards {
		list, err := rdb.XPendingExt(t.Context(), &redis.XPendingExtArgs{Stream: protocol.ShardKey(prefix, i), Group: "g", Start: "-", End: "+", Count: 10_000}).Result()
		if err != nil && !redis.HasErrorPrefix(err, "NOGROUP") {
			t.Fatalf("pending entries of shard %d: %v", i, err)
		}
		for _, p := range list {
			all[fmt.Sprint(i, "/", p.ID)] = p.Consumer
		}
	}
	return all
}

// TestFrozenCoordinator: a replica is stopped with SIGSTOP, once at rest and once in the middle of the
// change that it runs. Another one completes 5 → 2, and the effect lease passes. Requests wait at the socket of the frozen one
// when it goes on: neither these nor later ones are answered with the old routing, and the retired
// shards stay retired.
func TestFrozenCoordinator(t *testing.T) {
	t.Parallel()
	for _, at := range []protocol.Phase{"", protocol.PhaseDraining} {
		name := "at-rest"
		if at != "" {
			name = "in-" + string(at)
		}
		t.Run(name, func(t *testing.T) { t.Parallel(); frozenCoordinator(t, at) })
	}
}

func frozenCoordinator(t *testing.T, at protocol.Phase) {
	const from, to = 5, 2
	redisServer := redistest.Start(t)
	rdb := redisServer.Client(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	frozen := startCoordinator(t, redisServer.URL(), keyPrefix, "")
	a := connect(t, frozen.url())
	declare(t, a, prefix, from, protocol.ReshardingPolicy{})
	b := connect(t, startServer(t, redisServer.URL(), keyPrefix).URL())
	if r, err := a.Routing(t.Context(), prefix, client.RoutingQuery{Fenced: true}); err != nil || r.ShardCount != from {
		t.Fatalf("routing before: %+v, %v", r, err)
	}
	target := int64(to)
	asked := b
	if at != "" { // a group that nobody reads keeps the change where it is
		asked = a
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(prefix, 0), Values: []string{"k", "v"}}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.XGroupCreate(t.Context(), protocol.ShardKey(prefix, 0), "nobody", "0").Err(); err != nil {
			t.Fatal(err)
		}
		put, err := a.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &target}, client.Call{})
		if err != nil {
			t.Fatal(err)
		}
		if err := waitFor(t.Context(), time.Minute, func(ctx context.Context) error {
			r, err := a.Resharding(ctx, prefix, put.ReshardingID, "", 0)
			if err == nil && r.Phase != at {
				err = fmt.Errorf("%s: %w", r.Phase, errNotYet)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := frozen.proc.Freeze(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	// Requests of several kinds wait at its socket.
	type answer struct {
		count int
		err   error
	}
	answers := make(chan answer, 64)
	var asking sync.WaitGroup
	for i := range 12 {
		asking.Go(func() {
			patient, err := client.New(client.Config{Endpoints: []string{frozen.url()}, Username: username, Password: password, CallTimeout: time.Minute, Retries: -1})
			if err != nil {
				answers <- answer{err: err}
				return
			}
			defer patient.Close()
			if i%2 == 0 {
				r, err := patient.Routing(t.Context(), prefix, client.RoutingQuery{Fenced: true, Once: true, ProducerID: fmt.Sprint("p", i)})
				answers <- answer{r.ShardCount, err}
				return
			}
			s, err := patient.Stream(t.Context(), prefix)
			answers <- answer{s.Status.ShardCount, err}
		})
	}
	switch asked {
	case b:
		declare(t, b, prefix, to, protocol.ReshardingPolicy{})
	default:
		if err := rdb.XGroupDestroy(t.Context(), protocol.ShardKey(prefix, 0), "nobody").Err(); err != nil {
			t.Fatal(err)
		}
		list, err := b.Reshardings(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		if r := follow(t, b, prefix, list.Reshardings[0].ReshardingID, time.Minute); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("the other replica ended the change as %s: %s", r.Phase, r.Error)
		}
	}
	// What it has checked within the effect lease of 2 s it may still say.
	_ = pause(t.Context(), 3*time.Second-time.Since(stopped))
	if err := frozen.proc.Thaw(); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	close(answers)
	for one := range answers {
		if one.err == nil && one.count != to {
			t.Errorf("a request that waited was answered with %d shards", one.count)
		}
	}
	// It is in order again, and its sweep has looked at every shard.
	swept := rdb.HGet(t.Context(), protocol.ControlKey(prefix, 0), "rev").Val()
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); {
		r, err := a.Routing(t.Context(), prefix, client.RoutingQuery{Fenced: true, Version: 0, Once: true})
		if err == nil && r.ShardCount != to {
			t.Fatalf("it serves %d shards at layout epoch %d", r.ShardCount, r.LayoutEpoch)
		}
		for i := to; i < from; i++ {
			if n, err := rdb.Exists(t.Context(), protocol.ShardKey(prefix, i)).Result(); err != nil || n != 0 {
				t.Fatalf("retired shard %d is there again: %d, %v", i, n, err)
			}
		}
		_ = pause(t.Context(), 100*time.Millisecond)
	}
	if r, err := a.Routing(t.Context(), prefix, client.RoutingQuery{Fenced: true}); err != nil || r.ShardCount != to {
		t.Errorf("routing of the thawed replica at last: %+v, %v (shard 0 at revision %s)", r, err, swept)
	}
	list, err := a.Reshardings(t.Context(), prefix)
	if err != nil || len(list.Reshardings) != 2 {
		t.Errorf("reshardings on record: %+v, %v; want the creation and the change", list.Reshardings, err)
	}
	checkShards(t, rdb, prefix, to, from)
}

package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap/zaptest"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

func preview(t *testing.T, e *engine.Engine, prefix string, s protocol.StreamSpec, ifMatch int64) protocol.Preview {
	t.Helper()
	p, err := e.PreviewStream(t.Context(), prefix, s, ifMatch)
	if err != nil {
		t.Fatalf("preview of %d shards: %v", s.ShardCount, err)
	}
	return p
}

func noteCodes(notes []protocol.PreviewNote) (codes []string) {
	for _, n := range notes {
		codes = append(codes, n.Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

func groupIn(t *testing.T, p protocol.Preview, name string) protocol.PreviewGroup {
	t.Helper()
	i := slices.IndexFunc(p.Groups, func(g protocol.PreviewGroup) bool { return g.Group == name })
	if i < 0 {
		t.Fatalf("the preview has no group %s: %+v", name, p.Groups)
	}
	return p.Groups[i]
}

// fill appends n entries to every shard.
func (w *world) fill(e *engine.Engine, n int) {
	w.t.Helper()
	epoch, count := w.layout(e)
	for shard := range count {
		for range n {
			if reply, id := w.append(shard, epoch, count); id == "" {
				w.t.Fatalf("append to shard %d: %+v", shard, reply)
			}
		}
	}
}

// work acknowledges one entry of group g after the other on every shard, until it is stopped.
func (w *world) work(count int) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			for shard := range count {
				key := protocol.ShardKey(w.prefix, shard)
				res, err := w.rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{key, ">"}, Count: 1, Block: -1}).Result()
				if err != nil {
					continue
				}
				w.rdb.XAck(ctx, key, "g", res[0].Messages[0].ID)
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

// keepAlive joins a member of a group and renews it until the test ends.
func (w *world) keepAlive(e *engine.Engine, group, id string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	joined := make(chan struct{})
	go func() {
		defer close(done)
		m := &member{e: e, prefix: w.prefix, group: group, id: id}
		told := sync.OnceFunc(func() { close(joined) })
		for ctx.Err() == nil {
			if resp := m.beat(ctx, 100*time.Millisecond); resp.Status == protocol.StatusOK {
				told()
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
	await(w.t, "member "+id, joined)
}

func TestPreviewOfALiveStream(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 4)
		if _, _, err := e.PutGroup(t.Context(), w.prefix, "idle", quick, mutation("PUT_GROUP")); err != nil {
			t.Fatal(err)
		}
		w.keepAlive(e, "g", "m1")
		w.keepAlive(e, "g", "m2")
		for shard := range 4 {
			for _, name := range []string{"stray", "old"} {
				if err := rdb.XGroupCreate(t.Context(), protocol.ShardKey(w.prefix, shard), name, "0").Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.fill(e, 600)
		w.work(4)
		for _, id := range []string{"p2", "p1"} {
			if _, err := e.Routing(t.Context(), w.prefix, 0, 0, id, true); err != nil {
				t.Fatal(err)
			}
		}
		s := spec(2)
		s.Resharding.IgnoreGroups = []string{"old"}
		p := preview(t, e, w.prefix, s, 0)
		if p.Action != protocol.PreviewReshard || p.FromShardCount != 4 || p.ToShardCount != 2 || !slices.Equal(p.ShardsRemoved, []int{2, 3}) ||
			len(p.ShardsAdded) != 0 || p.MovedFraction != 0.5 || p.Barrier != "XSETID" || len(p.Blockers) != 0 {
			t.Errorf("got %+v", p)
		}
		if !p.Publishing.Paused || p.Publishing.EstimateMs != nil || p.Publishing.LimitMs != 300_000 || !slices.Equal(p.Publishing.Producers, []string{"p1", "p2"}) {
			t.Errorf("publishing: %+v", p.Publishing)
		}
		g := groupIn(t, p, "g")
		if !g.Managed || g.LiveMembers != 2 || !slices.Equal(g.AffectedMembers, []string{"m1", "m2"}) || g.RatePerSecond == nil || *g.RatePerSecond <= 0 || g.DrainEstimateMs == nil {
			t.Errorf("g: %+v", g)
		} else if want := float64(g.Pending+g.Undelivered) / *g.RatePerSecond * 1000; float64(*g.DrainEstimateMs) < want*0.9 || float64(*g.DrainEstimateMs) > want*2 { // the slowest shard counts
			t.Errorf("g drains in %d ms, want about %.0f: %+v", *g.DrainEstimateMs, want, g)
		}
		if g := groupIn(t, p, "idle"); !g.Managed || g.LiveMembers != 0 || g.Undelivered != 2400 || g.UndeliveredMore || g.Pending != 0 || g.DrainEstimateMs != nil || g.RatePerSecond != nil {
			t.Errorf("idle: %+v", g)
		}
		if g := groupIn(t, p, "stray"); g.Managed || g.Ignored || g.Undelivered != 2400 || g.DrainEstimateMs != nil {
			t.Errorf("stray: %+v", g)
		}
		if g := groupIn(t, p, "old"); !g.Ignored || g.Undelivered != 2400 || g.DrainEstimateMs == nil || *g.DrainEstimateMs != 0 {
			t.Errorf("old: %+v", g)
		}
		want := []string{protocol.NoteEntriesDeleted, protocol.NoteGroupWithoutMembers, protocol.NoteIgnoredBacklog, protocol.NoteUnmanagedGroup}
		slices.Sort(want)
		if got := noteCodes(p.Risks); !slices.Equal(got, want) {
			t.Errorf("risks %v, want %v", got, want)
		}
		if len(p.Unknown) != 2 {
			t.Errorf("unknown: %q", p.Unknown)
		}
	})
}

// everything is a dump of every key of the stream and of the coordinator, but for those that live by themselves.
func (w *world) everything() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	collect := func(ctx context.Context, c *redis.Client) error {
		for _, pattern := range []string{"*" + w.prefix + "*", w.keys + "*"} {
			keys, err := c.Keys(ctx, pattern).Result()
			if err != nil {
				return err
			}
			for _, key := range keys {
				if strings.HasSuffix(key, ":ticker") {
					continue
				}
				dump, err := w.rdb.Dump(ctx, key).Result()
				if err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
				ttl := w.rdb.PTTL(ctx, key).Val()
				all[key] = fmt.Sprintf("%x expires %v", dump, ttl > 0)
			}
		}
		return nil
	}
	var err error
	var mu sync.Mutex
	if c, ok := w.rdb.(*redis.ClusterClient); ok {
		err = c.ForEachMaster(w.t.Context(), func(ctx context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return collect(ctx, c)
		})
	} else {
		err = collect(w.t.Context(), w.rdb.(*redis.Client))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// A dry run leaves every byte in Redis as it was: state, audit, shards, control hashes, groups.
func TestPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, _, _ := w.start("a")
		w.create(e, 3)
		w.fill(e, 5)
		read := func(shard int) {
			if err := rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{protocol.ShardKey(w.prefix, shard), ">"}, Count: 2, Block: -1}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		read(0)
		before := w.everything()
		if len(before) < 8 {
			t.Fatalf("there is little to compare: %d keys", len(before))
		}
		online := spec(5)
		online.Resharding.Strategy = protocol.StrategyOnline
		kept := spec(3)
		kept.Retention = protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 5}
		for _, s := range []protocol.StreamSpec{spec(1), spec(0), spec(8), spec(3), kept, online} {
			preview(t, e, w.prefix, s, 0)
			preview(t, e, w.prefix, s, 99)
		}
		preview(t, e, w.prefix+"-other", spec(4), 0) // a stream that is not
		after := w.everything()
		for key, dump := range before {
			if after[key] != dump {
				t.Errorf("%s was\n%s and is\n%s", key, dump, after[key])
			}
		}
		for key := range after {
			if _, there := before[key]; !there {
				t.Errorf("%s was made", key)
			}
		}
	})
}

// What is in the way of new shards, and what is wrong with present ones, is said beforehand.
func TestPreviewFindsWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	backends(t, func(t *testing.T, rdb redis.UniversalClient) {
		w := newWorld(t, rdb)
		e, g, _ := w.start("a")
		w.create(e, 3)
		key := func(i int) string { return protocol.ShardKey(w.prefix, i) }
		blocked := func(s protocol.StreamSpec, code string, says ...string) {
			t.Helper()
			p := preview(t, e, w.prefix, s, 0)
			if got := noteCodes(p.Blockers); !slices.Equal(got, []string{code}) {
				t.Errorf("%d shards: blockers %+v, want %s", s.ShardCount, p.Blockers, code)
				return
			}
			for _, text := range says {
				if !strings.Contains(p.Blockers[0].Message, text) {
					t.Errorf("%d shards: %q lacks %q", s.ShardCount, p.Blockers[0].Message, text)
				}
			}
		}
		if p := preview(t, e, w.prefix, spec(5), 0); len(p.Blockers) != 0 || p.Publishing.EstimateMs == nil || *p.Publishing.EstimateMs > 60_000 {
			t.Errorf("nothing is in the way yet: %+v", p)
		}
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key(3), Values: []string{"a", "b"}}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.Set(t.Context(), key(4), "text", 0).Err(); err != nil {
			t.Fatal(err)
		}
		blocked(spec(5), string(protocol.CodeForeignKeys), key(3), key(4)+" exists and is no stream")
		remove := func(key string) {
			t.Helper()
			if err := rdb.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
		remove(key(3))
		remove(key(4))
		w.eventually("the sweep has seen that it is gone", 20*time.Second, func() (bool, string) {
			p := preview(t, e, w.prefix, spec(5), 0)
			return len(p.Blockers) == 0, fmt.Sprint(p.Blockers)
		})

		// A change to 4 that is running: attach, cancel, or wait.
		stopped := g.at(protocol.PhaseSealing)
		id := w.scale(e, 4, quiesce)
		await(t, "SEALING", stopped)
		if p := preview(t, e, w.prefix, protocol.StreamSpec{ShardCount: 4, Resharding: quiesce}, 0); p.Action != protocol.PreviewAttach || p.ReshardingID != id || len(p.Blockers) != 0 || !slices.Equal(p.ShardsAdded, []int{3}) || !p.Publishing.Paused {
			t.Errorf("attach: %+v", p)
		}
		if p := preview(t, e, w.prefix, protocol.StreamSpec{ShardCount: 3, Resharding: quiesce}, 0); p.Action != protocol.PreviewCancel || p.ReshardingID != id || len(p.Blockers) != 0 || len(p.ShardsAdded) != 0 || p.Publishing.Paused {
			t.Errorf("cancel: %+v", p)
		}
		blocked(spec(6), string(protocol.CodeActiveMigration), id)
		g.release()
		if r := finish(t, e, w.prefix, id); r.Phase != protocol.PhaseCompleted {
			t.Fatalf("%+v", r)
		}

		// A shard of the present layout is gone, and the sweep is held up.
		stopped = g.at(protocol.PhaseOpening)
		remove(key(1))
		p := preview(t, e, w.prefix, spec(5), 0)
		if p.Action == protocol.PreviewReshard && !slices.Contains(noteCodes(p.Blockers), protocol.NoteShardMissing) {
			t.Errorf("shard 1 is gone: %+v", p.Blockers)
		}
		await(t, "the repair", stopped)
		g.release()
	})
}

// Without the right to XSETID the preview names the barrier and what it does not hold back.
func TestPreviewWithoutXSetID(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if err := server.Client(t).Do(t.Context(), "ACL", "SETUSER", "plain", "on", ">pw", "~*", "&*", "+@all", "-xsetid").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "plain", Password: "pw"})
	t.Cleanup(func() { _ = rdb.Close() })
	w := newWorld(t, rdb)
	e, _, _ := w.start("a")
	w.create(e, 2)
	if p := preview(t, e, w.prefix, spec(4), 0); p.Barrier != "LEASE" || !slices.Contains(noteCodes(p.Risks), protocol.NoteLeaseBarrier) {
		t.Errorf("got %s, %+v", p.Barrier, p.Risks)
	}
	online := spec(4)
	online.Resharding.Strategy = protocol.StrategyOnline
	if p := preview(t, e, w.prefix, online, 0); p.Barrier != "NONE" || slices.Contains(noteCodes(p.Risks), protocol.NoteLeaseBarrier) {
		t.Errorf("ONLINE seals nothing here: %s, %+v", p.Barrier, p.Risks)
	}
}

// A shard whose newest entry has the highest id cannot be opened again. That hinders no change,
// and one that removes the shard helps.
func TestPreviewOfAnExhaustedShard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	e, _, _ := w.start("a")
	w.create(e, 3)
	w.keepAlive(e, "g", "m")
	key := protocol.ShardKey(w.prefix, 2)
	if err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, ID: "18446744073709551615-18446744073709551615", Values: []string{"a", "b"}}).Err(); err != nil {
		t.Fatal(err)
	}
	w.work(3)
	if p := preview(t, e, w.prefix, spec(4), 0); !slices.Contains(noteCodes(p.Risks), protocol.NoteShardExhausted) && p.Action == protocol.PreviewReshard {
		t.Errorf("4 shards: %+v", p.Risks)
	}
	w.eventually("a repair has run", 20*time.Second, func() (bool, string) {
		s, err := e.Stream(t.Context(), w.prefix)
		return err == nil && s.Status.ActiveReshardingID == "" && s.Status.LastReshardingID != "", fmt.Sprint(s.Status, err)
	})
	p := preview(t, e, w.prefix, spec(4), 0)
	if !slices.Contains(noteCodes(p.Risks), protocol.NoteShardExhausted) || len(p.Blockers) != 0 {
		t.Errorf("4 shards: %+v, %+v", p.Risks, p.Blockers)
	}
	put(t, e, w.prefix, spec(4)) // it works, as the preview says
	if p := preview(t, e, w.prefix, spec(2), 0); slices.Contains(noteCodes(p.Risks), protocol.NoteShardExhausted) {
		t.Errorf("2 shards: %+v", p.Risks)
	}
	put(t, e, w.prefix, spec(2))
}

// Many previews of a stream of a thousand shards hold nothing up.
func TestManyPreviews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, redistest.Shared(t).Client(t))
	e, _, _ := w.start("a")
	w.create(e, 1000)
	started := time.Now()
	preview(t, e, w.prefix, spec(500), 0)
	t.Logf("one preview of 1,000 shards took %s", time.Since(started))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	started = time.Now()
	for range 12 {
		wg.Go(func() {
			if p, err := e.PreviewStream(ctx, w.prefix, spec(500), 0); err != nil || len(p.ShardsRemoved) != 500 || len(p.Unknown) != 0 {
				t.Errorf("got %d removed, unknown %q, %v", len(p.ShardsRemoved), p.Unknown, err)
			}
		})
	}
	wg.Wait()
	t.Logf("twelve at once took %s", time.Since(started))
}

// probed hears of the first PROBE that was answered.
type probed struct {
	once sync.Once
	done chan struct{}
}

func (p *probed) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *probed) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *probed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" && args[1] == scripts[shardscript.Probe].Hash() && cmd.Err() == nil {
				p.once.Do(func() { close(p.done) })
			}
		}
		return err
	}
}

// A preview ends with its caller, also while it watches acknowledgements.
func TestPreviewEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	rdb := redistest.Shared(t).Client(t)
	watching := &probed{done: make(chan struct{})}
	rdb.AddHook(watching)
	log := zaptest.NewLogger(t)
	keys, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	store, err := redisstore.New(redisstore.Config{Client: rdb, KeyPrefix: keys, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{Store: store, CoordinatorID: "a", Logger: log, ObservationWindow: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		_ = store.Close()
	})
	w := &world{t: t, rdb: rdb, keys: keys, prefix: prefix}
	w.create(e, 1)
	w.fill(e, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := e.PreviewStream(ctx, prefix, spec(2), 0)
		done <- err
	}()
	await(t, "the first look at the shards", watching.done)
	w.eventually("the end of the first look", 30*time.Second, func() (bool, string) { return engine.Probing(e) == 0, "" })
	cancel()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a preview was made although its caller had left")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the preview goes on though its caller has left")
	}
	// A deadline shortens the watching.
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if p, err := e.PreviewStream(ctx, prefix, spec(2), 0); err != nil || len(p.Unknown) == 0 {
		t.Errorf("with a deadline: %+v, %v", p.Unknown, err)
	}
}

// What a preview says is what then happens, for random streams.
func TestPreviewSaysWhatHappens(t *testing.T) {
	t.Parallel()
	for i := range 16 {
		seed := uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, redistest.Shared(t).Client(t))
			e, _, _ := w.start("a")
			previewAndDo(t, w, e, rand.New(rand.NewPCG(seed, 7)))
		})
	}
}

func previewAndDo(t *testing.T, w *world, e *engine.Engine, r *rand.Rand) {
	n, m := r.IntN(5), r.IntN(6)
	exists := r.IntN(6) > 0
	if exists {
		w.create(e, n)
		if n > 0 && r.IntN(3) == 0 {
			w.fill(e, 3)
			w.consume(e, "m")
		}
	} else {
		n = 0
	}
	foreign := r.IntN(4) == 0
	if foreign {
		at := n + r.IntN(2)
		if err := w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(w.prefix, at), Values: []string{"a", "b"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	s := spec(m)
	switch r.IntN(3) {
	case 0:
		s.Resharding.Strategy = protocol.StrategyOnline
	case 1:
		s.Resharding.DrainScope = protocol.DrainRemoved
	}
	ifMatch := int64(0)
	if r.IntN(5) == 0 {
		ifMatch = 77
	}
	p := preview(t, e, w.prefix, s, ifMatch)
	change := mutation("PUT")
	change.IfMatch = ifMatch
	res, err := e.PutStream(t.Context(), w.prefix, s, change)
	what := fmt.Sprintf("%d (exists %v, foreign %v) to %d, If-Match %d: preview %+v", n, exists, foreign, m, ifMatch, p)
	if err != nil {
		var refused *protocol.Error
		if !asRefusal(err, &refused) || len(p.Blockers) == 0 || p.Blockers[0].Code != string(refused.Code) {
			t.Fatalf("%s\nbut it was refused: %v", what, err)
		}
		return
	}
	for _, b := range p.Blockers {
		if b.Code == string(protocol.CodeGenerationMismatch) || b.Code == string(protocol.CodeActiveMigration) {
			t.Fatalf("%s\nbut it was accepted", what)
		}
	}
	action := protocol.PreviewNone
	switch {
	case res.Created:
		action = protocol.PreviewCreate
	case res.ReshardingID != "":
		action = protocol.PreviewReshard
	case res.Stream.Generation != p.Generation:
		action = protocol.PreviewUpdate
	}
	if p.Action != action {
		t.Fatalf("%s\nbut the action was %s", what, action)
	}
	if res.ReshardingID == "" {
		return
	}
	done := finish(t, e, w.prefix, res.ReshardingID)
	if completed := done.Phase == protocol.PhaseCompleted; completed != (len(p.Blockers) == 0) {
		t.Fatalf("%s\nbut it ended as %s: %s", what, done.Phase, done.Error)
	}
	if len(p.ShardsAdded) != max(done.ToShardCount-done.FromShardCount, 0) || len(p.ShardsRemoved) != max(done.FromShardCount-done.ToShardCount, 0) {
		t.Fatalf("%s\nbut it went from %d to %d", what, done.FromShardCount, done.ToShardCount)
	}
	if paused := done.PausedMs > 0; paused && !p.Publishing.Paused {
		t.Fatalf("%s\nbut publishing was paused for %d ms", what, done.PausedMs)
	}
}

func asRefusal(err error, to **protocol.Error) bool {
	refused, ok := err.(*protocol.Error) //nolint:errorlint // what the engine returns
	*to = refused
	return ok
}

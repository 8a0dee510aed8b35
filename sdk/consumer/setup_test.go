package consumer_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv("CONSUMER_PROCESS"); spec != "" {
		if err := runProcess(spec); err != nil {
			slog.Error("consumer process", "error", err)
			os.Exit(1)
		}
		return
	}
	code := redistest.Main(m)
	if code == 0 {
		if err := goleak.Find(
			goleak.IgnoreTopFunction("github.com/redisstream/terraform-provider-redisstream/internal/redistest.spawn.func1.1"), // keeps its thread
		); err != nil {
			slog.Error("goroutines are left", "error", err)
			code = 1
		}
	}
	os.Exit(code)
}

// bundle is a stream with its coordinator.
type bundle struct {
	t      testing.TB
	rdb    *redis.Client
	redis  *redistest.Server
	server *server.Server
	client *client.Client
	prefix string
}

func setup(t testing.TB, rs *redistest.Server, shards int64, policy protocol.ReshardingPolicy) *bundle {
	t.Helper()
	b := &bundle{t: t, redis: rs, rdb: rs.Client(t), prefix: redistest.Prefix(t)}
	b.startServer(redistest.KeyPrefix(t))
	if _, err := b.client.PutStream(t.Context(), b.prefix, protocol.PutStreamRequest{ShardCount: &shards, Resharding: policy}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	b.await("the stream to be open", func() (bool, any) {
		s, err := b.client.Stream(t.Context(), b.prefix)
		return err == nil && s.Status.ShardCount == int(shards) && s.Status.ActiveReshardingID == "", []any{s.Status, err}
	})
	return b
}

func (b *bundle) startServer(keyPrefix string) {
	b.t.Helper()
	s, err := server.New(server.Config{
		Listen: "127.0.0.1:0", RedisURL: b.redis.URL(), KeyPrefix: keyPrefix, InsecureAllowAnonymous: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := s.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.server = s
	b.t.Cleanup(b.stopServer)
	b.client, err = client.New(client.Config{Endpoints: []string{s.URL()}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.client.Close)
}

func (b *bundle) stopServer() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := b.server.Stop(ctx); err != nil {
		b.t.Logf("stop of the coordinator: %v", err)
	}
}

// group registers a group with short times.
func (b *bundle) group(name string, spec protocol.GroupSpec) {
	b.t.Helper()
	if spec.MemberLeaseMs == 0 {
		spec = protocol.GroupSpec{MemberLeaseMs: 3000, HeartbeatIntervalMs: 500, RebalanceTimeoutMs: 5000}
	}
	if _, err := b.client.PutGroup(b.t.Context(), b.prefix, name, protocol.PutGroupRequest{GroupSpec: spec}, client.Call{}); err != nil {
		b.t.Fatal(err)
	}
}

// add appends n entries with numbers from first to each shard.
func (b *bundle) add(shards, first, n int) {
	b.t.Helper()
	p := b.rdb.Pipeline()
	for s := range shards {
		for i := range n {
			p.XAdd(context.Background(), &redis.XAddArgs{
				Stream: protocol.ShardKey(b.prefix, s), NoMkStream: true, Values: []any{"n", first + i},
			})
		}
	}
	if _, err := p.Exec(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// pending counts the pending entries of a group over all shards.
func (b *bundle) pending(shards int, group string) (total int64) {
	b.t.Helper()
	for s := range shards {
		p, err := b.rdb.XPending(context.Background(), protocol.ShardKey(b.prefix, s), group).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		total += p.Count
	}
	return total
}

// journal records what handlers of any process do with entries.
type journal struct {
	mu      sync.Mutex
	t       testing.TB
	entries []entry
	active  map[int]string // shard -> who handles one of its entries now
}

type entry struct {
	who   string
	shard int
	n     int
	epoch int64
	again int64 // deliveries
}

func newJournal(t testing.TB) *journal { return &journal{t: t, active: map[int]string{}} }

// begin notes the begin of a handler, and that no other is at work on the shard.
func (j *journal) begin(who string, d consumer.Delivery) {
	n, err := strconv.Atoi(d.Text("n"))
	if err != nil {
		j.t.Errorf("entry %s of shard %d: %v", d.ID, d.Shard, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if other, ok := j.active[d.Shard]; ok {
		j.t.Errorf("%s handles entry %d of shard %d while %s is at work on it", who, n, d.Shard, other)
	}
	j.active[d.Shard] = who
	j.entries = append(j.entries, entry{who, d.Shard, n, d.OwnershipEpoch, d.Deliveries})
}

func (j *journal) end(d consumer.Delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.active, d.Shard)
}

func (j *journal) list() []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// distinct is how many different entries were handled.
func (j *journal) distinct() int {
	seen := map[[2]int]bool{}
	for _, e := range j.list() {
		seen[[2]int{e.shard, e.n}] = true
	}
	return len(seen)
}

// running is one consumer under test.
type running struct {
	t    testing.TB
	stop context.CancelFunc
	done chan error
	c    *consumer.Consumer
}

// run starts a consumer that notes what it does under the name who.
func (b *bundle) run(who string, j *journal, change func(*consumer.Config)) *running {
	b.t.Helper()
	cfg := consumer.Config{
		Client: b.client, Redis: b.rdb, StreamPrefix: b.prefix, Group: "g", MemberID: who, Block: time.Second,
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("who", who),
		Handler: func(_ context.Context, d consumer.Delivery) error {
			j.begin(who, d)
			j.end(d)
			return nil
		},
	}
	if change != nil {
		change(&cfg)
	}
	c, err := consumer.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{t: b.t, stop: stop, done: make(chan error, 1), c: c}
	go func() { r.done <- c.Run(ctx) }()
	b.t.Cleanup(func() {
		stop()
		select {
		case <-r.done:
		case <-time.After(20 * time.Second):
			b.t.Errorf("consumer %s does not stop", who)
		}
	})
	return r
}

// end stops the consumer and gives what Run returned.
func (r *running) end() error {
	r.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		r.done <- err // for the cleanup
		return err
	case <-time.After(20 * time.Second):
		r.t.Fatal("consumer does not stop")
		return nil
	}
}

// await polls until done says so, and shows what was seen last.
func (b *bundle) await(what string, done func() (bool, any)) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		ok, seen := done()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited for %s; last seen: %+v", what, seen)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

package producer_test

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

func TestMain(m *testing.M) {
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

func (b *bundle) producer(change func(*producer.Config)) *producer.Producer {
	b.t.Helper()
	cfg := producer.Config{
		Client: b.client, Redis: b.rdb, StreamPrefix: b.prefix, EventIDField: "event",
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	}
	if change != nil {
		change(&cfg)
	}
	p, err := producer.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	p.Start()
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
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

// entries reads all shards: by key, the numbers in the order of landing.
func (b *bundle) entries(shards int) map[string][]int {
	b.t.Helper()
	all := map[string][]int{}
	for s := range shards {
		list, err := b.rdb.XRange(context.Background(), protocol.ShardKey(b.prefix, s), "-", "+").Result()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range list {
			n, err := strconv.Atoi(e.Values["n"].(string))
			if err != nil {
				b.t.Fatal(err)
			}
			key := e.Values["key"].(string)
			all[key] = append(all[key], n)
			if want, _ := protocol.ShardIndex([]byte(key), shards); want != s {
				b.t.Errorf("key %s is in shard %d of %d", key, s, shards)
			}
		}
	}
	return all
}

func content(key string, n int) producer.Fields {
	return producer.Fields{"key", key, "n", strconv.Itoa(n)}
}

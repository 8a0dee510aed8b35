package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	c, err := client.New(client.Config{Endpoints: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	good := consumer.Config{
		Client: c, Redis: rdb, StreamPrefix: "orders", Group: "g",
		Handler: func(context.Context, consumer.Delivery) error { return nil },
	}
	for field, change := range map[string]func(*consumer.Config){
		"Client":       func(c *consumer.Config) { c.Client = nil },
		"Redis":        func(c *consumer.Config) { c.Redis = nil },
		"StreamPrefix": func(c *consumer.Config) { c.StreamPrefix = "a/b" },
		"Group":        func(c *consumer.Config) { c.Group = "" },
		"Handler":      func(c *consumer.Config) { c.Handler = nil },
		"BatchHandler": func(c *consumer.Config) {
			c.BatchHandler = func(context.Context, []consumer.Delivery) error { return nil }
		},
		"MemberID":      func(c *consumer.Config) { c.Static = true },
		"Concurrency":   func(c *consumer.Config) { c.Concurrency = -1 },
		"BatchSize":     func(c *consumer.Config) { c.BatchSize = 5000 },
		"Block":         func(c *consumer.Config) { c.Block = time.Minute },
		"DrainTimeout":  func(c *consumer.Config) { c.DrainTimeout = -1 },
		"MinBackoff":    func(c *consumer.Config) { c.MinBackoff = time.Minute; c.MaxBackoff = time.Second },
		"MaxDeliveries": func(c *consumer.Config) { c.MaxDeliveries = 3 },
	} {
		cfg := good
		change(&cfg)
		if _, err := consumer.New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
	if _, err := consumer.New(good); err != nil {
		t.Error(err)
	}
}

func TestConsume(t *testing.T) {
	t.Parallel()
	const shards, each = 4, 300
	b := setup(t, redistest.Shared(t), shards, protocol.ReshardingPolicy{})
	b.group("g", protocol.GroupSpec{})
	b.add(shards, 0, each)
	j := newJournal(t)
	r := b.run("a", j, func(c *consumer.Config) { c.Concurrency = 2 })
	b.await("all entries", func() (bool, any) { return j.distinct() == shards*each, j.distinct() })
	b.add(shards, each, 1) // idle by now: the doorbell
	begin := time.Now()
	b.await("the new entries", func() (bool, any) { return j.distinct() == shards*(each+1), j.distinct() })
	if d := time.Since(begin); d > 500*time.Millisecond {
		t.Errorf("new entries took %v", d)
	}
	b.await("all acknowledged", func() (bool, any) { n := b.pending(shards, "g"); return n == 0, n })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	last := map[int]int{}
	for _, e := range j.list() {
		if before, ok := last[e.shard]; ok && e.n != before+1 {
			t.Fatalf("shard %d: entry %d after %d", e.shard, e.n, before)
		}
		last[e.shard] = e.n
	}
}

func TestHandler(t *testing.T) {
	t.Parallel()
	t.Run("a failure is repeated and nothing overtakes it", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		b.add(1, 0, 5)
		j := newJournal(t)
		var failures atomic.Int32
		b.run("a", j, func(c *consumer.Config) {
			c.MinBackoff = time.Millisecond
			c.Handler = func(_ context.Context, d consumer.Delivery) error {
				j.begin("a", d)
				defer j.end(d)
				if d.Text("n") == "2" && failures.Add(1) < 4 {
					if failures.Load() == 2 {
						panic("no")
					}
					return errors.New("no")
				}
				return nil
			}
		})
		b.await("all entries", func() (bool, any) { l := j.list(); return len(l) == 8, l })
		got := ""
		for _, e := range j.list() {
			got += fmt.Sprintf("%d/%d ", e.n, e.again)
		}
		if want := "0/1 1/1 2/1 2/2 2/3 2/4 3/1 4/1 "; got != want {
			t.Errorf("handled %s, want %s", got, want)
		}
	})
	t.Run("dead letters", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		b.add(1, 0, 3)
		var dead, handled sync.Map
		b.run("a", newJournal(t), func(c *consumer.Config) {
			c.MinBackoff, c.MaxDeliveries = time.Millisecond, 3
			c.Handler = func(_ context.Context, d consumer.Delivery) error {
				if d.Text("n") == "1" {
					panic("always")
				}
				handled.Store(d.Text("n"), true)
				return nil
			}
			c.DeadLetter = func(_ context.Context, d consumer.Delivery, cause error) error {
				dead.Store(d.Text("n"), fmt.Sprint(d.Deliveries, strings.Contains(cause.Error(), "always")))
				return nil
			}
		})
		b.await("entry 2", func() (bool, any) { _, ok := handled.Load("2"); return ok, nil })
		if got, _ := dead.Load("1"); got != "3 true" {
			t.Errorf("dead letter %v", got)
		}
		b.await("all acknowledged", func() (bool, any) { n := b.pending(1, "g"); return n == 0, n })
	})
	t.Run("batches", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		b.add(1, 0, 25)
		var mu sync.Mutex
		var sizes []int
		b.run("a", newJournal(t), func(c *consumer.Config) {
			c.BatchSize, c.Handler, c.MinBackoff = 10, nil, time.Millisecond
			c.BatchHandler = func(_ context.Context, batch []consumer.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				sizes = append(sizes, len(batch))
				if len(sizes) == 1 {
					return errors.New("no")
				}
				return nil
			}
		})
		b.await("three batches, the first one twice", func() (bool, any) {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(sizes) == "[10 10 10 5]", fmt.Sprint(sizes)
		})
		b.await("all acknowledged", func() (bool, any) { n := b.pending(1, "g"); return n == 0, n })
	})
	t.Run("bodies that are gone", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		b.group("g", protocol.GroupSpec{})
		b.add(1, 0, 5)
		key := protocol.ShardKey(b.prefix, 0)
		got, err := b.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: "before", Streams: []string{key, ">"}, Count: 5, Block: -1}).Result()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.rdb.XDel(t.Context(), key, got[0].Messages[1].ID, got[0].Messages[3].ID).Err(); err != nil {
			t.Fatal(err)
		}
		j := newJournal(t)
		var lost atomic.Int32
		b.run("a", j, func(c *consumer.Config) {
			c.Hooks.EntriesLost = func(_ int, ids []string) { lost.Add(int32(len(ids))) }
		})
		b.await("the others", func() (bool, any) { l := j.list(); return len(l) == 3 && b.pending(1, "g") == 0, l })
		if lost.Load() != 2 {
			t.Errorf("%d lost", lost.Load())
		}
	})
}

// Redis forgets everything; what is appended after the coordinator has repaired the stream is
// handled, and the log stays short.
func TestGroupVanishes(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Start(t), 2, protocol.ReshardingPolicy{})
	b.group("g", protocol.GroupSpec{})
	j := newJournal(t)
	var again atomic.Int32
	b.run("a", j, func(c *consumer.Config) {
		c.Hooks.GroupRecreated = func(int) { again.Add(1) }
	})
	b.add(2, 0, 1)
	b.await("the first entries", func() (bool, any) { return j.distinct() == 2, j.list() })
	for s := range 2 {
		if err := b.rdb.XGroupDestroy(t.Context(), protocol.ShardKey(b.prefix, s), "g").Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.add(2, 1, 10)
	b.await("all entries", func() (bool, any) { return j.distinct() == 22, j.distinct() })
	if again.Load() > 2 {
		t.Errorf("groups were made again %d times", again.Load())
	}
}

package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
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
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	good := producer.Config{Client: c, Redis: rdb, StreamPrefix: "orders"}
	for field, change := range map[string]func(*producer.Config){
		"Client":       func(c *producer.Config) { c.Client = nil },
		"Redis":        func(c *producer.Config) { c.Redis = nil },
		"StreamPrefix": func(c *producer.Config) { c.StreamPrefix = "a{b}" },
		"MaxBatch":     func(c *producer.Config) { c.MaxBatch = 5000 },
		"MaxQueue":     func(c *producer.Config) { c.MaxQueue = 1 },
		"Linger":       func(c *producer.Config) { c.Linger = -1 },
		"MaxLen":       func(c *producer.Config) { c.MaxLen = -1 },
		"type":         func(c *producer.Config) { c.Redis = ring },
	} {
		cfg := good
		change(&cfg)
		if _, err := producer.New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
	p, err := producer.New(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Append(t.Context(), "k", producer.Fields{"a", "b"}); !errors.Is(err, producer.ErrClosed) {
		t.Errorf("append before Start: %v", err)
	}
	for _, f := range []producer.Fields{nil, {"a"}, {"a", 1}, {1, "a"}} {
		if _, err := p.Append(t.Context(), "k", f); err == nil || errors.Is(err, producer.ErrClosed) {
			t.Errorf("fields %v: error %v", f, err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t), 4, protocol.ReshardingPolicy{})
			p := b.producer(func(c *producer.Config) { c.Plain = plain })
			var wg sync.WaitGroup
			for w := range 16 {
				wg.Go(func() {
					key := fmt.Sprint("k", w)
					for n := range 50 {
						r, err := p.Append(t.Context(), key, content(key, n))
						if err != nil {
							t.Error(err)
							return
						}
						if want, _ := protocol.ShardIndex([]byte(key), 4); r.Shard != want || r.ID == "" || r.EventID == "" {
							t.Errorf("result %+v, want shard %d", r, want)
						}
					}
				})
			}
			wg.Wait()
			checkOrder(t, b.entries(4), 16, 50)
		})
	}
}

// checkOrder wants each key to have 0 … per-1, in order.
func checkOrder(t *testing.T, all map[string][]int, keys, per int) {
	t.Helper()
	if len(all) != keys {
		t.Errorf("%d keys, want %d", len(all), keys)
	}
	for key, list := range all {
		if len(list) != per {
			t.Errorf("key %s has %d entries, want %d", key, len(list), per)
		}
		for i := 1; i < len(list); i++ {
			if list[i] <= list[i-1] {
				t.Fatalf("key %s: %d after %d", key, list[i], list[i-1])
			}
		}
	}
}

func TestAppendAsyncAndFlush(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t), 3, protocol.ReshardingPolicy{})
	p := b.producer(func(c *producer.Config) { c.MaxQueue = 100 })
	var mu sync.Mutex
	last := map[string]int{}
	for n := range 1000 {
		key := fmt.Sprint("k", n%7)
		err := p.AppendAsync(t.Context(), key, content(key, n), func(r producer.Result, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if before, ok := last[key]; ok && before >= n {
				t.Errorf("key %s: %d reported after %d", key, n, before)
			}
			last[key] = n
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, list := range b.entries(3) {
		total += len(list)
	}
	if total != 1000 {
		t.Errorf("%d entries after Flush", total)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(last) != 7 {
		t.Errorf("callbacks for %d keys", len(last))
	}
}

// A pause is waited out, or fails fast; what was appended meanwhile lands in order.
func TestPause(t *testing.T) {
	t.Parallel()
	pause := func(b *bundle, d time.Duration) {
		_, err := b.client.PausePublishing(b.t.Context(), b.prefix, protocol.PauseRequest{TimeoutMs: d.Milliseconds(), RequestedBy: "t", Reason: "t"}, client.Call{})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	t.Run("resumed", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		p, fast := b.producer(nil), b.producer(func(c *producer.Config) { c.FailFast = true })
		pause(b, time.Minute)
		if _, err := fast.Append(t.Context(), "k", content("k", 0)); !errors.Is(err, producer.ErrPaused) {
			t.Errorf("fail fast: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := p.Append(context.Background(), "k", content("k", 1))
			done <- err
		}()
		b.await("the append to be queued", func() (bool, any) { return p.Queued() == 1, p.Queued() })
		begin := time.Now()
		if _, err := b.client.ResumePublishing(t.Context(), b.prefix, protocol.ResumeRequest{RequestedBy: "t", Reason: "t"}, client.Call{}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 2*time.Second {
			t.Errorf("went on %v after the resume", d)
		}
	})
	t.Run("given up by the caller", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		p := b.producer(nil)
		pause(b, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := p.Append(ctx, "k", content("k", 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if p.Queued() != 0 {
			t.Errorf("%d queued", p.Queued())
		}
		if got := b.entries(1); len(got) != 0 {
			t.Errorf("landed: %v", got)
		}
	})
	t.Run("closed meanwhile", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 1, protocol.ReshardingPolicy{})
		p := b.producer(nil)
		pause(b, time.Minute)
		done := make(chan error, 1)
		if err := p.AppendAsync(t.Context(), "k", content("k", 0), func(_ producer.Result, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if err := <-done; !errors.Is(err, producer.ErrClosed) {
			t.Errorf("append: %v", err)
		}
	})
	t.Run("no coordinator at the deadline", func(t *testing.T) {
		t.Parallel()
		b := setup(t, redistest.Shared(t), 2, protocol.ReshardingPolicy{})
		p := b.producer(nil)
		if _, err := p.Append(t.Context(), "k", content("k", 0)); err != nil {
			t.Fatal(err)
		}
		pause(b, time.Second)
		b.stopServer()
		begin := time.Now()
		if _, err := p.Append(t.Context(), "k", content("k", 1)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < 500*time.Millisecond || d > 4*time.Second {
			t.Errorf("went on after %v", d)
		}
	})
}

// Appends go on through reshardings, each key in order, nothing twice.
func TestReshard(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			t.Parallel()
			// Bare appends are not fenced, so a quiesced change would wait for their routing lease.
			policy := protocol.ReshardingPolicy{Strategy: protocol.StrategyQuiesce}
			if plain {
				policy.Strategy = protocol.StrategyOnline
			}
			b := setup(t, redistest.Shared(t), 2, policy)
			p := b.producer(func(c *producer.Config) { c.Plain = plain })
			stop := make(chan struct{})
			var wg sync.WaitGroup
			counts := make([]int, 8)
			for w := range counts {
				wg.Go(func() {
					key := fmt.Sprint("k", w)
					for {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := p.Append(t.Context(), key, content(key, counts[w])); err != nil {
							t.Errorf("append: %v", err)
							return
						}
						counts[w]++
					}
				})
			}
			total := 0
			for _, to := range []int64{5, 7} { // outwards: nobody drains here
				if _, err := b.client.PutStream(t.Context(), b.prefix, protocol.PutStreamRequest{ShardCount: &to, Resharding: policy}, client.Call{}); err != nil {
					t.Fatal(err)
				}
				b.await("the layout", func() (bool, any) {
					_, count, _ := p.Layout()
					s, err := b.client.Stream(t.Context(), b.prefix)
					return int64(count) == to && s.Status.ActiveReshardingID == "", []any{count, s.Status, err}
				})
			}
			close(stop)
			wg.Wait()
			seen := 0
			landed := map[string]map[int]string{} // key -> number -> instant of the id, ms
			for s := range 7 {
				list, err := b.rdb.XRange(t.Context(), protocol.ShardKey(b.prefix, s), "-", "+").Result()
				if err != nil {
					t.Fatal(err)
				}
				seen += len(list)
				for _, e := range list {
					key := e.Values["key"].(string)
					n, _ := strconv.Atoi(e.Values["n"].(string))
					if landed[key] == nil {
						landed[key] = map[int]string{}
					}
					landed[key][n], _, _ = strings.Cut(e.ID, "-")
				}
			}
			for key, at := range landed {
				for n := 1; n < len(at); n++ {
					if at[n] < at[n-1] {
						t.Errorf("key %s: %d landed at %s, %d at %s", key, n, at[n], n-1, at[n-1])
					}
				}
			}
			for _, n := range counts {
				total += n
			}
			if seen != total || total == 0 {
				t.Errorf("%d entries landed, %d were appended", seen, total)
			}
		})
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	consumeShards = 8
	group         = "workers"
)

// consume measures how fast one member reads and acknowledges 8 shards that are full, beside 8
// goroutines that do it with XREADGROUP and XACK of the same batch size.
func (b *bench) consume(ctx context.Context) ([]result, error) {
	const entries = 160_000
	round := 0
	value, reference, err := interleave(b.rounds,
		func() (float64, error) {
			prefix := fmt.Sprintf("consume-%d", round)
			if err := b.makeStream(ctx, prefix, consumeShards, group); err != nil {
				return 0, err
			}
			if err := b.fill(ctx, prefix, entries); err != nil {
				return 0, err
			}
			rate, err := b.consumeAll(ctx, prefix, entries)
			return rate, errors.Join(err, b.trim(ctx, prefix))
		},
		func() (float64, error) {
			round++
			prefix := fmt.Sprintf("bare-consume-%d", round)
			for i := range consumeShards {
				if err := b.redis.XGroupCreateMkStream(ctx, protocol.ShardKey(prefix, i), group, "0").Err(); err != nil {
					return 0, err
				}
			}
			if err := b.fill(ctx, prefix, entries); err != nil {
				return 0, err
			}
			rate, err := b.bareConsumeAll(ctx, prefix, entries)
			return rate, errors.Join(err, b.trim(ctx, prefix))
		})
	if err != nil {
		return nil, err
	}
	return []result{atLeast("consume and acknowledge, batches of 100", value, reference, "entries/s", 0.9)}, nil
}

// fill appends entries to the shards of a stream, evenly.
func (b *bench) fill(ctx context.Context, prefix string, entries int) error {
	for begin := 0; begin < entries; begin += 1000 {
		if _, err := b.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n := range 1000 {
				p.XAdd(ctx, &redis.XAddArgs{Stream: protocol.ShardKey(prefix, n%consumeShards), Values: []string{"body", body}})
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// consumeAll measures the SDK, from the first entry that is handled to the last.
func (b *bench) consumeAll(ctx context.Context, prefix string, entries int) (float64, error) {
	rdb := b.redisServer.Client()
	defer rdb.Close()
	var handled atomic.Int64
	var first sync.Once
	var begin, end time.Time
	all := make(chan struct{})
	c, err := consumer.New(consumer.Config{
		Client: b.client, Redis: rdb, StreamPrefix: prefix, Group: group, MemberID: "bench", BatchSize: batchSize, Logger: quiet,
		BatchHandler: func(_ context.Context, batch []consumer.Delivery) error {
			first.Do(func() { begin = time.Now() })
			if n := handled.Add(int64(len(batch))); n >= int64(entries) && n-int64(len(batch)) < int64(entries) {
				end = time.Now()
				close(all)
			}
			return nil
		},
	})
	if err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-all:
	case err := <-ended:
		return 0, fmt.Errorf("the consumer ended: %w", err)
	case <-time.After(time.Minute):
		stop()
		return 0, errors.Join(fmt.Errorf("handled %d of %d in a minute", handled.Load(), entries), <-ended)
	}
	stop()
	if err := <-ended; err != nil {
		return 0, err
	}
	for i := range consumeShards { // a stop acknowledges what was handled
		pending, err := b.redis.XPending(context.WithoutCancel(ctx), protocol.ShardKey(prefix, i), group).Result()
		if err != nil || pending.Count != 0 {
			return 0, fmt.Errorf("shard %d: %d entries are still pending: %w", i, pending.Count, err)
		}
	}
	return float64(entries) / end.Sub(begin).Seconds(), nil
}

// bareConsumeAll is the same by hand.
func (b *bench) bareConsumeAll(ctx context.Context, prefix string, entries int) (float64, error) {
	rdb := b.redisServer.Client()
	defer rdb.Close()
	begin := time.Now()
	calls, ctx := errgroup.WithContext(ctx)
	for i := range consumeShards {
		key := protocol.ShardKey(prefix, i)
		calls.Go(func() error {
			for left := entries / consumeShards; left > 0; {
				streams, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "bench", Streams: []string{key, ">"}, Count: batchSize, Block: -1}).Result()
				if err != nil {
					return err
				}
				ids := make([]string, len(streams[0].Messages))
				for n, m := range streams[0].Messages {
					ids[n] = m.ID
				}
				if err := rdb.XAck(ctx, key, group, ids...).Err(); err != nil {
					return err
				}
				left -= len(ids)
			}
			return nil
		})
	}
	err := calls.Wait()
	return float64(entries) / time.Since(begin).Seconds(), err
}

// handover measures how long a consumer that joins an idle stream waits until it reads its
// first shard, which another one has to let go. Heartbeats are every 3 s: nothing of it polls.
func (b *bench) handover(ctx context.Context) ([]result, error) {
	const prefix, times = "handover", 100
	if err := b.makeStream(ctx, prefix, consumeShards, group); err != nil {
		return nil, err
	}
	incumbent, err := b.idleConsumer(ctx, prefix, "incumbent")
	if err != nil {
		return nil, err
	}
	defer func() { _ = incumbent.stop() }() // what was measured stands
	if err := incumbent.owns(ctx, consumeShards); err != nil {
		return nil, err
	}
	var took []time.Duration
	for n := range times {
		begin := time.Now()
		joiner, err := b.idleConsumer(ctx, prefix, fmt.Sprintf("joiner-%d", n))
		if err != nil {
			return nil, err
		}
		select {
		case at := <-joiner.first:
			took = append(took, at.Sub(begin))
		case <-time.After(30 * time.Second):
			return nil, errors.Join(errors.New("the joiner read nothing for 30 s"), joiner.stop())
		}
		if err := errors.Join(joiner.owns(ctx, consumeShards/2), joiner.stop(), incumbent.owns(ctx, consumeShards)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(os.Stderr, "  p50 %s, p90 %s, p95 %s, worst %s\n", percentile(took, 50), percentile(took, 90), percentile(took, 95), percentile(took, 100))
	return []result{
		within("hand-over, join to first read, p99", percentile(took, 99), 100*time.Millisecond, 0),
		within("hand-over, join to first read, p50", percentile(took, 50), 100*time.Millisecond, 0),
	}, nil
}

// idle is a consumer that has nothing to read.
type idle struct {
	first  chan time.Time // when it began to read its first shard
	change chan struct{}  // something was assigned or revoked
	stop   func() error

	mu    sync.Mutex
	owned map[int]bool
}

func (b *bench) idleConsumer(ctx context.Context, prefix, member string) (*idle, error) {
	rdb := b.redisServer.Client()
	own, err := newClient(b.coordinatorAddr)
	if err != nil {
		return nil, err
	}
	c := &idle{first: make(chan time.Time, 1), change: make(chan struct{}, 1), owned: map[int]bool{}}
	set := func(shard int, owned bool) {
		now := time.Now()
		c.mu.Lock()
		defer c.mu.Unlock()
		if owned {
			c.owned[shard] = true
			select {
			case c.first <- now:
			default:
			}
		} else {
			delete(c.owned, shard)
		}
		select {
		case c.change <- struct{}{}:
		default:
		}
	}
	one, err := consumer.New(consumer.Config{
		Client: own, Redis: rdb, StreamPrefix: prefix, Group: group, MemberID: member, Logger: quiet,
		Handler: func(context.Context, consumer.Delivery) error { return nil },
		Hooks: consumer.Hooks{
			Assigned: func(shard int, _ int64) { set(shard, true) },
			Revoked:  func(shard int, _ int64, _ error) { set(shard, false) },
		},
	})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- one.Run(ctx) }()
	c.stop = sync.OnceValue(func() error {
		cancel()
		return errors.Join(<-ended, rdb.Close())
	})
	return c, nil
}

// owns waits until the consumer has n shards.
func (c *idle) owns(ctx context.Context, n int) error {
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		now := len(c.owned)
		c.mu.Unlock()
		if now == n {
			return nil
		}
		select {
		case <-c.change:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf("owns %d shards for 30 s, want %d", now, n)
		}
	}
}

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	publishShards = 8
	batchSize     = 100
	syncCallers   = 64
)

var (
	body = strings.Repeat("x", 100)
	keys = func() []string {
		all := make([]string, 10_000)
		for i := range all {
			all[i] = "key-" + strconv.Itoa(i)
		}
		return all
	}()
)

// publish measures the SDK's producer beside go-redis used directly: batches of 100 with one
// batch under way on each of 8 shards, and 64 goroutines that wait for each entry.
func (b *bench) publish(ctx context.Context) ([]result, error) {
	const prefix, bare = "publish", "bare-publish"
	if err := b.makeStream(ctx, prefix, publishShards, ""); err != nil {
		return nil, err
	}
	for i := range publishShards {
		if err := b.redis.XGroupCreateMkStream(ctx, protocol.ShardKey(bare, i), "workers", "0").Err(); err != nil {
			return nil, err
		}
	}
	produce := func(plain bool, run func(context.Context, *producer.Producer) (float64, error)) func() (float64, error) {
		return func() (float64, error) {
			p, rdb, err := b.producer(prefix, plain)
			if err != nil {
				return 0, err
			}
			defer rdb.Close()
			rate, err := run(ctx, p)
			if closeErr := p.Close(ctx); err == nil {
				err = closeErr
			}
			if trimErr := b.trim(ctx, prefix); err == nil {
				err = trimErr
			}
			return rate, err
		}
	}
	pipeline := func() (float64, error) {
		rate, err := b.barePipelines(ctx, bare)
		if trimErr := b.trim(ctx, bare); err == nil {
			err = trimErr
		}
		return rate, err
	}
	single := func() (float64, error) {
		rate, err := b.bareCallers(ctx, bare)
		if trimErr := b.trim(ctx, bare); err == nil {
			err = trimErr
		}
		return rate, err
	}
	var out []result
	for _, c := range []struct {
		name               string
		subject, reference func() (float64, error)
		factor             float64
	}{
		{"publish fenced, batches of 100", produce(false, b.asyncAppends), pipeline, 0.75},
		{"publish plain, batches of 100", produce(true, b.asyncAppends), pipeline, 0.95},
		{"publish fenced, 64 sync callers", produce(false, b.syncAppends), single, 1.2},
	} {
		value, reference, err := interleave(b.rounds, c.subject, c.reference)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		out = append(out, atLeast(c.name, value, reference, "entries/s", c.factor))
	}
	return out, nil
}

// producer starts one with a Redis client of its own.
func (b *bench) producer(prefix string, plain bool) (*producer.Producer, *redis.Client, error) {
	rdb := b.redisServer.Client()
	p, err := producer.New(producer.Config{
		Client: b.client, Redis: rdb, StreamPrefix: prefix, MaxBatch: batchSize, Plain: plain, Logger: quiet,
	})
	if err != nil {
		rdb.Close()
		return nil, nil, err
	}
	p.Start()
	return p, rdb, nil
}

// asyncAppends fills the producer's queue for the span.
func (b *bench) asyncAppends(ctx context.Context, p *producer.Producer) (float64, error) {
	if _, err := p.Append(ctx, keys[0], producer.Fields{"body", body}); err != nil { // routing is there
		return 0, err
	}
	var landed atomic.Int64
	var failure atomic.Pointer[error]
	done := func(_ producer.Result, err error) {
		if err != nil {
			failure.Store(&err)
			return
		}
		landed.Add(1)
	}
	begin := time.Now()
	for i := 0; ; i++ {
		if i%256 == 0 && time.Since(begin) > b.span {
			break
		}
		if err := p.AppendAsync(ctx, keys[i%len(keys)], producer.Fields{"body", body}, done); err != nil {
			return 0, err
		}
	}
	if err := p.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failure.Load(); err != nil {
		return 0, *err
	}
	return float64(landed.Load()) / time.Since(begin).Seconds(), nil
}

// barePipelines is the same by hand: one pipeline of 100 XADD under way on each shard.
func (b *bench) barePipelines(ctx context.Context, prefix string) (float64, error) {
	rdb := b.redisServer.Client()
	defer rdb.Close()
	var landed atomic.Int64
	begin := time.Now()
	calls, ctx := errgroup.WithContext(ctx)
	for i := range publishShards {
		key := protocol.ShardKey(prefix, i)
		calls.Go(func() error {
			for time.Since(begin) < b.span {
				cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
					for range batchSize {
						p.XAdd(ctx, &redis.XAddArgs{Stream: key, NoMkStream: true, Values: []string{"body", body}})
					}
					return nil
				})
				if err != nil {
					return err
				}
				landed.Add(int64(len(cmds)))
			}
			return nil
		})
	}
	err := calls.Wait()
	return float64(landed.Load()) / time.Since(begin).Seconds(), err
}

// syncAppends lets 64 goroutines append one entry after the other.
func (b *bench) syncAppends(ctx context.Context, p *producer.Producer) (float64, error) {
	return b.callers(ctx, func(ctx context.Context, i int) error {
		_, err := p.Append(ctx, keys[i%len(keys)], producer.Fields{"body", body})
		return err
	})
}

// bareCallers is the same by hand: 64 goroutines that call XADD.
func (b *bench) bareCallers(ctx context.Context, prefix string) (float64, error) {
	rdb := redis.NewClient(&redis.Options{Addr: b.redisServer.Addr, PoolSize: syncCallers})
	defer rdb.Close()
	return b.callers(ctx, func(ctx context.Context, i int) error {
		return rdb.XAdd(ctx, &redis.XAddArgs{Stream: protocol.ShardKey(prefix, i%publishShards), NoMkStream: true, Values: []string{"body", body}}).Err()
	})
}

func (b *bench) callers(ctx context.Context, call func(ctx context.Context, i int) error) (float64, error) {
	var count atomic.Int64
	begin := time.Now()
	calls, ctx := errgroup.WithContext(ctx)
	for c := range syncCallers {
		calls.Go(func() error {
			for i := c; time.Since(begin) < b.span; i += syncCallers {
				if err := call(ctx, i); err != nil {
					return err
				}
				count.Add(1)
			}
			return nil
		})
	}
	err := calls.Wait()
	return float64(count.Load()) / time.Since(begin).Seconds(), err
}

// trim empties the shards of a stream, so that memory stays bounded.
func (b *bench) trim(ctx context.Context, prefix string) error {
	_, err := b.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range publishShards {
			p.XTrimMaxLen(ctx, protocol.ShardKey(prefix, i), 0)
		}
		return nil
	})
	return err
}

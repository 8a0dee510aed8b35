package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// thousandShards measures what a resharding needs to provision and to retire 1,000 shards with
// one consumer group, from the request to COMPLETED, beside a bare pipeline that makes and
// unlinks the same keys.
func (b *bench) thousandShards(ctx context.Context) ([]result, error) {
	const shards, prefix = 1000, "wide"
	if err := b.makeStream(ctx, prefix, 1, "workers"); err != nil {
		return nil, err
	}
	var grow, shrink []time.Duration
	for range b.rounds {
		begin := time.Now()
		if err := b.reshard(ctx, prefix, shards+1, protocol.StrategyOnline); err != nil {
			return nil, err
		}
		grow = append(grow, time.Since(begin))
		begin = time.Now()
		if err := b.reshard(ctx, prefix, 1, protocol.StrategyOnline); err != nil {
			return nil, err
		}
		shrink = append(shrink, time.Since(begin))
	}
	bare := func(each func(p redis.Pipeliner, key string)) (time.Duration, error) {
		begin := time.Now()
		_, err := b.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range shards {
				each(p, fmt.Sprintf("bare-wide:%d", i))
			}
			return nil
		})
		return time.Since(begin), err
	}
	made, err := bare(func(p redis.Pipeliner, key string) { p.XGroupCreateMkStream(ctx, key, "workers", "0") })
	if err != nil {
		return nil, err
	}
	unlinked, err := bare(func(p redis.Pipeliner, key string) { p.Unlink(ctx, key) })
	if err != nil {
		return nil, err
	}
	return []result{
		within("provision 1,000 shards, whole resharding", median(grow), time.Second, made),
		within("retire 1,000 shards, whole resharding", median(shrink), time.Second, unlinked),
	}, nil
}

package shardscript_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Batches of 100 entries of 100 bytes, by APPEND and as a plain pipeline: compare the two.
func BenchmarkAppend(b *testing.B) {
	ctx := context.Background()
	server := redistest.Start(b)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	b.Cleanup(func() { _ = c.Close() })
	prefix := redistest.Prefix(b)
	keys := []string{protocol.ShardKey(prefix, 0), protocol.ControlKey(prefix, 0)}
	c.HSet(ctx, keys[1], "epoch", 1, "count", 1)
	c.XGroupCreateMkStream(ctx, keys[0], "g", "0")
	const batch = 100
	entry := []any{"v", strings.Repeat("x", 100)}
	entries := make([][]any, batch)
	for i := range entries {
		entries[i] = entry
	}
	script := redis.NewScript(shardscript.Source(shardscript.Append))
	trim := func(i int) {
		if i%1000 == 999 {
			c.XTrimMaxLen(ctx, keys[0], 0)
		}
	}
	b.Run("script", func(b *testing.B) {
		for i := range b.N {
			v, err := script.Run(ctx, c, keys, shardscript.AppendArgs(1, 1, 0, entries...)...).Result()
			if err != nil {
				b.Fatal(err)
			}
			if r, err := shardscript.ParseAppend(v); err != nil || r.Code != shardscript.OK {
				b.Fatal(r, err)
			}
			trim(i)
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "entries/s")
	})
	b.Run("pipeline", func(b *testing.B) {
		for i := range b.N {
			if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				for range batch {
					p.XAdd(ctx, &redis.XAddArgs{Stream: keys[0], Values: entry})
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			trim(i)
		}
		b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "entries/s")
	})
}

// Acknowledging batches of 100 by CHECKACK and by plain XACK.
func BenchmarkAck(b *testing.B) {
	ctx := context.Background()
	server := redistest.Start(b)
	c := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1})
	b.Cleanup(func() { _ = c.Close() })
	prefix := redistest.Prefix(b)
	keys := []string{protocol.ShardKey(prefix, 0), protocol.ControlKey(prefix, 0)}
	o := owner(1, "m", "i")
	c.HSet(ctx, keys[1], "epoch", 1, "count", 1, "owner:g", "1 m i")
	c.XGroupCreateMkStream(ctx, keys[0], "g", "0")
	script := redis.NewScript(shardscript.Source(shardscript.CheckAck))
	const batch = 100
	// fill appends and reads a batch, outside the measured time.
	fill := func(b *testing.B) []string {
		b.Helper()
		b.StopTimer()
		defer b.StartTimer()
		c.XTrimMaxLen(ctx, keys[0], 0)
		if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range batch {
				p.XAdd(ctx, &redis.XAddArgs{Stream: keys[0], Values: []any{"a", "b"}})
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		res, err := c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "m~1", Streams: []string{keys[0], ">"}, Count: batch, Block: -1}).Result()
		if err != nil {
			b.Fatal(err)
		}
		ids := make([]string, 0, batch)
		for _, m := range res[0].Messages {
			ids = append(ids, m.ID)
		}
		return ids
	}
	b.Run("script", func(b *testing.B) {
		for range b.N {
			ids := fill(b)
			if err := script.Run(ctx, c, keys, shardscript.CheckAckArgs("g", o, "m~1", ids...)...).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		for range b.N {
			ids := fill(b)
			if err := c.XAck(ctx, keys[0], "g", ids...).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

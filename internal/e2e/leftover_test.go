package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func asRefusal(err error, to **protocol.Error) bool { return errors.As(err, to) }

// TestLeftovers: a change died when its new shards had been made, and the record of it is lost. What it
// left is found when a coordinator starts.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	t.Run("empty", func(t *testing.T) { t.Parallel(); leftovers(t, false) })
	t.Run("with-entries", func(t *testing.T) { t.Parallel(); leftovers(t, true) })
}

func leftovers(t *testing.T, entries bool) {
	const from, to = 2, 5
	server := redistest.Shared(t)
	rdb := server.Client(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	c := startCoordinator(t, server.URL(), keyPrefix, "")
	api := connect(t, c.url())
	declare(t, api, prefix, from, protocol.ReshardingPolicy{})
	putGroup(t, api, prefix, "g", protocol.GroupSpec{})
	c.kill()

	aggregate := keyPrefix + ":{" + prefix + "}:stream"
	dump, err := rdb.Dump(t.Context(), aggregate).Result()
	if err != nil {
		t.Fatal(err)
	}
	c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix, "RSC_FAULT=DECIDE#1"}
	c.start()
	putOnce(t, c, prefix, to, protocol.ReshardingPolicy{Strategy: protocol.StrategyOnline})
	c.awaitDeath(60 * time.Second)
	for i := from; i < to; i++ {
		if n, err := rdb.Exists(t.Context(), protocol.ShardKey(prefix, i)).Result(); err != nil || n != 1 {
			t.Fatalf("shard %d was not made: %d, %v", i, n, err)
		}
	}
	if err := rdb.RestoreReplace(t.Context(), aggregate, 0, dump).Err(); err != nil {
		t.Fatal(err)
	}
	const orphan = 3 // the shard that gets an entry
	var got sync.Map
	if entries {
		key := protocol.ShardKey(prefix, orphan)
		if err := rdb.Do(t.Context(), "XSETID", key, "0-1").Err(); err != nil { // its seal is lost too
			t.Fatal(err)
		}
		if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"who", "knows"}}).Err(); err != nil {
			t.Fatal(err)
		}
		one, err := consumer.New(consumer.Config{
			Client: api, Redis: rdb, StreamPrefix: prefix, Group: "g", MemberID: "m", Logger: slog.New(slog.DiscardHandler),
			Handler: func(_ context.Context, d consumer.Delivery) error { got.Store(d.Shard, d.ID); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := one.Run(running); err != nil {
				t.Errorf("consumer: %v", err)
			}
		})
		defer func() { stop(); ended.Wait() }()
	}

	c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix}
	c.start()
	if err := waitFor(t.Context(), time.Minute, func(ctx context.Context) error {
		for i := from; i < to; i++ {
			n, err := rdb.Exists(ctx, protocol.ShardKey(prefix, i)).Result()
			if err != nil {
				return err
			}
			if n != 0 {
				return fmt.Errorf("shard %d is still there: %w", i, errNotYet)
			}
		}
		return nil
	}); err != nil {
		t.Fatalf("what the lost change left is not removed: %v", err)
	}
	// The first sweep finds the held shards of the layout, and with them how far to look.
	for _, r := range atRest(t, api, prefix) {
		if r.Phase != protocol.PhaseCompleted || r.ToShardCount != from {
			t.Errorf("on record: %+v; want the creation and repairs alone", r)
		}
	}
	if id, ok := got.Load(orphan); entries && !ok {
		t.Error("the entry of the leftover shard was removed and not delivered")
	} else if ok != entries {
		t.Errorf("entry %v was delivered", id)
	}
	for i := range from {
		control, err := rdb.HGetAll(t.Context(), protocol.ControlKey(prefix, i)).Result()
		if err != nil || control["gate"] != "" {
			t.Errorf("shard %d is still held: %v, %v", i, control, err)
		}
	}
	checkShards(t, rdb, prefix, from, to)
	declare(t, api, prefix, to, protocol.ReshardingPolicy{})
	checkShards(t, rdb, prefix, to, to)
}

// TestForeignStreams: streams of somebody else stand where shards would be. One that the stream once
// had a shard for is known from the start on, and a change over it is refused; one beyond that is met by
// the change, which is taken back. Both name key and length; neither is touched.
func TestForeignStreams(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	rdb := server.Client(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	c := startCoordinator(t, server.URL(), keyPrefix, "")
	api := connect(t, c.url())
	declare(t, api, prefix, 5, protocol.ReshardingPolicy{})
	declare(t, api, prefix, 2, protocol.ReshardingPolicy{})
	c.kill()
	for shard, n := range map[int]int{3: 1, 6: 2} {
		for range n {
			if err := rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: protocol.ShardKey(prefix, shard), Values: []string{"who", "knows"}}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.start()
	known := protocol.ShardKey(prefix, 3) + " (1 entry)"
	if err := waitFor(t.Context(), 30*time.Second, func(ctx context.Context) error {
		s, err := api.Stream(ctx, prefix)
		if err != nil || !strings.Contains(fmt.Sprint(s.Status.Conditions), known) {
			return errors.Join(err, fmt.Errorf("conditions %+v: %w", s.Status.Conditions, errNotYet))
		}
		return nil
	}); err != nil {
		t.Fatalf("the stream is not reported: %v", err)
	}
	target := int64(5)
	_, err := api.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &target}, client.Call{})
	refusedWithList(t, err, known)
	if err := rdb.Del(t.Context(), protocol.ShardKey(prefix, 3)).Err(); err != nil {
		t.Fatal(err)
	}
	target = 7
	var put client.PutResult
	if err := waitFor(t.Context(), 30*time.Second, func(ctx context.Context) error { // the next sweep sees that it is gone
		put, err = api.PutStream(ctx, prefix, protocol.PutStreamRequest{ShardCount: &target}, client.Call{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r := follow(t, api, prefix, put.ReshardingID, time.Minute)
	want := protocol.ShardKey(prefix, 6) + " exists and does not belong to the coordinator (2 entries)"
	if r.Phase != protocol.PhaseRolledBack || !strings.Contains(r.Error, want) {
		t.Errorf("the change ended %s: %q; want it taken back with %q", r.Phase, r.Error, want)
	}
	if n, err := rdb.XLen(t.Context(), protocol.ShardKey(prefix, 6)).Result(); err != nil || n != 2 {
		t.Errorf("shard 6 has %d entries, %v; it is not ours to touch", n, err)
	}
	checkShards(t, rdb, prefix, 2, 6)
}

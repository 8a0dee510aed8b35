package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// maxID is last-generated-id of a sealed stream.
const maxID = "18446744073709551615-18446744073709551615"

// check compares what the change left with what its end says.
func (s *step) check(ctx context.Context, after protocol.Stream) error {
	r := s.last
	want := r.FromShardCount
	if r.Phase == protocol.PhaseCompleted {
		want = r.ToShardCount
	}
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	// A failure after the layout had changed is followed by a change back, which the stream's last
	// resharding is then.
	if after.Status.ShardCount != want {
		bad("resharding %s from %d to %d ended %s, but the stream has %d shards", r.ReshardingID, r.FromShardCount, r.ToShardCount, r.Phase, after.Status.ShardCount)
	}
	for _, c := range after.Status.Conditions {
		if strings.Contains(c.Message, "alert") || strings.Contains(c.Message, "not ours") {
			bad("condition %s: %s", c.Type, c.Message)
		}
	}
	if r.Phase == protocol.PhaseCompleted && r.Strategy == protocol.StrategyQuiesce && r.FromShardCount > 0 && r.Certificate == nil {
		bad("resharding %s was decided without a certificate", r.ReshardingID)
	}
	if err := s.w.checkShards(ctx, after.Status.ShardCount, after.Status.LayoutEpoch); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// checkShards: exactly the shards of the layout exist, open and at its epoch; all others are
// tombstones. Archives are as many as were asked for, and are removed.
func (w *world) checkShards(ctx context.Context, count int, epoch int64) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	keys := map[string]bool{}
	for _, pattern := range []string{streamPrefix + ":*", "{" + streamPrefix + ":*"} {
		scan := w.rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for scan.Next(ctx) {
			keys[scan.Val()] = true
		}
		if err := scan.Err(); err != nil {
			return fmt.Errorf("list keys: %w", err)
		}
	}
	pipe := w.rdb.Pipeline()
	infos := make([]*redis.XInfoStreamCmd, count)
	for i := range count {
		infos[i] = pipe.XInfoStream(ctx, protocol.ShardKey(streamPrefix, i))
	}
	controls := make([]*redis.MapStringStringCmd, maxShards)
	for i := range controls {
		controls[i] = pipe.HGetAll(ctx, protocol.ControlKey(streamPrefix, i))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range controls {
		key := protocol.ShardKey(streamPrefix, i)
		control, err := controls[i].Result()
		if err != nil {
			return fmt.Errorf("control hash of shard %d: %w", i, err)
		}
		inside := i < count
		if keys[key] && !inside {
			bad("%s exists beyond the %d shards of the layout: %v", key, count, control)
		}
		delete(keys, key)
		delete(keys, protocol.ControlKey(streamPrefix, i))
		for _, f := range []string{"gate", "until", "hold", "sealedLastId"} {
			if control[f] != "" && inside {
				bad("shard %d: %s is still %s: %v", i, f, control[f], control)
			}
		}
		if !inside {
			if len(control) > 0 && control["retired"] == "" {
				bad("shard %d has been removed and is no tombstone: %v", i, control)
			}
			continue
		}
		if control["epoch"] != strconv.FormatInt(epoch, 10) || control["count"] != strconv.Itoa(count) || control["retired"] != "" {
			bad("shard %d is not at layout epoch %d with %d shards: %v", i, epoch, count, control)
		}
		info, err := infos[i].Result()
		switch {
		case err != nil:
			bad("shard %d: %w", i, err)
		case info.LastGeneratedID == maxID:
			bad("shard %d is sealed: %v", i, control)
		}
	}
	var archives []string
	for key := range keys {
		if strings.Contains(key, "}:archived:") {
			archives = append(archives, key)
		} else {
			bad("stray key %s", key)
		}
	}
	if len(archives) > 0 { // they were drained, or an entry will turn out to be lost
		slices.Sort(archives)
		if err := w.rdb.Unlink(ctx, archives...).Err(); err != nil {
			return fmt.Errorf("remove archives: %w", err)
		}
	}
	return errors.Join(problems...)
}

// abandonedGroup is the name of the group that nobody reads during a change.
func abandonedGroup(n int) string { return fmt.Sprint("abandoned-", n) }

// abandon makes a Redis consumer group that nobody reads on every shard, if the plan has one.
func (w *world) abandon(ctx context.Context, p *plan, shards int) (bool, error) {
	if p.abandoned == abandonedNone {
		return false, nil
	}
	name := abandonedGroup(p.number)
	if p.abandoned == abandonedIgnored {
		p.policy.IgnoreGroups = []string{name}
	}
	for i := range shards {
		if err := w.rdb.XGroupCreate(ctx, protocol.ShardKey(streamPrefix, i), name, "0").Err(); err != nil {
			return true, fmt.Errorf("abandoned group on shard %d: %w", i, err)
		}
	}
	return true, nil
}

// forget removes that group from the shards that still exist.
func (w *world) forget(ctx context.Context, name string) error {
	for i := range maxShards {
		key := protocol.ShardKey(streamPrefix, i)
		if err := w.rdb.XGroupDestroy(ctx, key, name).Err(); err != nil && !strings.Contains(err.Error(), "requires the key to exist") {
			return fmt.Errorf("remove group %s of shard %d: %w", name, i, err)
		}
	}
	return nil
}

package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Ownership is one shard under one ownership epoch of a member of a group.
type Ownership struct {
	Index    int
	Group    string
	Owner    shardscript.Owner
	consumer string
}

// NewOwnership names the Redis consumer after the ownership (rule D2).
func NewOwnership(index int, group string, owner shardscript.Owner) Ownership {
	return Ownership{Index: index, Group: group, Owner: owner, consumer: protocol.ConsumerName(owner.MemberID, owner.Epoch)}
}

// Consumer is the Redis consumer name.
func (o Ownership) Consumer() string { return o.consumer }

// Takeover takes one slice of what is pending; after is "" at first, then the reply's Next.
func (s *Shards) Takeover(ctx context.Context, o Ownership, after string) (shardscript.TakeoverReply, error) {
	call := &Call{Name: shardscript.Takeover, Index: o.Index, Args: shardscript.TakeoverSlice{
		Group: o.Group, Owner: o.Owner, Consumer: o.consumer, Max: shardscript.MaxSlice, After: after,
	}.Args()}
	s.Run(ctx, call)
	v, err := call.Value()
	if err != nil {
		return shardscript.TakeoverReply{}, fmt.Errorf("take over shard %d: %w", o.Index, err)
	}
	return shardscript.ParseTakeover(v)
}

// Ack acknowledges ids, if the ownership still stands. Without ids it only checks.
func (s *Shards) Ack(ctx context.Context, o Ownership, ids ...string) (shardscript.CheckAckReply, error) {
	call := o.check(ids)
	s.Run(ctx, call)
	return o.checked(call)
}

func (o Ownership) check(ids []string) *Call {
	return &Call{
		Name: shardscript.CheckAck, Index: o.Index,
		Args: shardscript.CheckAckArgs(o.Group, o.Owner, o.consumer, ids...),
	}
}

func (o Ownership) checked(c *Call) (shardscript.CheckAckReply, error) {
	v, err := c.Value()
	if err != nil {
		return shardscript.CheckAckReply{}, fmt.Errorf("check ownership of shard %d: %w", o.Index, err)
	}
	return shardscript.ParseCheckAck(v)
}

// Read does a group read that does not block and behind it, in the same pipeline, the check of
// the ownership with the acknowledgement of ids (rule D4). Entries are to be handled only when
// the check says OK; without an answer to it they stay pending, and a takeover finds them.
func (s *Shards) Read(ctx context.Context, o Ownership, count int, ids []string) ([]redis.XMessage, shardscript.CheckAckReply, error) {
	call := o.check(ids)
	var read *redis.XStreamSliceCmd
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // every command keeps its error
		read = p.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: o.Group, Consumer: o.consumer, Streams: []string{s.Key(o.Index), ">"}, Count: int64(count), Block: -1,
		})
		_ = p.Process(ctx, s.command(ctx, call, false))
		return nil
	})
	if unknownScript(call.cmd.Err()) {
		s.run(ctx, s.rdb, call)
	}
	s.heed(ctx, call.cmd.Err())
	reply, err := o.checked(call)
	if err != nil || reply.Code != shardscript.OK {
		return nil, reply, err // whatever the read did
	}
	streams, err := read.Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, reply, nil
	case err != nil:
		return nil, reply, fmt.Errorf("read shard %d: %w", o.Index, err)
	case len(streams) == 0:
		return nil, reply, nil
	}
	return streams[0].Messages, reply, nil
}

// MakeGroup creates the group of a shard that has lost it, at its start. It never creates a
// stream.
func (s *Shards) MakeGroup(ctx context.Context, o Ownership) (shardscript.Code, error) {
	call := &Call{Name: shardscript.MkGroup, Index: o.Index, Args: shardscript.Arguments{
		Groups: []string{o.Group}, Start: "0", Owner: &o.Owner,
	}.Args()}
	s.Run(ctx, call)
	r, err := parse(call)
	if err != nil {
		return "", fmt.Errorf("make group on shard %d: %w", o.Index, err)
	}
	return r.Code, nil
}

// LastDelivered is the id up to which the group has read the shard.
func (s *Shards) LastDelivered(ctx context.Context, o Ownership) (string, error) {
	groups, err := s.rdb.XInfoGroups(ctx, s.Key(o.Index)).Result()
	if err != nil {
		s.heed(ctx, err)
		return "", fmt.Errorf("groups of shard %d: %w", o.Index, err)
	}
	for _, g := range groups {
		if g.Name == o.Group {
			return g.LastDeliveredID, nil
		}
	}
	return "", fmt.Errorf("shard %d has no group %q", o.Index, o.Group)
}

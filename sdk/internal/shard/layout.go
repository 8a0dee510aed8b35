package shard

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// confirmTimeout bounds the wait for a replica after a pause was ended.
const confirmTimeout = 500 * time.Millisecond

// Control reads the control hash of a shard from its primary.
func (s *Shards) Control(ctx context.Context, index int) (shardscript.Control, error) {
	node, err := s.primary(ctx, index)
	if err != nil {
		return shardscript.Control{}, err
	}
	fields, err := node.HGetAll(ctx, protocol.ControlKey(s.prefix, index)).Result()
	if err != nil {
		s.heed(ctx, err)
		return shardscript.Control{}, fmt.Errorf("control hash of shard %d: %w", index, err)
	}
	c, err := shardscript.ParseControl(fields)
	if err != nil {
		return shardscript.Control{}, fmt.Errorf("control hash of shard %d: %w", index, err)
	}
	return c, nil
}

var connectedReplicas = regexp.MustCompile(`(?m)^connected_slaves:(\d+)`)

// Resolve runs RESOLVE at shard 0 and then, where a replica is connected, waits on the same
// connection until one has what it wrote; only then the answer may be acted upon.
func (s *Shards) Resolve(ctx context.Context, gate string, until, epoch int64) (shardscript.Reply, error) {
	node, err := s.primary(ctx, 0)
	if err != nil {
		return shardscript.Reply{}, err
	}
	conn := node.Conn()
	defer conn.Close() // it goes back to its pool
	call := &Call{Name: shardscript.Resolve, Args: shardscript.Arguments{ID: gate, Until: until, Epoch: epoch}.Args()}
	s.run(ctx, conn, call)
	r, err := parse(call)
	if err != nil {
		return shardscript.Reply{}, fmt.Errorf("resolve at shard 0: %w", err)
	}
	info, err := conn.Info(ctx, "replication").Result()
	if err != nil {
		return shardscript.Reply{}, fmt.Errorf("replicas of shard 0: %w", err)
	}
	if m := connectedReplicas.FindStringSubmatch(info); m != nil && m[1] != "0" {
		confirmed, err := conn.Wait(ctx, 1, confirmTimeout).Result()
		if err != nil {
			return shardscript.Reply{}, fmt.Errorf("confirmation at shard 0: %w", err)
		}
		if confirmed < 1 {
			return shardscript.Reply{}, fmt.Errorf("no replica of shard 0 confirmed the end of the pause within %v", confirmTimeout)
		}
	}
	return r, nil
}

// Bring runs BRING: the layout that shard 0 has, to another shard.
func (s *Shards) Bring(ctx context.Context, index int, epoch int64, count int, gate string) (shardscript.Code, error) {
	call := &Call{
		Name: shardscript.Bring, Index: index,
		Args: shardscript.Arguments{ID: gate, Epoch: epoch, Count: count, Index: index}.Args(),
	}
	s.Run(ctx, call)
	r, err := parse(call)
	if err != nil {
		return "", fmt.Errorf("bring to shard %d: %w", index, err)
	}
	return r.Code, nil
}

// Probe runs APPEND without entries: its checks alone.
func (s *Shards) Probe(ctx context.Context, index int, epoch int64, count int) (shardscript.AppendReply, error) {
	call := &Call{Name: shardscript.Append, Index: index, Args: shardscript.AppendArgs(epoch, count, 0)}
	s.Run(ctx, call)
	v, err := call.Value()
	if err != nil {
		return shardscript.AppendReply{}, fmt.Errorf("probe shard %d: %w", index, err)
	}
	return shardscript.ParseAppend(v)
}

func parse(c *Call) (shardscript.Reply, error) {
	v, err := c.Value()
	if err != nil {
		return shardscript.Reply{}, err
	}
	return shardscript.ParseReply(v)
}

// BareAppends are XADD NOMKSTREAM commands in one pipeline, none of which is repeated.
type BareAppends struct{ cmds []onceString }

// onceString is a command with a short answer that go-redis does not repeat by itself.
type onceString struct{ redis.StringCmd }

// NoRetry is asked by go-redis.
func (*onceString) NoRetry() bool { return true }

// Grow makes room for n commands.
func (b *BareAppends) Grow(n int) { b.cmds = slices.Grow(b.cmds, n) }

// Add queues one; maxLen 0 does not trim.
func (b *BareAppends) Add(ctx context.Context, key string, maxLen int64, fields []any) {
	args := make([]any, 0, 7+len(fields))
	args = append(args, "xadd", key, "nomkstream")
	if maxLen > 0 {
		args = append(args, "maxlen", "~", strconv.FormatInt(maxLen, 10))
	}
	args = append(append(args, "*"), fields...)
	b.cmds = append(b.cmds, onceString{*redis.NewStringCmd(ctx, args...)})
}

// Result of the i-th: its id; redis.Nil when the key does not exist.
func (b *BareAppends) Result(i int) (string, error) { return b.cmds[i].Result() }

// RunBare sends them.
func (s *Shards) RunBare(ctx context.Context, b *BareAppends) {
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // every command keeps its error
		for i := range b.cmds {
			_ = p.Process(ctx, &b.cmds[i])
		}
		return nil
	})
	for i := range b.cmds {
		s.heed(ctx, b.cmds[i].Err())
	}
}

package shard

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Shards are the shards of one stream. It is safe for concurrent use.
type Shards struct {
	rdb    redis.UniversalClient
	prefix string
}

// New checks that the client is one that the SDK knows how to use.
func New(rdb redis.UniversalClient, streamPrefix string) (*Shards, error) {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		return &Shards{rdb: rdb, prefix: streamPrefix}, nil
	case nil:
		return nil, fmt.Errorf("no Redis client")
	}
	return nil, fmt.Errorf("a Redis client of type %T cannot be used: *redis.Client (also from NewFailoverClient) or *redis.ClusterClient is wanted", rdb)
}

// Key is the Redis key of a shard.
func (s *Shards) Key(index int) string { return protocol.ShardKey(s.prefix, index) }

// Clustered says whether shards are on several nodes.
func (s *Shards) Clustered() bool {
	_, ok := s.rdb.(*redis.ClusterClient)
	return ok
}

// primary is the client of the node that serves a shard now.
func (s *Shards) primary(ctx context.Context, index int) (*redis.Client, error) {
	if c, ok := s.rdb.(*redis.ClusterClient); ok {
		node, err := c.MasterForKey(ctx, s.Key(index))
		if err != nil {
			return nil, fmt.Errorf("node of shard %d: %w", index, err)
		}
		return node, nil
	}
	return s.rdb.(*redis.Client), nil //nolint:forcetypeassert // New has checked it
}

// shaOf holds the SHA1 of every script.
var shaOf = func() map[shardscript.Name]string {
	all := map[shardscript.Name]string{}
	for _, name := range shardscript.Names() {
		sum := sha1.Sum([]byte(shardscript.Source(name))) //nolint:gosec // as above
		all[name] = hex.EncodeToString(sum[:])
	}
	return all
}()

// once is a command that go-redis does not repeat by itself: it may have been executed
// although its reply was lost.
type once struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// Call is one script on one shard.
type Call struct {
	Name  shardscript.Name
	Index int
	Args  []any

	cmd once
}

func (s *Shards) command(ctx context.Context, c *Call, bySource bool) once {
	args := make([]any, 0, 5+len(c.Args))
	if bySource {
		args = append(args, "eval", shardscript.Source(c.Name))
	} else {
		args = append(args, "evalsha", shaOf[c.Name])
	}
	args = append(args, 2, s.Key(c.Index), protocol.ControlKey(s.prefix, c.Index))
	args = append(args, c.Args...)
	c.cmd = once{redis.NewCmd(ctx, args...)}
	return c.cmd
}

// Value is what the script answered.
func (c *Call) Value() (any, error) { return c.cmd.Result() }

func unknownScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// Run executes calls in one pipeline for each node. Every call has its own outcome.
func (s *Shards) Run(ctx context.Context, calls ...*Call) {
	s.run(ctx, s.rdb, calls...)
}

// processor is a client, a connection or a node.
type processor interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
	Process(ctx context.Context, cmd redis.Cmder) error
}

func (s *Shards) run(ctx context.Context, to processor, calls ...*Call) {
	if len(calls) == 1 {
		_ = to.Process(ctx, s.command(ctx, calls[0], false)) // the command keeps its error
	} else {
		_, _ = to.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, c := range calls {
				_ = p.Process(ctx, s.command(ctx, c, false))
			}
			return nil
		})
	}
	for _, c := range calls { // a node that has not seen the script: nothing ran there
		if unknownScript(c.cmd.Err()) {
			_ = to.Process(ctx, s.command(ctx, c, true))
		}
	}
	for _, c := range calls {
		s.heed(ctx, c.cmd.Err())
	}
}

// heed has a cluster's client ask anew where the slots are, in the background, when err says that
// a node is gone or is no primary any more. By itself the client does that when another node tells
// it, which nobody does who speaks to the dead one alone, or once a minute.
func (s *Shards) heed(ctx context.Context, err error) {
	c, ok := s.rdb.(*redis.ClusterClient)
	if !ok || err == nil || errors.Is(err, redis.Nil) {
		return
	}
	var reply redis.Error
	if errors.As(err, &reply) && !slices.ContainsFunc([]string{"MOVED ", "READONLY ", "CLUSTERDOWN "}, func(prefix string) bool {
		return strings.HasPrefix(reply.Error(), prefix)
	}) {
		return
	}
	c.ReloadState(context.WithoutCancel(ctx)) // returns at once
}

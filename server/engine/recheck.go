package engine

import (
	"context"
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Recheck reads a resharding with its certificate compared with Redis as it is now. The shards
// are looked at by the caller's goroutine: the actor goes on meanwhile.
func (e *Engine) Recheck(ctx context.Context, prefix, id string) (protocol.Resharding, error) {
	var (
		view      protocol.Resharding
		state     *stream.State
		pass      stream.Pass
		revision  int64
		checkedAt protocol.Instant
	)
	c := newCommand(func(t *aggregate.Turn) (refused *protocol.Error) {
		if state = t.Stream(); state == nil {
			return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
		}
		if pass, refused = stream.PlanRecheck(state, id); refused != nil {
			return refused
		}
		view = *stream.ReshardingOf(state, id)
		return nil
	})
	c.inspect = func(a *actor) {
		if a.cache != nil { // proven by the turn that has just been committed
			revision, checkedAt = a.cache.streamToken.Revision, a.cache.checkedAt
		}
	}
	if err := asError(e.do(ctx, prefix, c)); err != nil {
		return protocol.Resharding{}, err
	}
	res := e.cfg.Store.RunPass(ctx, prefix, revision, checkedAt, pass)
	check := stream.Recheck(state, id, res, max(res.StartedAt, checkedAt)) // without a start no shard was reached
	view.Recheck = &check
	return view, nil
}

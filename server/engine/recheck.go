package engine

import (
	"context"
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Recheck reads a resharding with its certificate compared with Redis as it is now.
func (e *Engine) Recheck(ctx context.Context, prefix, id string) (protocol.Resharding, error) {
	s, err := e.look(ctx, prefix)
	if err != nil {
		return protocol.Resharding{}, err
	}
	state := s.unit.Stream
	if state == nil {
		return protocol.Resharding{}, protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
	}
	pass, refused := stream.PlanRecheck(state, id)
	if refused != nil {
		return protocol.Resharding{}, refused
	}
	res, err := e.probeShards(ctx, prefix, s, pass)
	if err != nil {
		return protocol.Resharding{}, err
	}
	view := *stream.ReshardingOf(state, id, s.now)
	check := stream.Recheck(state, id, res, max(res.StartedAt, s.checkedAt)) // without a start no shard was reached
	view.Recheck = &check
	return view, nil
}

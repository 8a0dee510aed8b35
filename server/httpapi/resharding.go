package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

var phases = []protocol.Phase{
	protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating,
	protocol.PhaseOpening, protocol.PhaseDrainingRemoved, protocol.PhaseConverging, protocol.PhaseRetiring,
	protocol.PhaseRollingBack, protocol.PhaseCompleted, protocol.PhaseRolledBack, protocol.PhaseFailed,
}

func (h *Handler) listReshardings(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	list, err := h.engine.Reshardings(ctx, prefix)
	if list == nil {
		list = []protocol.Resharding{}
	}
	return ok(protocol.ReshardingList{Reshardings: list}), err
}

// getResharding is held up to maxWaitMs while the resharding is in seenPhase. With recheck its
// certificate is compared with Redis as it is now.
func (h *Handler) getResharding(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	id, err := c.resharding()
	if err != nil {
		return reply{}, err
	}
	q := c.query()
	seen := protocol.Phase(q.text("seenPhase"))
	wait := q.wait("maxWaitMs")
	recheck := q.flag("recheck")
	switch {
	case seen != "" && !slices.Contains(phases, seen):
		q.refuse("seenPhase", "is not a phase")
	case seen != "" && recheck:
		q.refuse("recheck", "cannot be held for a phase: leave seenPhase out")
	}
	if q.err != nil {
		return reply{}, q.err
	}
	if recheck {
		resharding, err := h.engine.Recheck(ctx, prefix, id)
		return ok(resharding), err
	}
	if seen == "" {
		wait = 0 // nothing to wait for
	}
	resharding, err := hold(ctx, h, wait, func(ctx context.Context, wait time.Duration) (protocol.Resharding, error) {
		return h.engine.Resharding(ctx, prefix, id, seen, wait)
	})
	return ok(resharding), err
}

func (h *Handler) rollbackResharding(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	resharding, err := h.rollback(ctx, c, prefix, strict)
	return reply{status: http.StatusAccepted, body: resharding}, err
}

// rollback is shared by our own call and the reference's.
func (h *Handler) rollback(ctx context.Context, c *call, prefix string, mode strictness) (protocol.Resharding, error) {
	id, err := c.resharding()
	if err != nil {
		return protocol.Resharding{}, err
	}
	var body protocol.RollbackRequest
	if err := c.decode(&body, mode); err != nil {
		return protocol.Resharding{}, err
	}
	if err := requester(body.RequestedBy, body.Reason); err != nil {
		return protocol.Resharding{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return protocol.Resharding{}, err
	}
	return h.engine.Rollback(ctx, prefix, id, m)
}

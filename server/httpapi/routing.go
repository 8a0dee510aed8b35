package httpapi

import (
	"context"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// getRouting is held up to maxWaitMs while version, the routingVersion that the client has, is
// current.
func (h *Handler) getRouting(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	q := c.query()
	version, wait, producer, fenced := q.number("version", 0), q.wait("maxWaitMs"), q.text("producerId"), q.flag("fenced")
	if q.err != nil {
		return reply{}, q.err
	}
	if producer != "" {
		if refused := protocol.CheckName("producerId", producer); refused != nil {
			return reply{}, refused
		}
	}
	if version == 0 {
		wait = 0 // the client has nothing yet
	}
	routing, err := hold(ctx, h, wait, func(ctx context.Context, wait time.Duration) (protocol.Routing, error) {
		return h.engine.Routing(ctx, prefix, version, wait, producer, fenced)
	})
	return ok(routing), err
}

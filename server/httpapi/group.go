package httpapi

import (
	"context"
	"net/http"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func (h *Handler) getGroup(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	group, err := h.engine.Group(ctx, prefix, name)
	return groupReply(c, http.StatusOK, group), err
}

// groupReply answers with a group and its generation as entity tag.
func groupReply(c *call, status int, g protocol.Group) reply {
	if g.Generation > 0 {
		c.w.Header().Set("ETag", etag(g.Generation))
	}
	return reply{status: status, body: g}
}

// putGroup declares the desired state of a group; it is ready when this is answered.
func (h *Handler) putGroup(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	var body protocol.PutGroupRequest
	if err := c.decode(&body, strict); err != nil {
		return reply{}, err
	}
	spec := body.WithDefaults()
	if refused := spec.Check(); refused != nil {
		return reply{}, refused
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	group, created, err := h.engine.PutGroup(ctx, prefix, name, spec, m)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	if err != nil {
		return reply{}, err
	}
	return groupReply(c, status, group), nil
}

// createGroup is the reference's way to register a group.
func (h *Handler) createGroup(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	count, err := h.decodeCreate(c)
	if err != nil {
		return reply{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	group, err := h.engine.CreateGroup(ctx, prefix, name, count, m)
	return reply{status: http.StatusCreated, body: group}, err
}

// deleteGroup deletes a group and answers with what it was. Its body is mandatory.
func (h *Handler) deleteGroup(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	var body protocol.DeleteGroupRequest
	if err := c.decode(&body, lenient); err != nil {
		return reply{}, err
	}
	if err := requester(body.RequestedBy, body.Reason); err != nil {
		return reply{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	group, err := h.engine.DeleteGroup(ctx, prefix, name, body.Force, m)
	return ok(group), err
}

// previewGroupRemoval is deleteGroup with dryRun=true: a read, which says what the call would do.
// Its body may be left out, since nobody is recorded.
func (h *Handler) previewGroupRemoval(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	var body protocol.RemovalPreviewRequest
	if err := c.decodeOptional(&body, lenient); err != nil {
		return reply{}, err
	}
	if err := checkIdempotencyKey(c.r.Header); err != nil {
		return reply{}, err
	}
	generation, err := ifMatch(c.r.Header)
	if err != nil {
		return reply{}, err
	}
	preview, err := h.engine.PreviewGroupRemoval(ctx, prefix, name, body.Force, generation)
	if err == nil {
		c.w.Header().Set("ETag", etag(preview.Generation))
	}
	return ok(preview), err
}

// scaleGroup changes the shard count of the stream that the group belongs to: all groups of a
// stream share its shards.
func (h *Handler) scaleGroup(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	count, err := decodeScale(c)
	if err != nil {
		return reply{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	if _, err := h.engine.Group(ctx, prefix, name); err != nil {
		return reply{}, err
	}
	resharding, err := h.engine.Scale(ctx, prefix, count, m)
	return reply{status: http.StatusAccepted, body: migration(resharding)}, err
}

func (h *Handler) getProducerRouting(ctx context.Context, c *call) (reply, error) {
	prefix, name, err := c.group()
	if err != nil {
		return reply{}, err
	}
	routing, err := h.engine.ProducerRouting(ctx, prefix, name)
	return ok(routing), err
}

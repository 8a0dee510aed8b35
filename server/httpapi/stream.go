package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func (h *Handler) listStreams(ctx context.Context, _ *call) (reply, error) {
	list, err := h.engine.Streams(ctx)
	return ok(list), err
}

func (h *Handler) getStream(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	stream, err := h.engine.Stream(ctx, prefix)
	return streamReply(c, http.StatusOK, stream), err
}

// streamReply answers with a stream and its generation as entity tag.
func streamReply(c *call, status int, s protocol.Stream) reply {
	if s.Generation > 0 {
		c.w.Header().Set("ETag", etag(s.Generation))
	}
	return reply{status: status, body: s}
}

// putStream declares the desired state: 201 created, 202 with the resharding that leads there,
// 200 when nothing is left to do.
func (h *Handler) putStream(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	spec, err := c.streamSpec()
	if err != nil {
		return reply{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	done, err := h.engine.PutStream(ctx, prefix, spec, m)
	if err != nil {
		return reply{}, err
	}
	here := Base + "/streams/" + url.PathEscape(prefix)
	switch {
	case done.Created:
		c.w.Header().Set("Location", here)
		return streamReply(c, http.StatusCreated, done.Stream), nil
	case done.ReshardingID != "":
		c.w.Header().Set("Location", here+"/reshardings/"+url.PathEscape(done.ReshardingID))
		return streamReply(c, http.StatusAccepted, done.Stream), nil
	}
	return streamReply(c, http.StatusOK, done.Stream), nil
}

// previewStream is putStream with dryRun=true: a read, which says what the call would do.
func (h *Handler) previewStream(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	spec, err := c.streamSpec()
	if err != nil {
		return reply{}, err
	}
	if err := checkIdempotencyKey(c.r.Header); err != nil {
		return reply{}, err
	}
	generation, err := ifMatch(c.r.Header)
	if err != nil {
		return reply{}, err
	}
	preview, err := h.engine.PreviewStream(ctx, prefix, spec, generation)
	if err == nil && preview.Generation > 0 {
		c.w.Header().Set("ETag", etag(preview.Generation))
	}
	return ok(preview), err
}

// streamSpec decodes and checks the body that declares a stream.
func (c *call) streamSpec() (protocol.StreamSpec, error) {
	var body protocol.PutStreamRequest
	if err := c.decode(&body, strict); err != nil {
		return protocol.StreamSpec{}, err
	}
	count, err := shardCount("shardCount", body.ShardCount, 0)
	if err != nil {
		return protocol.StreamSpec{}, err
	}
	for _, g := range body.Resharding.IgnoreGroups {
		if refused := protocol.CheckName("resharding.ignoreGroups", g); refused != nil {
			return protocol.StreamSpec{}, refused
		}
	}
	if refused := body.Retention.Check("retention"); refused != nil {
		return protocol.StreamSpec{}, refused
	}
	return protocol.StreamSpec{ShardCount: count, Resharding: body.Resharding, Retention: body.Retention}, nil
}

// createStream is the reference's way to make a stream and the group of its name.
func (h *Handler) createStream(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
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
	stream, err := h.engine.CreateStream(ctx, prefix, count, m)
	return reply{status: http.StatusCreated, body: protocol.StreamCreateResponse{
		StreamPrefix: prefix, ShardCount: stream.Status.ShardCount, MetadataVersion: stream.MetadataVersion,
	}}, err
}

// decodeCreate reads the body of both create calls.
func (h *Handler) decodeCreate(c *call) (count int, err error) {
	var body protocol.CreateRequest
	if err := c.decode(&body, lenient); err != nil {
		return 0, err
	}
	if err := notBlank("requestedBy", body.RequestedBy); err != nil {
		return 0, err
	}
	if body.InitialShardCount == nil {
		return h.cfg.DefaultShardCount, nil
	}
	return shardCount("initialShardCount", body.InitialShardCount, 1)
}

func (h *Handler) deleteStream(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	var body protocol.DeleteStreamRequest
	if err := c.decodeOptional(&body, strict); err != nil {
		return reply{}, err
	}
	if body.Force && body.Confirm != prefix {
		return reply{}, protocol.Invalid("confirm", "must repeat the stream prefix, since force drops what is left undelivered")
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusNoContent}, h.engine.DeleteStream(ctx, prefix, body.Force, m)
}

// scaleStream is the reference's way to change the shard count, answered once for each group.
func (h *Handler) scaleStream(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
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
	resharding, err := h.engine.Scale(ctx, prefix, count, m)
	if err != nil {
		return reply{}, err
	}
	answer := protocol.StreamScaleResponse{
		StreamPrefix: prefix, TargetShardCount: count,
		AffectedConsumerGroups: []string{}, Migrations: []protocol.Migration{},
	}
	// The change is stored: what cannot be read for show does not make it a failure.
	if stream, err := h.engine.Stream(ctx, prefix); err == nil {
		answer.AffectedConsumerGroups = append(answer.AffectedConsumerGroups, stream.Groups...)
	}
	for range answer.AffectedConsumerGroups {
		answer.Migrations = append(answer.Migrations, migration(resharding))
	}
	return reply{status: http.StatusAccepted, body: answer}, nil
}

// decodeScale reads the body of both scale calls.
func decodeScale(c *call) (count int, err error) {
	var body protocol.ScaleRequest
	if err := c.decode(&body, lenient); err != nil {
		return 0, err
	}
	if err := requester(body.RequestedBy, body.Reason); err != nil {
		return 0, err
	}
	return shardCount("targetShardCount", body.TargetShardCount, 0)
}

// requester checks the two texts that the reference's mutations must carry.
func requester(requestedBy, reason string) error {
	if err := notBlank("requestedBy", requestedBy); err != nil {
		return err
	}
	return notBlank("reason", reason)
}

func (h *Handler) pausePublishing(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	var body protocol.PauseRequest
	if err := c.decode(&body, strict); err != nil {
		return reply{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	stream, err := h.engine.Pause(ctx, prefix, time.Duration(body.TimeoutMs)*time.Millisecond, m)
	return streamReply(c, http.StatusOK, stream), err
}

func (h *Handler) resumePublishing(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	var body protocol.ResumeRequest
	if err := c.decodeOptional(&body, strict); err != nil {
		return reply{}, err
	}
	m, err := h.mutation(c)
	if err != nil {
		return reply{}, err
	}
	stream, err := h.engine.Resume(ctx, prefix, m)
	return streamReply(c, http.StatusOK, stream), err
}

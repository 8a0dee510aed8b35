package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// shardsHold is how long the coordinator lets a call about a group wait for its shards before it
// answers that it goes on by itself. Its answer would come to nobody within CallTimeout alone.
const shardsHold = 15 * time.Second

// PutGroup declares the desired state of a consumer group; it returns when the group is ready.
// REDIS_STREAM_PROVISIONING_FAILED says that it is registered, and that it is not ready yet. call.IfMatch is a
// generation of the group.
func (c *Client) PutGroup(ctx context.Context, prefix, group string, body protocol.PutGroupRequest, call Call) (g protocol.Group, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodPut, path: []string{"streams", prefix, "groups", group}, body: body, call: call,
		repeatable: call.IfMatch == 0, // a second one would find the generation of the first
		hold:       shardsHold,
	}, &g)
	return g, err
}

// Group reads one group.
func (c *Client) Group(ctx context.Context, prefix, group string) (g protocol.Group, err error) {
	err = c.get(ctx, &g, "streams", prefix, "groups", group)
	return g, err
}

// DeleteGroup deletes a group and its Redis consumer groups; it returns when no shard has it any
// more. Without body.Force it is refused with GROUP_HAS_ACTIVE_MEMBERS while a member lives, and
// with GROUP_NOT_EMPTY while entries are pending or undelivered. call.IfMatch is a generation of the
// group; with MustBeNew nothing is deleted: it waits until the Redis consumer groups of one that was
// deleted are gone, and ends with GROUP_NOT_FOUND then.
func (c *Client) DeleteGroup(ctx context.Context, prefix, group string, body protocol.DeleteGroupRequest, call Call) error {
	_, err := c.do(ctx, &request{
		method: http.MethodDelete, path: []string{"streams", prefix, "groups", group}, body: body, call: call, hold: shardsHold,
	}, new(protocol.Group))
	return err
}

// PreviewGroupRemoval is what DeleteGroup with the same force would do, as far as it can be known;
// it changes nothing. The role READ is enough. The request names nobody, which a removal must: one
// that loses its query on the way is refused instead of carried out.
func (c *Client) PreviewGroupRemoval(ctx context.Context, prefix, group string, force bool, call Call) (p protocol.RemovalPreview, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodDelete, path: []string{"streams", prefix, "groups", group}, query: url.Values{"dryRun": {"true"}},
		body: protocol.RemovalPreviewRequest{Force: force}, call: call, repeatable: true,
	}, &p)
	return p, err
}

// Heartbeat sends one heartbeat, once. It returns the instant at which it was sent: leases are
// measured from there (rule M2).
func (c *Client) Heartbeat(ctx context.Context, prefix, group string, req protocol.HeartbeatRequest) (resp protocol.HeartbeatResponse, sent time.Time, err error) {
	sent = time.Now()
	_, err = c.do(ctx, &request{
		method: http.MethodPost, path: []string{"streams", prefix, "groups", group, "members", req.MemberID, "heartbeat"},
		body: req, hold: time.Duration(req.MaxWaitMs) * time.Millisecond, once: true,
	}, &resp)
	return resp, sent, err
}

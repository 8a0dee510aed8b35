package client

import (
	"context"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Groups lists the consumer groups of all streams.
func (c *Client) Groups(ctx context.Context) (l protocol.GroupList, err error) {
	err = c.get(ctx, &l, "monitoring", "groups")
	return l, err
}

// Retention reads what the groups of a stream have lost to its retention, and otherwise.
func (c *Client) Retention(ctx context.Context, prefix string) (r protocol.RetentionReport, err error) {
	err = c.get(ctx, &r, "monitoring", "streams", prefix, "retention")
	return r, err
}

// Health asks the replica that answers how it is; it answers also while Redis is away.
func (c *Client) Health(ctx context.Context) (h protocol.Health, err error) {
	err = c.get(ctx, &h, "monitoring", "health")
	return h, err
}

// Compatibility reads which versions of the heartbeat protocol the coordinator speaks.
func (c *Client) Compatibility(ctx context.Context) (v protocol.Compatibility, err error) {
	err = c.get(ctx, &v, "monitoring", "compatibility")
	return v, err
}

// Session reads as whom the coordinator knows the caller.
func (c *Client) Session(ctx context.Context) (s protocol.Session, err error) {
	err = c.get(ctx, &s, "monitoring", "session")
	return s, err
}

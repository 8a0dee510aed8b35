package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Reshardings lists the reshardings of a stream, newest first.
func (c *Client) Reshardings(ctx context.Context, prefix string) (l protocol.ReshardingList, err error) {
	err = c.get(ctx, &l, "streams", prefix, "reshardings")
	return l, err
}

// Resharding reads one; maxWait > 0 holds the call until its phase is no longer seenPhase.
func (c *Client) Resharding(ctx context.Context, prefix, id string, seenPhase protocol.Phase, maxWait time.Duration) (r protocol.Resharding, err error) {
	query := url.Values{}
	if seenPhase != "" && maxWait > 0 {
		query.Set("seenPhase", string(seenPhase))
		query.Set("maxWaitMs", strconv.FormatInt(maxWait.Milliseconds(), 10))
	}
	_, err = c.do(ctx, &request{
		method: http.MethodGet, path: []string{"streams", prefix, "reshardings", id}, query: query,
		hold: max(maxWait, 0), repeatable: true,
	}, &r)
	return r, err
}

// RecheckResharding reads one with its certificate compared with Redis as it is now: Recheck of
// the answer is set. CERTIFICATE_NOT_FOUND where there is no certificate to compare.
func (c *Client) RecheckResharding(ctx context.Context, prefix, id string) (r protocol.Resharding, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodGet, path: []string{"streams", prefix, "reshardings", id},
		query: url.Values{"recheck": {"true"}}, repeatable: true,
	}, &r)
	return r, err
}

// Rollback asks for the end of a resharding.
func (c *Client) Rollback(ctx context.Context, prefix, id string, body protocol.RollbackRequest, call Call) (r protocol.Resharding, err error) {
	_, err = c.do(ctx, &request{
		method: http.MethodPost, path: []string{"streams", prefix, "reshardings", id, "rollback"}, body: body, call: call,
	}, &r)
	return r, err
}

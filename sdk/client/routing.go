package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// RoutingQuery asks for a routing; it is held up to MaxWait while Version is current.
type RoutingQuery struct {
	Version    int64 // RoutingVersion of the answer that the caller has, 0 for none
	MaxWait    time.Duration
	ProducerID string
	Fenced     bool
	// Once sends the request a single time: the caller has its own way on when it fails.
	Once bool
}

// Routing reads a producer's routing.
func (c *Client) Routing(ctx context.Context, prefix string, q RoutingQuery) (r protocol.Routing, err error) {
	query := url.Values{}
	if q.Version != 0 {
		query.Set("version", strconv.FormatInt(q.Version, 10))
	}
	if q.MaxWait > 0 {
		query.Set("maxWaitMs", strconv.FormatInt(q.MaxWait.Milliseconds(), 10))
	}
	if q.ProducerID != "" {
		query.Set("producerId", q.ProducerID)
	}
	if q.Fenced {
		query.Set("fenced", "true")
	}
	_, err = c.do(ctx, &request{
		method: http.MethodGet, path: []string{"streams", prefix, "routing"}, query: query,
		hold: q.MaxWait, repeatable: true, once: q.Once,
	}, &r)
	return r, err
}

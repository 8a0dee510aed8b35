package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// AuditQuery selects audit events; zero values select all. RequestID is the coordinator's id of a request, or the one that
// its client gave it, which several requests may share.
type AuditQuery struct {
	StreamPrefix, ConsumerGroup, Principal, Action, Outcome, RequestID, ReshardingID, Fingerprint string
	From, To                                                                                      time.Time
	Cursor                                                                                        string
	Limit                                                                                         int
}

// AuditEvents lists audit events, newest first.
func (c *Client) AuditEvents(ctx context.Context, q AuditQuery) (l protocol.AuditList, err error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"streamPrefix": q.StreamPrefix, "consumerGroup": q.ConsumerGroup, "principal": q.Principal, "action": q.Action,
		"outcome": q.Outcome, "requestId": q.RequestID, "reshardingId": q.ReshardingID, "fingerprint": q.Fingerprint,
		"cursor": q.Cursor,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, at := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	_, err = c.do(ctx, &request{method: http.MethodGet, path: []string{"audit", "events"}, query: query, repeatable: true}, &l)
	return l, err
}

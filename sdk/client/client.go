// Package client is the typed HTTP client of the coordinator, for the SDK's runtimes, the
// Terraform provider, command-line tools and users' own programs.
package client

import (
	"context"
	"net/http"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Config of a Client. Zero values mean the defaults given.
type Config struct {
	// Endpoints are base URLs (scheme, host, optional path) of coordinators or of a balancer.
	// More than one: the next is tried when one cannot be reached. Required.
	Endpoints []string
	// Username and Password are sent as Basic credentials; Token as a bearer token instead.
	Username, Password, Token string
	// HTTPClient does the calls. Default: a client of its own without overall timeout (calls
	// may be held); every call is bounded by its context or CallTimeout plus its hold.
	HTTPClient *http.Client
	// CallTimeout bounds one attempt without a hold. Default 10 s.
	CallTimeout time.Duration
	// Retries of idempotent calls and of 429/503, with back-off, full jitter and Retry-After.
	// Default 4; negative: none. Heartbeats are never retried: their caller decides.
	Retries int
	// UserAgent is put before the client's own.
	UserAgent string
}

// Client is safe for concurrent use.
type Client struct{ cfg Config }

// New validates cfg. It sends nothing.
func New(cfg Config) (*Client, error) { panic("not built yet") }

// Call is the per-call extras of a mutation.
type Call struct {
	IfMatch        int64  // generation that the caller saw; 0: any
	IdempotencyKey string // sent as Idempotency-Key
	RequestID      string // sent as X-Request-Id
}

// PutResult is what a PUT did.
type PutResult struct {
	Stream       protocol.Stream
	Created      bool   // 201
	Resharding   bool   // 202: a resharding is running towards the wanted count
	ReshardingID string // its id
}

// PutStream declares the desired state of a stream.
func (c *Client) PutStream(ctx context.Context, prefix string, body protocol.PutStreamRequest, call Call) (PutResult, error) {
	panic("not built yet")
}

// Stream reads one stream.
func (c *Client) Stream(ctx context.Context, prefix string) (protocol.Stream, error) {
	panic("not built yet")
}

// Streams lists all.
func (c *Client) Streams(ctx context.Context) (protocol.StreamList, error) { panic("not built yet") }

// DeleteStream deletes an empty stream.
func (c *Client) DeleteStream(ctx context.Context, prefix string, body protocol.DeleteStreamRequest, call Call) error {
	panic("not built yet")
}

// PutGroup declares the desired state of a consumer group; it returns when the group is ready.
func (c *Client) PutGroup(ctx context.Context, prefix, group string, body protocol.PutGroupRequest, call Call) (protocol.Group, error) {
	panic("not built yet")
}

// Group reads one group.
func (c *Client) Group(ctx context.Context, prefix, group string) (protocol.Group, error) {
	panic("not built yet")
}

// DeleteGroup forgets a group.
func (c *Client) DeleteGroup(ctx context.Context, prefix, group string, body protocol.DeleteGroupRequest, call Call) error {
	panic("not built yet")
}

// Heartbeat sends one heartbeat, once. It returns the instant at which it was sent: leases are
// measured from there (rule M2).
func (c *Client) Heartbeat(ctx context.Context, prefix, group string, req protocol.HeartbeatRequest) (resp protocol.HeartbeatResponse, sent time.Time, err error) {
	panic("not built yet")
}

// RoutingQuery asks for a routing; it is held up to MaxWait while Version is current.
type RoutingQuery struct {
	Version    int64 // RoutingVersion of the answer that the caller has, 0 for none
	MaxWait    time.Duration
	ProducerID string
	Fenced     bool
}

// Routing reads a producer's routing.
func (c *Client) Routing(ctx context.Context, prefix string, q RoutingQuery) (protocol.Routing, error) {
	panic("not built yet")
}

// Reshardings lists the reshardings of a stream, newest first.
func (c *Client) Reshardings(ctx context.Context, prefix string) (protocol.ReshardingList, error) {
	panic("not built yet")
}

// Resharding reads one; maxWait > 0 holds the call until its phase is no longer seenPhase.
func (c *Client) Resharding(ctx context.Context, prefix, id string, seenPhase protocol.Phase, maxWait time.Duration) (protocol.Resharding, error) {
	panic("not built yet")
}

// Rollback asks for the end of a resharding.
func (c *Client) Rollback(ctx context.Context, prefix, id string, body protocol.RollbackRequest, call Call) (protocol.Resharding, error) {
	panic("not built yet")
}

// PausePublishing is the operator's pause.
func (c *Client) PausePublishing(ctx context.Context, prefix string, body protocol.PauseRequest, call Call) (protocol.Stream, error) {
	panic("not built yet")
}

// ResumePublishing ends the operator's pause.
func (c *Client) ResumePublishing(ctx context.Context, prefix string, body protocol.ResumeRequest, call Call) (protocol.Stream, error) {
	panic("not built yet")
}

// AuditQuery selects audit events; zero values select all.
type AuditQuery struct {
	StreamPrefix, ConsumerGroup, Principal, Action, Outcome, RequestID, ReshardingID, Fingerprint string
	From, To                                                                                      time.Time
	Cursor                                                                                        string
	Limit                                                                                         int
}

// AuditEvents lists audit events, newest first.
func (c *Client) AuditEvents(ctx context.Context, q AuditQuery) (protocol.AuditList, error) {
	panic("not built yet")
}

// Login exchanges credentials for a bearer token.
func (c *Client) Login(ctx context.Context, username, password string) (protocol.LoginResponse, error) {
	panic("not built yet")
}

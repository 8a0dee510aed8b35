// Package engine is the shell around the pure core: one actor for each active stream in each
// replica takes commands, applies them in batches, commits once, answers, and runs the effects
// that the state calls for.
package engine

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// Config of an Engine. Store, CoordinatorID and Logger are required.
type Config struct {
	Store         *redisstore.Store
	CoordinatorID string
	Logger        *zap.Logger
	Registerer    prometheus.Registerer // nil: metrics are not exported
	RoutingLease  time.Duration         // leaseMs of routing answers; default 30 s
	SweepInterval time.Duration         // default 10 s
	TickerTTL     time.Duration         // soft lock of a stream's periodic work; default 3 s
	// RetentionInterval is how often a stream's retention is carried out, give or take a fifth;
	// default 5 s.
	RetentionInterval time.Duration
	// ObservationWindow is how long a dry run watches acknowledgements when there is a backlog to
	// drain; default 500 ms, negative: not at all.
	ObservationWindow time.Duration
}

// MustBeNew as Mutation.IfMatch asks for a creation of the stream or group and for nothing else.
const MustBeNew = stream.MustBeNew

// Mutation is what every admin call carries besides its own arguments. Audit is appended in the
// commit that makes the change (or proves that nothing was to change); Status and Outcome are
// filled in by the engine. A refused or failed call is not audited by the engine: the caller
// records it with Audit.
type Mutation struct {
	Audit   protocol.AuditEvent
	IfMatch int64 // generation that the caller saw, of the group for PutGroup and DeleteGroup; 0: any, MustBeNew: none
	// Audited is set once Audit is stored, so that a call that fails later, while it waits for
	// what it began, is not recorded twice. May be nil.
	Audited *atomic.Bool
}

// PutStreamResult is what PutStream did: HTTP 201, 202 or 200.
type PutStreamResult struct {
	Stream       protocol.Stream
	Created      bool
	ReshardingID string // not "" when a resharding towards the wanted count is running
}

// API is what package httpapi needs of an Engine; Engine implements it. Errors are
// *protocol.Error. Calls end when ctx does, but for a commit that is under way.
type API interface {
	// Heartbeat never fails: when it cannot be decided the status is RETRY.
	// memberID is that of the path.
	Heartbeat(ctx context.Context, prefix, group, memberID string, req *protocol.HeartbeatRequest) protocol.HeartbeatResponse
	// Routing is held up to maxWait while version is current. producerID "" is an unknown client.
	Routing(ctx context.Context, prefix string, version int64, maxWait time.Duration, producerID string, fenced bool) (protocol.Routing, error)
	// ProducerRouting answers the reference's producers: PUBLISHING_PAUSED while paused.
	ProducerRouting(ctx context.Context, prefix, group string) (protocol.ProducerRouting, error)

	PutStream(ctx context.Context, prefix string, spec protocol.StreamSpec, m Mutation) (PutStreamResult, error)
	// PreviewStream is what PutStream would do, as far as it can be known; it changes nothing.
	PreviewStream(ctx context.Context, prefix string, spec protocol.StreamSpec, ifMatch int64) (protocol.Preview, error)
	Stream(ctx context.Context, prefix string) (protocol.Stream, error)
	// Streams lists all that can be read, and names those whose stored state cannot.
	Streams(ctx context.Context) (protocol.StreamList, error)
	// Retention tells what the stream's groups have lost to its retention, and otherwise.
	Retention(ctx context.Context, prefix string) (protocol.RetentionReport, error)
	DeleteStream(ctx context.Context, prefix string, force bool, m Mutation) error
	// CreateStream is the reference's POST: STREAM_PREFIX_ALREADY_EXISTS when it exists. It
	// waits until the layout is in force and the group named like the prefix is ready.
	CreateStream(ctx context.Context, prefix string, shardCount int, m Mutation) (protocol.Stream, error)

	// PutGroup waits until the group is ready. created: 201. GENERATION_MISMATCH as Mutation.IfMatch
	// has it, here and with DeleteGroup.
	PutGroup(ctx context.Context, prefix, group string, spec protocol.GroupSpec, m Mutation) (g protocol.Group, created bool, err error)
	// CreateGroup is the reference's POST: GROUP_ALREADY_EXISTS when it exists; it creates the
	// stream with shardCount when there is none, and refuses another count than the stream has.
	CreateGroup(ctx context.Context, prefix, group string, shardCount int, m Mutation) (protocol.Group, error)
	Group(ctx context.Context, prefix, group string) (protocol.Group, error)
	Groups(ctx context.Context) ([]protocol.Group, error)
	// DeleteGroup returns the group as it was, when its Redis consumer groups have gone from every
	// shard. Without force: GROUP_HAS_ACTIVE_MEMBERS, GROUP_NOT_EMPTY.
	DeleteGroup(ctx context.Context, prefix, group string, force bool, m Mutation) (protocol.Group, error)
	// PreviewGroupRemoval is what DeleteGroup would do, as far as it can be known; it changes nothing.
	PreviewGroupRemoval(ctx context.Context, prefix, group string, force bool, ifMatch int64) (protocol.RemovalPreview, error)
	Members(ctx context.Context, prefix, group string) ([]protocol.MemberView, error)
	Assignments(ctx context.Context, prefix, group string) (protocol.Assignments, error)

	// Scale is the reference's POST …/scale: like PutStream with another count, but 409
	// ACTIVE_MIGRATION_EXISTS while any resharding runs. id is "noop" when nothing changes.
	Scale(ctx context.Context, prefix string, shardCount int, m Mutation) (protocol.Resharding, error)
	Reshardings(ctx context.Context, prefix string) ([]protocol.Resharding, error)
	// Resharding is held up to maxWait while its phase is seen.
	Resharding(ctx context.Context, prefix, id string, seen protocol.Phase, maxWait time.Duration) (protocol.Resharding, error)
	// Recheck reads one with its certificate compared with Redis as it is now.
	Recheck(ctx context.Context, prefix, id string) (protocol.Resharding, error)
	Rollback(ctx context.Context, prefix, id string, m Mutation) (protocol.Resharding, error)
	Pause(ctx context.Context, prefix string, timeout time.Duration, m Mutation) (protocol.Stream, error)
	Resume(ctx context.Context, prefix string, m Mutation) (protocol.Stream, error)

	// OpenSession, HasSession, RenewSession and EndSession keep the sessions of tokens that were asked
	// to live for a time of their own: REDIS_UNAVAILABLE when it cannot be known. HasSession and
	// RenewSession are false for a session that has ended; EndSession is no error then.
	OpenSession(ctx context.Context, id, user string, life time.Duration) error
	HasSession(ctx context.Context, id, user string) (bool, error)
	RenewSession(ctx context.Context, id string, life time.Duration) (bool, error)
	EndSession(ctx context.Context, id string) error

	// Audit records a request that did not commit. prefix "" when it belongs to no stream.
	Audit(ctx context.Context, prefix string, ev protocol.AuditEvent) error
	AuditEvents(ctx context.Context, q redisstore.AuditQuery) (protocol.AuditList, error)

	// Ready says whether this replica can serve: Redis answered lately and no stop began.
	Ready() error
}

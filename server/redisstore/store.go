// Package redisstore keeps the coordinator's state in Redis: keys and codec, the commit script
// with its compare-and-set, the passes over shards, notices between replicas, and the audit
// log. docs/architecture.md lists the keys. It decides nothing: the core does.
package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// DefaultKeyPrefix is P, the prefix of all coordinator keys.
const DefaultKeyPrefix = "redis-stream:coord"

// EffectLease is how long after the last successful check of the aggregate a coordinator's
// script may still change a shard (docs/protocol/resharding.md 1.2.4).
const EffectLease = 2 * time.Second

// Config of a Store. Client is opened and closed by the caller and must not retry commands by
// itself (MaxRetries −1): a repeated commit is decided by the token, not by the library.
type Config struct {
	Client    redis.UniversalClient
	KeyPrefix string // default DefaultKeyPrefix
	// WaitReplicas is how many replicas must confirm seals and decisions. −1 (default 0 means
	// this too): one when a replica is connected.
	WaitReplicas int
	Logger       *zap.Logger
}

// Store is the one store. Safe for concurrent use.
type Store struct {
	cfg Config
}

// Token is the compare-and-set guard of one aggregate: a revision and the random id of the
// commit that wrote it (rule C1). The zero Token means "not stored".
type Token struct {
	Revision int64
	Nonce    string
}

// Unit is all stored state of one stream.
type Unit struct {
	Stream      *stream.State
	StreamToken Token
	Groups      map[string]*group.State
	GroupTokens map[string]Token
	Leases      map[string]group.Leases // by group; rows of all groups
	Time        protocol.Instant        // TIME when it was read
	Identity    string                  // of the server that it was read from
}

// Errors of Load and Commit. Everything else that they return is a failure of Redis: the
// outcome of a Commit is then unknown.
var (
	ErrNotFound   = errors.New("stream is not stored")
	ErrUnreadable = errors.New("stored state is unreadable") // corrupt, or of a newer schema
	ErrConflict   = errors.New("another commit was first")   // reload and apply again
	ErrLate       = errors.New("not-after time has passed")
	ErrAuditHead  = errors.New("audit chain has moved") // Commit retries it by itself
)

// IdentityError: the server is not the one that the state was committed on (rule C2).
type IdentityError struct{ Actual string }

// Error names the new identity.
func (e *IdentityError) Error() string { return "redis server identity is now " + e.Actual }

// RowsError: a row that the commit rests on has not ended, or is missing (rule C4). Ends gives
// the true ends by group and row; a missing row has end 0.
type RowsError struct {
	Ends map[string]group.Leases
	Time protocol.Instant
}

// Error counts the groups.
func (e *RowsError) Error() string {
	return fmt.Sprintf("lease rows of %d groups have not ended", len(e.Ends))
}

// ClockError: Redis time is off the caller's estimate by more than the tolerance (rule C5).
type ClockError struct{ Time protocol.Instant }

// Error gives the server's time.
func (e *ClockError) Error() string { return "redis clock disagrees: " + e.Time.String() }

// StreamWrite is what a commit does with the stream aggregate. Next nil: only check.
type StreamWrite struct {
	Expect      Token
	Next        *stream.State
	Delete      bool
	MinRevision int64 // the new revision is at least this
}

// GroupWrite is what a commit does with one group aggregate and its rows. Next nil: only check
// the token and renew.
type GroupWrite struct {
	Expect       Token
	Next         *group.State
	Delete       bool
	Rows         group.Rows
	Lease        time.Duration              // L of the group, for Rows.Renew
	Observations map[string]json.RawMessage // memberId → last report
	// ResetRows sets the row of every session listed in Rows.Renew to TIME + L even when it
	// stands later (recovery, stepped clocks).
	ResetRows bool
}

// Commit is one atomic step on the aggregates of one stream: with no Next anywhere it is the
// renewal of steady answers (C3).
type Commit struct {
	Prefix   string
	Identity string // expected; "" skips the check (creation only)
	Nonce    string // random, 128 bit; of everything that this commit writes
	Stream   *StreamWrite
	Groups   map[string]*GroupWrite
	Audit    []protocol.AuditEvent // appended in the same script, chained
	NotAfter protocol.Instant      // 0: none
	// Estimate is the caller's own estimate of Redis time; checked against TIME within
	// Tolerance when Tolerance is not 0 (C5).
	Estimate  protocol.Instant
	Tolerance time.Duration
}

// CommitResult is what is stored now.
type CommitResult struct {
	Time        protocol.Instant // TIME of the script
	Identity    string
	StreamToken Token            // after the commit, when Stream was written
	GroupTokens map[string]Token // of the groups that were written
}

// Notice tells that a commit was made to a stream, by this replica or another.
type Notice struct {
	Prefix string
	Nonce  string
}

// New checks cfg and prepares the scripts. It does not talk to Redis.
func New(cfg Config) (*Store, error) { panic("not built yet") }

// Ping reports whether Redis answers, and what should be warned about at start-up: eviction
// policies that could remove shards, cluster-node-timeout below EffectLease, missing XSETID.
func (s *Store) Ping(ctx context.Context) (warnings []string, err error) { panic("not built yet") }

// Load reads everything of one stream in one atomic step. ErrNotFound, ErrUnreadable.
func (s *Store) Load(ctx context.Context, prefix string) (*Unit, error) { panic("not built yet") }

// Leases reads the lease rows of one group that end before until (0: all).
func (s *Store) Leases(ctx context.Context, prefix, groupName string, until protocol.Instant) (group.Leases, protocol.Instant, error) {
	panic("not built yet")
}

// Commit makes c, all or nothing.
func (s *Store) Commit(ctx context.Context, c Commit) (CommitResult, error) { panic("not built yet") }

// Now estimates Redis time of the node that holds the stream's slot, from the last sample and
// the monotonic clock. ok is false before the first sample.
func (s *Store) Now(prefix string) (now protocol.Instant, ok bool) { panic("not built yet") }

// SampleTime asks the node for TIME and renews the estimate behind Now.
func (s *Store) SampleTime(ctx context.Context, prefix string) (protocol.Instant, error) {
	panic("not built yet")
}

// RunPass runs the stages of p on the shards of prefix. revision is the stream aggregate's,
// checkedAt the time (of the stream's node) at which that revision was last proven current:
// scripts carry notAfter = checkedAt + EffectLease in the time of each shard's node. It never
// fails as a whole: a step that got no answer has Code "".
func (s *Store) RunPass(ctx context.Context, prefix string, revision int64, checkedAt protocol.Instant, p stream.Pass) stream.PassResult {
	panic("not built yet")
}

// Notices delivers a Notice for every commit of a watched stream. The channel is closed by
// Close. A lost subscription is renewed and then answered with a Notice with an empty Nonce
// for every watched stream: anything may have happened meanwhile.
func (s *Store) Notices() <-chan Notice { panic("not built yet") }

// Watch and Unwatch choose the streams that Notices tells about.
func (s *Store) Watch(prefix string) { panic("not built yet") }

// Unwatch undoes Watch.
func (s *Store) Unwatch(prefix string) { panic("not built yet") }

// Close ends the subscriptions and waits for them. The Redis client stays open.
func (s *Store) Close() error { panic("not built yet") }

// Streams lists the index of stream prefixes, sorted.
func (s *Store) Streams(ctx context.Context) ([]string, error) { panic("not built yet") }

// HoldTicker takes or renews the soft lock of the stream's periodic work for ttl.
func (s *Store) HoldTicker(ctx context.Context, prefix, replica string, ttl time.Duration) (bool, error) {
	panic("not built yet")
}

// ReleaseTicker gives the soft lock back if replica has it.
func (s *Store) ReleaseTicker(ctx context.Context, prefix, replica string) error {
	panic("not built yet")
}

// Observations reads the last reports of all members of a group: memberId → report.
func (s *Store) Observations(ctx context.Context, prefix, groupName string) (map[string]json.RawMessage, error) {
	panic("not built yet")
}

// SeeProducer records that a producer asked for the routing (observation). PlainSince is when a
// client that does not announce fencing was last seen, 0 for never.
func (s *Store) SeeProducer(ctx context.Context, prefix, producerID string, fenced bool) error {
	panic("not built yet")
}

// PlainSeen is the last time at which a producer that does not announce fencing asked for the
// routing, 0 for never.
func (s *Store) PlainSeen(ctx context.Context, prefix string) (protocol.Instant, error) {
	panic("not built yet")
}

// AppendAudit records requests that never committed. prefix "" is the log of requests that
// belong to no stream.
func (s *Store) AppendAudit(ctx context.Context, prefix string, events ...protocol.AuditEvent) error {
	panic("not built yet")
}

// AuditQuery selects audit events; zero values select all. Prefix "" reads the log of requests
// that belong to no stream, merged with those of all streams.
type AuditQuery struct {
	Prefix, Group, Principal, Action, Outcome, RequestID, ReshardingID, Fingerprint string
	From, To                                                                        time.Time
	Cursor                                                                          string
	Limit                                                                           int // default 100, at most 1000
}

// AuditEvents lists events, newest first.
func (s *Store) AuditEvents(ctx context.Context, q AuditQuery) (protocol.AuditList, error) {
	panic("not built yet")
}

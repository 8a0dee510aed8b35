// Package redisstore keeps the coordinator's state in Redis: keys and codec, the commit script
// with its compare-and-set, the passes over shards, notices between replicas, and the audit
// log. docs/architecture.md lists the keys. It decides nothing: the core does.
package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	KeyPrefix string // default DefaultKeyPrefix; no braces
	// WaitReplicas is how many replicas must confirm seals and decisions. −1 (default 0 means
	// this too): one when a replica is connected.
	WaitReplicas int
	// AuditLimit is about how many entries each audit stream keeps; the oldest go first. Default
	// DefaultAuditLimit, negative: all are kept.
	AuditLimit int64
	Logger     *zap.Logger // nil: nothing is logged
}

// DefaultAuditLimit keeps an audit stream below some 100 MB.
const DefaultAuditLimit = 100_000

// Store is the one store. Safe for concurrent use.
type Store struct {
	cfg     Config
	keys    keyspace
	log     *zap.Logger
	clocks  *clocks
	heads   heads
	names   groupNames
	notices *notices
}

// New checks cfg and prepares the scripts. It does not talk to Redis.
func New(cfg Config) (*Store, error) {
	switch cfg.Client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		return nil, fmt.Errorf("redis client is %T: a *redis.Client or *redis.ClusterClient is needed", cfg.Client)
	}
	if cfg.KeyPrefix == "" {
		cfg.KeyPrefix = DefaultKeyPrefix
	}
	if strings.ContainsAny(cfg.KeyPrefix, "{}") {
		return nil, fmt.Errorf("key prefix %q must not contain braces: they would change the slot of its keys", cfg.KeyPrefix)
	}
	if cfg.AuditLimit == 0 {
		cfg.AuditLimit = DefaultAuditLimit
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	s := &Store{cfg: cfg, keys: keyspace(cfg.KeyPrefix), log: cfg.Logger, clocks: newClocks()}
	s.notices = newNotices(s)
	return s, nil
}

// Close ends the subscriptions and waits for them. The Redis client stays open.
func (s *Store) Close() error {
	s.notices.close()
	return nil
}

// cluster says whether the client is one of a cluster.
func (s *Store) cluster() (*redis.ClusterClient, bool) {
	c, ok := s.cfg.Client.(*redis.ClusterClient)
	return c, ok
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

// IdentityError says that the server is not the one that the state was committed on (rule C2).
type IdentityError struct{ Actual string }

// Error names the new identity.
func (e *IdentityError) Error() string { return "redis server identity is now " + e.Actual }

// RowsError says that a row that the commit rests on has not ended, or is missing (rule C4). Ends gives
// the true ends by group and row; a missing row has end 0.
type RowsError struct {
	Ends map[string]group.Leases
	Time protocol.Instant
}

// Error counts the groups.
func (e *RowsError) Error() string {
	return fmt.Sprintf("lease rows of %d groups have not ended", len(e.Ends))
}

// ClockError says that Redis time is off the caller's estimate by more than the tolerance (rule C5).
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
	Expect Token
	// Create: this commit enters the group in the stream's registry, which alone says which groups
	// there are. Whatever a lost history has left under the group's keys goes; Expect is not read.
	Create       bool
	Next         *group.State
	Delete       bool
	Rows         group.Rows
	Lease        time.Duration              // L of the group, for Rows.Renew
	Observations map[string]json.RawMessage // memberId → last report
	Forget       []string                   // member ids whose last report goes with their record
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

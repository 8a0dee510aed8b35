package consumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Defaults and bounds of Config.
const (
	DefaultBatchSize    = 100
	DefaultBlock        = 5 * time.Second
	DefaultDrainTimeout = 30 * time.Second
	DefaultAckInterval  = time.Second
	DefaultMinBackoff   = 100 * time.Millisecond
	DefaultMaxBackoff   = 10 * time.Second

	maxBlock       = 5 * time.Second
	maxBatchSize   = 1000
	maxConcurrency = 1024
)

// Handler handles one entry. nil acknowledges it; an error, or a panic, has it handled again
// after a pause, and nothing newer of its shard before. ctx ends when the ownership of the
// shard does.
type Handler func(ctx context.Context, d Delivery) error

// BatchHandler handles entries of one shard, in order. nil acknowledges all of them; an error
// has all of them handled again.
type BatchHandler func(ctx context.Context, batch []Delivery) error

// Config of a Consumer. Zero values mean the defaults given.
type Config struct {
	// Client reaches the coordinator. Required.
	Client *client.Client
	// Redis holds the shards: a *redis.Client or a *redis.ClusterClient. Required; never closed
	// by the consumer. Waiting for new entries uses connections of its own.
	Redis redis.UniversalClient
	// StreamPrefix and Group name the consumer group. Required.
	StreamPrefix, Group string
	// Handler or BatchHandler handles entries. Exactly one is required.
	Handler      Handler
	BatchHandler BatchHandler

	// MemberID identifies this process in the group: no two live processes may share one.
	// Default: host name and a random suffix. With Concurrency > 1, -m0, -m1, … are appended.
	MemberID string
	// Concurrency is the number of logical members: each owns shards of its own. The shards of
	// one member are handled concurrently as well. Default 1.
	Concurrency int
	// Static says "I will be back" when it stops, so that a restart within the lease moves no
	// shard. It needs a MemberID.
	Static bool
	// IncarnationFile is a file in the storage of this process's own container. Whoever holds
	// its lock has proved that its predecessor is dead, and gets its shards in the first answer,
	// also after a crash. It needs a MemberID. Default: none.
	IncarnationFile string

	// BatchSize is the most entries of one read. Default 100, at most 1000.
	BatchSize int
	// Block is how long one wait for new entries may take at Redis. Default and most 5 s.
	Block time.Duration
	// MaxHold is the longest time that a heartbeat may be held by the coordinator. Default: the
	// heartbeat interval. Negative: heartbeats are not held.
	MaxHold time.Duration
	// AckInterval is how long handled entries wait for the acknowledgement that goes with the
	// next read, while others of their batch are handled. Default 1 s.
	AckInterval time.Duration
	// DrainTimeout bounds the wait for running handlers when Run is told to stop; then their
	// contexts end. Default 30 s.
	DrainTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pause after a failed handler. Default 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration

	// MaxDeliveries gives an entry to DeadLetter when it has failed that often, over all
	// owners. Default 0: an entry is tried for ever.
	MaxDeliveries int64
	// DeadLetter keeps an entry that is given up; nil acknowledges it. Required with
	// MaxDeliveries.
	DeadLetter func(ctx context.Context, d Delivery, cause error) error

	// Logger hears of assignments and of trouble. Default: slog.Default.
	Logger *slog.Logger
	// Hooks observe.
	Hooks Hooks
}

// Hooks are called one at a time, must not block and must not call the consumer; any may be
// nil.
type Hooks struct {
	// Assigned: the shard was taken over, its reading begins.
	Assigned func(shard int, ownershipEpoch int64)
	// Revoked: nothing of the ownership is in flight any more. cause is nil after an orderly
	// release, else why it was cut off.
	Revoked func(shard int, ownershipEpoch int64, cause error)
	// AckRefused: entries were handled, but the shard has another owner by now; they will be, or
	// were, handled by it too.
	AckRefused func(shard int, entries int)
	// EntriesLost: pending entries whose bodies are gone (trimmed or deleted). They were
	// acknowledged without being handled.
	EntriesLost func(shard int, ids []string)
	// GroupRecreated: Redis had lost the consumer group of the shard.
	GroupRecreated func(shard int)
	// Health changes of a member: nil while it has its lease.
	Health func(memberID string, err error)
}

func (c Config) withDefaults() Config {
	if c.MemberID == "" && !c.Static && c.IncarnationFile == "" {
		c.MemberID = defaultMemberID()
	}
	set := func(to *time.Duration, value time.Duration) {
		if *to == 0 {
			*to = value
		}
	}
	set(&c.Block, DefaultBlock)
	set(&c.AckInterval, DefaultAckInterval)
	set(&c.DrainTimeout, DefaultDrainTimeout)
	set(&c.MinBackoff, DefaultMinBackoff)
	set(&c.MaxBackoff, max(DefaultMaxBackoff, c.MinBackoff))
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.BatchSize == 0 {
		c.BatchSize = DefaultBatchSize
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	bad := func(format string, args ...any) error { return fmt.Errorf("consumer: "+format, args...) }
	switch {
	case c.Client == nil:
		return errors.New("consumer: Client is missing")
	case c.Redis == nil:
		return errors.New("consumer: Redis is missing")
	case (c.Handler == nil) == (c.BatchHandler == nil):
		return errors.New("consumer: exactly one of Handler and BatchHandler is needed")
	case c.MemberID == "":
		return errors.New("consumer: MemberID is missing: Static and IncarnationFile need one that lasts")
	case c.Concurrency < 1 || c.Concurrency > maxConcurrency:
		return bad("Concurrency is %d; it must be between 1 and %d", c.Concurrency, maxConcurrency)
	case c.BatchSize < 1 || c.BatchSize > maxBatchSize:
		return bad("BatchSize is %d; it must be between 1 and %d", c.BatchSize, maxBatchSize)
	case c.Block < 10*time.Millisecond || c.Block > maxBlock:
		return bad("Block is %v; it must be between 10ms and %v: a longer wait would not notice a dead connection", c.Block, maxBlock)
	case c.AckInterval < 0:
		return bad("AckInterval is %v; it must not be negative", c.AckInterval)
	case c.DrainTimeout < 0:
		return bad("DrainTimeout is %v; it must not be negative", c.DrainTimeout)
	case c.MinBackoff < 0 || c.MaxBackoff < c.MinBackoff:
		return bad("MinBackoff is %v and MaxBackoff %v; 0 ≤ MinBackoff ≤ MaxBackoff is needed", c.MinBackoff, c.MaxBackoff)
	case c.MaxDeliveries < 0:
		return bad("MaxDeliveries is %d; it must not be negative", c.MaxDeliveries)
	case (c.MaxDeliveries > 0) != (c.DeadLetter != nil):
		return errors.New("consumer: MaxDeliveries and DeadLetter need each other")
	}
	for field, value := range map[string]string{
		"StreamPrefix": c.StreamPrefix, "Group": c.Group, "MemberID": c.memberID(c.Concurrency - 1),
	} {
		if err := protocol.CheckName(field, value); err != nil {
			return fmt.Errorf("consumer: %w", err)
		}
	}
	return nil
}

// memberID of the i-th logical member.
func (c Config) memberID(i int) string {
	if c.Concurrency == 1 {
		return c.MemberID
	}
	return fmt.Sprintf("%s-m%d", c.MemberID, i)
}

// defaultMemberID is the host's name, without what a name must not hold, and 40 random bits.
func defaultMemberID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "consumer"
	}
	host = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, host)
	return host[:min(len(host), 128)] + "-" + strings.ToLower(rand.Text()[:8])
}

package producer

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Defaults of Config.
const (
	DefaultMaxBatch    = 100
	DefaultMaxQueue    = 10_000
	DefaultRoutingHold = 20 * time.Second
)

// maxFields bounds the strings of one entry: a script cannot unpack many more.
const maxFields = 4096

// Config of a Producer. Zero values mean the defaults given.
type Config struct {
	// Client asks the coordinator for the routing. Required. While no coordinator answers, the
	// layout is read from shard 0.
	Client *client.Client
	// Redis holds the shards: a *redis.Client or a *redis.ClusterClient. Required; never closed
	// by the producer. Appends are not repeated by it, whatever its MaxRetries.
	Redis redis.UniversalClient
	// StreamPrefix names the stream. Required.
	StreamPrefix string
	// ProducerID makes the producer visible to operators. Default: random.
	ProducerID string
	// MaxBatch is the most entries of one batch. Default 100, at most 1000.
	MaxBatch int
	// Linger is how long an entry may wait for others when its shard is idle. Default 0: while
	// a batch is under way the next one fills by itself.
	Linger time.Duration
	// MaxQueue bounds the entries that are queued or under way; beyond it Append waits.
	// Default 10,000.
	MaxQueue int
	// FailFast ends appends with ErrPaused while publishing is paused, and with ErrNoShards while the
	// first shards of the stream are made, instead of keeping them.
	FailFast bool
	// Plain appends by bare XADD while the routing lease lasts.
	Plain bool
	// MaxLen trims each shard to roughly this many entries, read or not, and nobody counts what goes
	// unread. Default: no trimming. The stream's retention removes entries as well, and counts.
	MaxLen int64
	// EventIDField adds a field of this name with a random id to each entry that has none. The
	// id stays the same over the producer's own repetitions, so that consumers can tell a
	// repetition by the caller. Default "": no such field.
	EventIDField string
	// RoutingHold is how long the coordinator may hold a routing request until it changes.
	// Default 20 s.
	RoutingHold time.Duration
	// Logger hears of layout changes and of trouble. Default: slog.Default.
	Logger *slog.Logger
	// Hooks observe.
	Hooks Hooks
}

// Hooks are called one at a time and must not block; any of them may be nil.
type Hooks struct {
	// Batch tells what became of one batch of a shard: how many of its entries landed.
	Batch func(shard, entries, landed int, took time.Duration, refusal string)
	// Layout tells of the layout that is used from now on.
	Layout func(epoch int64, shardCount int)
}

func (c Config) withDefaults() Config {
	if c.ProducerID == "" {
		c.ProducerID = "producer-" + randomID()
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = DefaultMaxBatch
	}
	if c.MaxQueue == 0 {
		c.MaxQueue = DefaultMaxQueue
	}
	if c.RoutingHold == 0 {
		c.RoutingHold = DefaultRoutingHold
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Client == nil:
		return errors.New("producer: Client is missing")
	case c.Redis == nil:
		return errors.New("producer: Redis is missing")
	case c.MaxBatch < 1 || c.MaxBatch > 1000:
		return fmt.Errorf("producer: MaxBatch is %d; it must be between 1 and 1000", c.MaxBatch)
	case c.MaxQueue < c.MaxBatch:
		return fmt.Errorf("producer: MaxQueue is %d, less than MaxBatch", c.MaxQueue)
	case c.Linger < 0:
		return fmt.Errorf("producer: Linger is %v; it must not be negative", c.Linger)
	case c.MaxLen < 0:
		return fmt.Errorf("producer: MaxLen is %d; it must not be negative", c.MaxLen)
	case c.RoutingHold < 0:
		return fmt.Errorf("producer: RoutingHold is %v; it must not be negative", c.RoutingHold)
	}
	if err := protocol.CheckName("StreamPrefix", c.StreamPrefix); err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	if err := protocol.CheckName("ProducerID", c.ProducerID); err != nil {
		return fmt.Errorf("producer: %w", err)
	}
	return nil
}

// randomID has 128 random bits.
func randomID() string { return rand.Text() }

package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/membership"
	"github.com/redisstream/terraform-provider-redisstream/sdk/internal/shard"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Errors of Run, for errors.Is.
var (
	// ErrDuplicateID: another live process has the member id.
	ErrDuplicateID = membership.ErrDuplicateID
	// ErrRefused: the coordinator refused the member for a whole lease.
	ErrRefused = membership.ErrRefused
)

// farewell is how long a consumer whose handlers were cut off tries to tell the coordinator.
const farewell = 2 * time.Second

// Consumer reads shards as one or more members of a group.
type Consumer struct {
	cfg    Config
	shards *shard.Shards
	clock  *clock
	bell   doorbell
	ran    atomic.Bool

	hooks    sync.Mutex // one hook at a time
	mu       sync.Mutex
	health   map[string]error
	troubled map[string]time.Time // when a trouble was logged last
}

// New validates cfg. It starts nothing.
func New(cfg Config) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	shards, err := shard.New(cfg.Redis, cfg.StreamPrefix)
	if err != nil {
		return nil, fmt.Errorf("consumer: %w", err)
	}
	return &Consumer{
		cfg: cfg, shards: shards, clock: newClock(),
		health: map[string]error{}, troubled: map[string]time.Time{},
	}, nil
}

// Run reads until ctx ends, and then stops: it reads no more, waits for running handlers, gives
// its shards back and leaves the group. It returns nil after such a stop, ErrDrainTimeout when
// handlers had to be cut off, and otherwise why it could not go on. After it returns, nothing
// of the consumer runs. A Consumer runs once.
//
// The values of ctx are those of the handlers' contexts; its end is not.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("consumer: Run was called before")
	}
	files, replaces, err := c.openIncarnations()
	defer func() {
		for _, f := range files {
			_ = f.close() // nothing is left to be written
		}
	}()
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	if c.bell, err = newDoorbell(c.cfg.Redis, c.cfg.Block); err != nil { //nolint:contextcheck // it ends with close, later than ctx
		return fmt.Errorf("consumer: %w", err)
	}
	defer c.bell.close()

	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	spec := c.groupSpec(ctx)
	stop, hard, abandon := make(chan struct{}), make(chan struct{}), make(chan struct{})
	ended := make(chan error, c.cfg.Concurrency)
	for i := range c.cfg.Concurrency {
		m := newMember(work, c, c.cfg.memberID(i), files[i], replaces[i], spec)
		go func() { ended <- m.run(stop, hard, abandon) }()
	}

	var failure error
	var drained, gone <-chan time.Time
	stopping := func() {
		close(stop)
		drained = time.After(c.cfg.DrainTimeout)
	}
	done := ctx.Done()
	for left := c.cfg.Concurrency; left > 0; {
		select {
		case err := <-ended:
			left--
			if err != nil && failure == nil {
				failure = err
			}
			if done != nil && left > 0 { // one that cannot go on takes the others with it
				done = nil
				stopping()
			}
		case <-done:
			done = nil
			stopping()
		case <-drained:
			close(hard)
			drained, gone = nil, time.After(farewell)
			if failure == nil {
				failure = ErrDrainTimeout
			}
		case <-gone:
			gone = nil
			close(abandon)
		}
	}
	return failure
}

// groupSpec reads the times of the group, which an answer tells only once it grants a lease:
// a member that is refused would not know for how long to try. Without an answer, or without
// the right to ask, the defaults are presumed until then.
func (c *Consumer) groupSpec(ctx context.Context) protocol.GroupSpec {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	g, err := c.cfg.Client.Group(ctx, c.cfg.StreamPrefix, c.cfg.Group)
	if err != nil {
		c.cfg.Logger.Debug("times of the group are unknown", "stream", c.cfg.StreamPrefix, "group", c.cfg.Group, "error", err)
		return protocol.DefaultGroupSpec()
	}
	return g.Spec.WithDefaults()
}

func (c *Consumer) openIncarnations() (files []*incarnationFile, replaces []string, err error) {
	for i := range c.cfg.Concurrency {
		if c.cfg.IncarnationFile == "" {
			files, replaces = append(files, nil), append(replaces, "")
			continue
		}
		path := c.cfg.IncarnationFile
		if c.cfg.Concurrency > 1 {
			path = fmt.Sprintf("%s.m%d", path, i)
		}
		f, predecessor, err := openIncarnation(path)
		if err != nil {
			return files, nil, err
		}
		files, replaces = append(files, f), append(replaces, predecessor)
	}
	return files, replaces, nil
}

// Health is nil while every member has its lease, by member id otherwise.
func (c *Consumer) Health() map[string]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	bad := maps.Clone(c.health)
	maps.DeleteFunc(bad, func(_ string, err error) bool { return err == nil })
	if len(bad) == 0 && len(c.health) > 0 {
		return nil
	}
	return bad
}

func (c *Consumer) setHealth(id string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.health[id] = err
}

// hook calls one of the user's hooks, one at a time.
func (c *Consumer) hook(call func()) {
	c.hooks.Lock()
	defer c.hooks.Unlock()
	call()
}

// mayLog says whether a trouble may be logged again: at most once in ten seconds.
func (c *Consumer) mayLog(trouble string) bool {
	const every = 10 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.troubled[trouble]; ok && time.Since(last) < every {
		return false
	}
	c.troubled[trouble] = time.Now()
	return true
}

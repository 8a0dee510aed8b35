package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// clocks estimates the time of Redis nodes on this process's monotonic clock. There are two
// sorts. The steady clock of a stream is the caller's own estimate of rule C5: replies may
// correct its drift, but a clock that stepped must not be followed silently, since leases would
// end with it; only SampleTime sets it anew. The others follow every step: they serve the
// not-after times of passes, for the node of a stream's own keys and for those of its shards.
type clocks struct {
	base time.Time // all local instants are monotonic durations since

	mu     sync.Mutex        // guards the maps
	steady map[string]*clock // by stream prefix
	origin map[string]*clock // by stream prefix: the node of its own keys
	node   map[string]*clock // by address
}

// clock is an offset: server ms = local ms + offset, within ± rtt.
type clock struct {
	offset float64
	rtt    time.Duration
	at     time.Duration // local instant of the sample
}

const (
	// A correction is drift only while it is small: 2 ms for rounding and half trips, and 0.1 % of
	// the time that has passed. At most one correction a second keeps many small steps from adding up.
	driftSlack    = 2.0 // ms
	driftRate     = 0.001
	driftInterval = time.Second
	// A sample stays the best for this long, even when later ones have longer round trips.
	sampleLife = 10 * time.Second
)

func newClocks() *clocks {
	return &clocks{base: time.Now(), steady: map[string]*clock{}, origin: map[string]*clock{}, node: map[string]*clock{}}
}

// forget drops what was kept for a stream that is not served any more.
func (c *clocks) forget(prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.steady, prefix)
	delete(c.origin, prefix)
}

func (c *clocks) local() time.Duration { return time.Since(c.base) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// newClock is what one reply tells: the server read its time between sent and received. Scripts
// round down to whole milliseconds.
func newClock(server protocol.Instant, sent, received time.Duration) *clock {
	return &clock{
		offset: float64(server) + 0.5 - (milliseconds(sent)+milliseconds(received))/2,
		rtt:    received - sent, at: received,
	}
}

func (c *clock) now(local time.Duration) protocol.Instant {
	return protocol.Instant(milliseconds(local) + c.offset)
}

// observe takes the time in a reply about a stream. It corrects drift, and never follows a step.
func (c *clocks) observe(prefix string, server protocol.Instant, sent time.Duration) {
	received := c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	next, known := newClock(server, sent, received), c.steady[prefix]
	follow(c.origin, prefix, next)
	if known == nil {
		c.steady[prefix] = next
		return
	}
	age := next.at - known.at
	off := next.offset - known.offset
	if next.rtt < known.rtt && age < sampleLife {
		// A sharper look at the same offset. Round trips only get shorter here, so that the sum of
		// such corrections is bounded by the first one.
		if bound := driftSlack + milliseconds(known.rtt)/2; off <= bound && off >= -bound {
			c.steady[prefix] = next
		}
		return
	}
	if age < driftInterval {
		return
	}
	allowed := driftSlack + driftRate*milliseconds(age) + milliseconds(next.rtt)/2
	if off > allowed || off < -allowed {
		return
	}
	if next.rtt <= known.rtt || age > sampleLife {
		c.steady[prefix] = next
	}
}

// set replaces the estimate of a stream.
func (c *clocks) set(prefix string, server protocol.Instant, sent time.Duration) {
	received := c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steady[prefix] = newClock(server, sent, received)
	follow(c.origin, prefix, c.steady[prefix])
}

// observeNode takes the time in a reply of a node.
func (c *clocks) observeNode(addr string, server protocol.Instant, sent time.Duration) {
	received := c.local()
	c.mu.Lock()
	defer c.mu.Unlock()
	follow(c.node, addr, newClock(server, sent, received))
}

// follow keeps the sample with the shortest round trip, but one that contradicts it replaces it
// at once.
func follow(of map[string]*clock, key string, next *clock) {
	if known := of[key]; known != nil {
		off := next.offset - known.offset
		slack := driftSlack + milliseconds(next.rtt+known.rtt)/2
		if off <= slack && off >= -slack && next.rtt > known.rtt && next.at-known.at < sampleLife {
			return
		}
	}
	of[key] = next
}

// get reads one of the maps.
func (c *clocks) get(of map[string]*clock, key string) (clock, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := of[key]; k != nil {
		return *k, true
	}
	return clock{}, false
}

// Now estimates Redis time of the node that holds the stream's slot, from the last sample and
// the monotonic clock. ok is false before the first sample.
func (s *Store) Now(prefix string) (now protocol.Instant, ok bool) {
	c, ok := s.clocks.get(s.clocks.steady, prefix)
	if !ok {
		return 0, false
	}
	return c.now(s.clocks.local()), true
}

// SampleTime asks the node for TIME and renews the estimate behind Now.
func (s *Store) SampleTime(ctx context.Context, prefix string) (protocol.Instant, error) {
	sent := s.clocks.local()
	v, err := timeScript.Run(ctx, s.cfg.Client, []string{s.keys.stream(prefix)}).Slice()
	if err != nil {
		return 0, fmt.Errorf("time of stream %q: %w", prefix, s.explain(ctx, err, s.keys.stream(prefix), s.rightsOfStream(prefix)))
	}
	at, _, _, err := readHead(v)
	if err != nil {
		return 0, fmt.Errorf("time of stream %q: %w", prefix, err)
	}
	s.clocks.set(prefix, at, sent)
	return at, nil
}

// sampleNode asks a node for its time.
func (s *Store) sampleNode(ctx context.Context, node *redis.Client) (clock, error) {
	sent := s.clocks.local()
	t, err := node.Time(ctx).Result()
	if err != nil {
		return clock{}, fmt.Errorf("time of node %s: %w", node.Options().Addr, err)
	}
	s.clocks.observeNode(node.Options().Addr, protocol.InstantOf(t), sent)
	c, _ := s.clocks.get(s.clocks.node, node.Options().Addr)
	return c, nil
}

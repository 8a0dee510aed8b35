package consumer

import (
	"sync"
	"time"
)

// clock measures time since the start of the process by the monotonic or the wall clock,
// whichever runs further: a machine that is suspended stops the first (rule M2). It never goes
// back, and never runs slower than the monotonic one.
type clock struct {
	mu   sync.Mutex
	last time.Time
	now  time.Duration
	read func() time.Time
}

func newClock() *clock { return &clock{last: time.Now(), read: time.Now} }

// Now is the time that has passed.
func (c *clock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.read()
	passed := max(t.Sub(c.last), t.Round(0).Sub(c.last.Round(0)), 0)
	c.now += passed
	c.last = t
	return c.now
}

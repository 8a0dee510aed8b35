package consumer

import (
	"testing"
	"time"
)

// at is an instant whose wall clock is off from the monotonic one by wall.
func at(begin time.Time, mono, wall time.Duration) time.Time {
	if wall == mono {
		return begin.Add(mono)
	}
	return begin.Add(wall).Round(0) // only the wall clock moved: Sub then compares wall clocks
}

func TestClock(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var reading time.Time
	c := &clock{last: begin, read: func() time.Time { return reading }}
	for _, step := range []struct {
		name       string
		mono, wall time.Duration
		want       time.Duration
	}{
		{"both run", time.Second, time.Second, time.Second},
		{"a suspended machine: the wall clock ran on", time.Second, time.Minute, time.Minute},
		{"the wall clock is set back: never back", time.Second, 2 * time.Second, time.Minute},
		{"and on from there", 3 * time.Second, 3 * time.Second, time.Minute + time.Second},
	} {
		reading = at(begin, step.mono, step.wall)
		if got := c.Now(); got != step.want {
			t.Errorf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

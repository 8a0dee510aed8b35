package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// screen prints lines with the time since the start, and on a terminal a status line below them.
type screen struct {
	begin time.Time
	tty   bool

	mu     sync.Mutex
	status string
}

// line prints one line above the status line.
func (s *screen) line(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	fmt.Printf("%6.2fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
	s.draw()
}

// say replaces the status line; without a terminal it prints nothing.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	s.status = fmt.Sprintf(format, args...)
	s.draw()
}

func (s *screen) clear() {
	if s.tty && s.status != "" {
		fmt.Print("\r\033[2K")
	}
}

func (s *screen) draw() {
	if s.tty && s.status != "" {
		fmt.Printf("\033[2m%s\033[0m", s.status)
	}
}

// watch shows each phase of each resharding of the stream as the coordinator reports it, until
// ctx ends.
func (s *screen) watch(ctx context.Context, c *client.Client, prefix string) {
	shown := map[string]int{} // resharding id → phases shown
	closed := map[string]bool{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := c.Reshardings(ctx, prefix)
		if err != nil {
			continue // not created yet, or the demo is stopping: the next tick tells
		}
		for _, r := range slices.Backward(list.Reshardings) {
			if closed[r.ReshardingID] {
				continue
			}
			s.phases(r, shown)
			closed[r.ReshardingID] = r.Phase.Terminal()
		}
	}
}

func (s *screen) phases(r protocol.Resharding, shown map[string]int) {
	for n := shown[r.ReshardingID]; n < len(r.Phases); n++ {
		p := r.Phases[n]
		took := ""
		if n > 0 {
			before := r.Phases[n-1]
			took = fmt.Sprintf("(%s took %s)", before.Phase, short(p.StartedAt.Sub(before.StartedAt)))
		}
		s.line("    %d → %d  %-17s %s", r.FromShardCount, r.ToShardCount, p.Phase, took)
	}
	shown[r.ReshardingID] = len(r.Phases)
}

// short rounds a duration for people.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

package main

import (
	"context"
	"sync"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
)

// status shows every second how much is published and handled.
type status struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startStatus(ctx context.Context, show *screen, book *ledger.Ledger) *status {
	ctx, cancel := context.WithCancel(ctx)
	s := &status{cancel: cancel}
	s.done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		before, n := book.Count(), 0
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			t := book.Count()
			n++
			text, args := "published %d (%d/s)   handled %d (%d/s)   duplicates %d   out of order %d", []any{
				t.Published, t.Published - before.Published, t.Handled, t.Handled - before.Handled, t.Duplicates, t.Strict + t.Online}
			if show.tty {
				show.say(text, args...)
			} else if n%2 == 0 {
				show.line(text, args...)
			}
			before = t
		}
	})
	return s
}

// stop ends it; a second call does nothing.
func (s *status) stop() {
	s.cancel()
	s.done.Wait()
}

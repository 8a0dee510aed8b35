package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// HoldTicker takes or renews the soft lock of the stream's periodic work for ttl.
func (s *Store) HoldTicker(ctx context.Context, prefix, replica string, ttl time.Duration) (bool, error) {
	if ttl < time.Millisecond {
		return false, errors.New("the soft lock needs a ttl of at least a millisecond")
	}
	held, err := tickerScript.Run(ctx, s.cfg.Client, []string{s.keys.ticker(prefix)}, replica, ttl.Milliseconds()).Bool()
	if err != nil {
		return false, fmt.Errorf("soft lock of stream %q: %w", prefix, s.explain(ctx, err, s.keys.ticker(prefix), s.rightsOfStream(prefix)))
	}
	return held, nil
}

// ReleaseTicker gives the soft lock back if replica has it.
func (s *Store) ReleaseTicker(ctx context.Context, prefix, replica string) error {
	if err := tickerScript.Run(ctx, s.cfg.Client, []string{s.keys.ticker(prefix)}, replica, 0).Err(); err != nil {
		return fmt.Errorf("soft lock of stream %q: %w", prefix, err)
	}
	return nil
}

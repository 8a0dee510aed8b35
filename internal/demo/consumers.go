package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
)

// consumers share the shards of the stream until they are stopped.
type consumers struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	redis   []*redis.Client
	once    sync.Once
	err     error // of stop

	mu     sync.Mutex
	failed error // of a consumer that ended by itself
}

func startConsumers(ctx context.Context, w *world, s settings, book *ledger.Ledger) (*consumers, error) {
	c := &consumers{}
	ctx, c.cancel = context.WithCancel(ctx)
	for i := range s.consumers {
		coordinator, err := w.newClient()
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		rdb := w.redis.Client()
		c.redis = append(c.redis, rdb)
		one, err := consumer.New(consumer.Config{
			Client: coordinator, Redis: rdb, StreamPrefix: streamPrefix, Group: consumerGroup,
			MemberID: fmt.Sprintf("consumer-%d", i), Logger: w.log,
			Handler: func(_ context.Context, d consumer.Delivery) error { return handle(book, d) },
		})
		if err != nil {
			return nil, errors.Join(err, c.stop())
		}
		c.running.Go(func() {
			if err := one.Run(ctx); err != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.failed = errors.Join(c.failed, fmt.Errorf("consumer %d: %w", i, err))
			}
		})
	}
	return c, nil
}

func handle(book *ledger.Ledger, d consumer.Delivery) error {
	key, err := strconv.Atoi(d.Text(fieldKey))
	if err != nil {
		return fmt.Errorf("entry %s of %s: %w", d.ID, d.Stream, err)
	}
	number, err := strconv.Atoi(d.Text(fieldNumber))
	if err != nil {
		return fmt.Errorf("entry %s of %s: %w", d.ID, d.Stream, err)
	}
	if !book.Handle(key, number) {
		return fmt.Errorf("entry %s of %s was never published", d.ID, d.Stream)
	}
	return nil
}

// stop lets the consumers give their shards back, and waits. A second call does nothing.
func (c *consumers) stop() error {
	c.once.Do(func() {
		c.cancel()
		c.running.Wait()
		c.err = c.failed
		for _, r := range c.redis {
			c.err = errors.Join(c.err, r.Close())
		}
	})
	return c.err
}

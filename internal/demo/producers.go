package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
)

// Fields of an entry.
const (
	fieldKey    = "key"
	fieldNumber = "number"
)

// producers append to the stream at a steady rate until they are stopped. Each has keys of its
// own, so that the entries of one key have one order.
type producers struct {
	all    []*producer.Producer
	redis  *redis.Client
	cancel context.CancelFunc
	paced  sync.WaitGroup
	begin  time.Time
	once   sync.Once
	err    error // of stop

	mu        sync.Mutex
	landed    int
	failed    int
	example   error
	lastLand  time.Time
	longest   time.Duration
	measuring bool
}

func startProducers(ctx context.Context, w *world, s settings, book *ledger.Ledger) (*producers, error) {
	p := &producers{redis: w.redis.Client(), begin: time.Now()}
	paceCtx, cancel := context.WithCancel(ctx)
	p.cancel = cancel
	for i := range s.producers {
		c, err := w.newClient()
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		one, err := producer.New(producer.Config{
			Client: c, Redis: p.redis, StreamPrefix: streamPrefix, ProducerID: fmt.Sprintf("demo-%d", i), Logger: w.log,
		})
		if err != nil {
			return nil, errors.Join(err, p.stop())
		}
		one.Start()
		p.all = append(p.all, one)
		p.paced.Go(func() { p.pace(paceCtx, one, i, s, book) })
	}
	return p, nil
}

// pace appends every producer's share of the rate to its keys in turns. After a pause it makes
// up for at most a second.
func (p *producers) pace(ctx context.Context, one *producer.Producer, index int, s settings, book *ledger.Ledger) {
	const step = 5 * time.Millisecond
	perStep := float64(s.rate) / float64(s.producers) * step.Seconds()
	tick := time.NewTicker(step)
	defer tick.Stop()
	key, owed, last := index, 0.0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		owed = min(owed+perStep*float64(now.Sub(last))/float64(step), float64(s.rate)/float64(s.producers))
		last = now
		for ; owed >= 1; owed-- {
			number := book.Publish(key)
			k := key
			err := one.AppendAsync(ctx, "key-"+strconv.Itoa(k), producer.Fields{fieldKey, strconv.Itoa(k), fieldNumber, strconv.Itoa(number)},
				func(_ producer.Result, err error) {
					if err == nil {
						book.Landed(k, number)
					}
					p.note(err)
				})
			if err != nil {
				if ctx.Err() == nil {
					p.note(err)
				}
				return
			}
			if key += s.producers; key >= s.keys {
				key = index
			}
		}
	}
}

// note counts the outcome of an append.
func (p *producers) note(err error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed++
		p.example = err
		return
	}
	p.landed++
	if p.measuring && !p.lastLand.IsZero() {
		p.longest = max(p.longest, now.Sub(p.lastLand))
	}
	p.lastLand = now
}

// resetGap begins to look for the longest time in which no append was answered.
func (p *producers) resetGap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest, p.measuring = 0, true
}

// longestGap is what was found since resetGap.
func (p *producers) longestGap() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.measuring = false
	return p.longest
}

func (p *producers) numbers(end time.Time) throughput {
	p.mu.Lock()
	defer p.mu.Unlock()
	return throughput{rate: float64(p.landed) / end.Sub(p.begin).Seconds(), failed: p.failed, example: p.example}
}

// stop ends the pace and waits until every append has ended. A second call does nothing.
func (p *producers) stop() error {
	p.once.Do(func() {
		p.cancel()
		p.paced.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		for _, one := range p.all {
			if err := one.Close(ctx); err != nil {
				p.err = errors.Join(p.err, fmt.Errorf("close producer: %w", err))
			}
		}
		p.err = errors.Join(p.err, p.redis.Close())
	})
	return p.err
}

// newClient is a client of the coordinator for one producer or consumer, as each would have in
// a process of its own.
func (w *world) newClient() (*client.Client, error) {
	return client.New(client.Config{Endpoints: []string{w.endpoint}, Username: username, Password: w.password})
}

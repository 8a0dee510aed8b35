package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redisstream/terraform-provider-redisstream/sdk/consumer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/producer"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	pauseRuns      = 50
	pauseProducers = 8
	pauseFrom      = 8
	pauseTo        = 16
	pauseMedian    = 100 * time.Millisecond
	pauseWorst     = 500 * time.Millisecond // the 99th percentile
)

// pauseWindow measures for how long a quiesced resharding 8 → 16 pauses publishing while 8
// producers append: by its record, and as the longest time for which any of them saw nothing
// land. Once with no consumer group and queues that are always full, so that nothing but the
// seals counts; once with two consumers that keep up with callers that wait for each entry, so that
// the drain of what is under way counts too.
func (b *bench) pauseWindow(ctx context.Context) ([]result, error) {
	alone, err := b.pauses(ctx, "pause-alone", 0)
	if err != nil {
		return nil, err
	}
	read, err := b.pauses(ctx, "pause-read", 2)
	if err != nil {
		return nil, err
	}
	return append(alone.results("8 → 16, nothing to drain"), read.results("8 → 16, consumers that keep up")...), nil
}

// pauses is what the runs of one kind came to.
type pauses struct {
	paused []time.Duration // by the record
	gaps   []time.Duration // longest time without a landed append, at the producer that had the longest
}

func (p pauses) results(name string) []result {
	return []result{
		within(name+": paused, median", percentile(p.paused, 50), pauseMedian, 0),
		within(name+": paused, p99", percentile(p.paused, 99), pauseWorst, 0),
		within("… nothing lands at a producer, median", percentile(p.gaps, 50), pauseMedian, 0),
		within("… nothing lands at a producer, p99", percentile(p.gaps, 99), pauseWorst, 0),
	}
}

// pauses makes a stream, sets producers and consumers to work on it, and reshards it to and fro.
func (b *bench) pauses(ctx context.Context, prefix string, consumers int) (p pauses, err error) {
	ctx, stop := context.WithCancel(ctx)
	work, workCtx := errgroup.WithContext(ctx)
	defer func() {
		stop()
		if ended := work.Wait(); err == nil {
			err = ended
		}
	}()
	readers := ""
	if consumers > 0 {
		readers = group
	}
	if err := b.makeStream(ctx, prefix, pauseFrom, readers); err != nil {
		return p, err
	}
	for n := range consumers {
		work.Go(func() error { return b.keepUp(workCtx, prefix, fmt.Sprintf("reader-%d", n)) })
	}
	landed := make([]*landings, pauseProducers)
	for n := range landed {
		landed[n] = &landings{more: make(chan struct{}, 1)}
		work.Go(func() error { return b.keepAppending(workCtx, prefix, n, landed[n], consumers == 0) })
	}
	var left []int64
	for range pauseRuns {
		if err := steady(workCtx, landed); err != nil {
			return p, err
		}
		if consumers > 0 {
			n, err := b.backlog(workCtx, prefix, pauseFrom)
			if err != nil {
				return p, err
			}
			left = append(left, n)
		}
		for _, l := range landed {
			l.reset()
		}
		if err := b.reshard(workCtx, prefix, pauseTo, protocol.StrategyQuiesce); err != nil {
			return p, errors.Join(err, context.Cause(workCtx))
		}
		longest := time.Duration(0)
		for _, l := range landed {
			longest = max(longest, l.longest())
		}
		p.gaps = append(p.gaps, longest)
		r, err := b.last(workCtx, prefix)
		if err != nil {
			return p, err
		}
		p.paused = append(p.paused, time.Duration(r.PausedMs)*time.Millisecond)
		if err := b.reshard(workCtx, prefix, pauseFrom, protocol.StrategyQuiesce); err != nil {
			return p, errors.Join(err, context.Cause(workCtx))
		}
		if consumers == 0 { // what nobody reads must not fill the memory
			if err := b.trim(workCtx, prefix); err != nil {
				return p, err
			}
		}
	}
	fmt.Fprintf(os.Stderr, "  %s: paused p50 %s, p99 %s, worst %s; nothing lands p50 %s, p99 %s, worst %s\n", prefix,
		percentile(p.paused, 50), percentile(p.paused, 99), percentile(p.paused, 100),
		percentile(p.gaps, 50), percentile(p.gaps, 99), percentile(p.gaps, 100))
	if len(left) > 0 {
		fmt.Fprintf(os.Stderr, "  %s: not acknowledged when the change was asked for: p50 %d, worst %d entries\n", prefix, percentile(left, 50), percentile(left, 100))
	}
	return p, nil
}

// keepAppending lets one producer append until ctx ends: with flood as fast as its queue takes
// entries, else from four callers of which each waits until its entry has landed.
func (b *bench) keepAppending(ctx context.Context, prefix string, n int, seen *landings, flood bool) error {
	own, err := newClient(b.coordinatorAddr)
	if err != nil {
		return err
	}
	rdb := b.redisServer.Client()
	defer rdb.Close()
	p, err := producer.New(producer.Config{Client: own, Redis: rdb, StreamPrefix: prefix, MaxBatch: batchSize, Logger: quiet})
	if err != nil {
		return err
	}
	p.Start()
	if flood {
		err = flooding(ctx, p, n, seen)
	} else {
		err = waitingCallers(ctx, p, n, seen)
	}
	if ctx.Err() != nil { // it was asked to stop
		err = nil
	}
	return errors.Join(err, p.Close(context.WithoutCancel(ctx)))
}

func flooding(ctx context.Context, p *producer.Producer, n int, seen *landings) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	done := func(_ producer.Result, err error) {
		if err != nil {
			fail(err)
			return
		}
		seen.landed()
	}
	for i := n; ; i += pauseProducers {
		if err := p.AppendAsync(ctx, keys[i%len(keys)], producer.Fields{"body", body}, done); err != nil {
			return context.Cause(ctx)
		}
	}
}

func waitingCallers(ctx context.Context, p *producer.Producer, n int, seen *landings) error {
	const callers = 4
	calls, ctx := errgroup.WithContext(ctx)
	for c := range callers {
		calls.Go(func() error {
			for i := n + c*pauseProducers; ; i += callers * pauseProducers {
				if _, err := p.Append(ctx, keys[i%len(keys)], producer.Fields{"body", body}); err != nil {
					return err
				}
				seen.landed()
			}
		})
	}
	return calls.Wait()
}

// keepUp is one consumer that acknowledges all that it gets until ctx ends.
func (b *bench) keepUp(ctx context.Context, prefix, member string) error {
	own, err := newClient(b.coordinatorAddr)
	if err != nil {
		return err
	}
	rdb := b.redisServer.Client()
	defer rdb.Close()
	c, err := consumer.New(consumer.Config{
		Client: own, Redis: rdb, StreamPrefix: prefix, Group: group, MemberID: member, BatchSize: batchSize, Logger: quiet,
		BatchHandler: func(context.Context, []consumer.Delivery) error { return nil },
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// backlog is how many entries of the shards were read by nobody or are pending, as Redis counts.
func (b *bench) backlog(ctx context.Context, prefix string, shards int) (int64, error) {
	var all int64
	for i := range shards {
		groups, err := b.redis.XInfoGroups(ctx, protocol.ShardKey(prefix, i)).Result()
		if err != nil {
			return 0, err
		}
		for _, g := range groups {
			all += g.Pending + max(g.Lag, 0)
		}
	}
	return all, nil
}

// landings of one producer: how many there were, and the longest time without one.
type landings struct {
	mu    sync.Mutex
	count int
	last  time.Time
	most  time.Duration
	more  chan struct{} // something landed
}

func (l *landings) landed() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	l.most = max(l.most, now.Sub(l.last))
	l.last = now
	select {
	case l.more <- struct{}{}:
	default:
	}
}

func (l *landings) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count, l.last, l.most = 0, time.Now(), 0
}

// longest counts the time since the last landing as well.
func (l *landings) longest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(l.most, time.Since(l.last))
}

// steady waits until every producer has got into its stride: 500 landings since the last reset.
func steady(ctx context.Context, all []*landings) error {
	const enough = 500
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for n, l := range all {
		for {
			l.mu.Lock()
			count := l.count
			l.mu.Unlock()
			if count >= enough {
				break
			}
			select {
			case <-l.more:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-deadline.C:
				return fmt.Errorf("producer %d: %d entries landed in 30 s", n, count)
			}
		}
	}
	return nil
}

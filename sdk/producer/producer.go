package producer

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/appendflow"
	"github.com/redisstream/terraform-provider-redisstream/sdk/internal/shard"
)

// senders is how many pipelines are under way at once.
const senders = 4

// Producer appends to one stream. It is safe for concurrent use.
type Producer struct {
	cfg    Config
	shards *shard.Shards
	begin  time.Time
	room   chan struct{} // one for each entry that is queued or under way

	mu       sync.Mutex
	machine  *appendflow.Machine
	layout   appendflow.Layout
	running  bool
	closing  bool
	accepted uint64              // number of the newest entry
	open     int                 // entries that have not ended
	flushes  []flush             // the last one counts what was accepted after it
	armed    time.Duration       // when keepTime will step
	ready    []*appendflow.Batch // to be sent
	calls    []*pending          // asynchronous ones that have ended

	toSend, toCall, toTime, toRefresh chan struct{} // capacity 1: something is there

	stop    context.CancelFunc
	work    context.Context // ends with Close; of the producer's own goroutines
	stopped chan struct{}
	wg      sync.WaitGroup
	hooks   sync.Mutex
}

// New validates cfg. It starts nothing.
func New(cfg Config) (*Producer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	shards, err := shard.New(cfg.Redis, cfg.StreamPrefix)
	if err != nil {
		return nil, fmt.Errorf("producer: %w", err)
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(cfg.ProducerID)) // never fails
	signal := func() chan struct{} { return make(chan struct{}, 1) }
	p := &Producer{
		cfg: cfg, shards: shards, begin: time.Now(), room: make(chan struct{}, cfg.MaxQueue),
		machine: appendflow.New(appendflow.Config{
			MaxBatch: cfg.MaxBatch, Linger: cfg.Linger, FailFast: cfg.FailFast, Plain: cfg.Plain, Seed: seed.Sum64(),
		}),
		flushes: []flush{{}}, armed: appendflow.Never, stopped: make(chan struct{}),
		toSend: signal(), toCall: signal(), toTime: signal(), toRefresh: signal(),
	}
	p.work, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Start lets the producer run until Close. A second call does nothing.
func (p *Producer) Start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running || p.closing {
		return
	}
	p.running = true
	p.wg.Go(p.keepTime)
	p.wg.Go(p.keepRouting)
	p.wg.Go(p.callBack)
	for range senders {
		p.wg.Go(p.send)
	}
	p.take(p.machine.Step(p.now()))
}

// flush counts the entries that were accepted since the flush before and have not ended.
type flush struct {
	open  int
	ended chan struct{} // closed when it and all before it have none left
	first uint64        // number of the first entry that belongs to it
}

// Flush waits until every entry that was accepted before the call has ended. An error is that
// of ctx.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	if p.open == 0 {
		p.mu.Unlock()
		return nil
	}
	last := &p.flushes[len(p.flushes)-1]
	if last.open == 0 && len(p.flushes) > 1 { // nothing since the one before
		last = &p.flushes[len(p.flushes)-2]
	} else {
		last.ended = make(chan struct{})
		p.flushes = append(p.flushes, flush{first: p.accepted + 1})
	}
	ended := last.ended
	p.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeOne counts an entry that has ended.
func (p *Producer) closeOne(a *pending) {
	p.open--
	for i := len(p.flushes) - 1; i >= 0; i-- {
		if a.number >= p.flushes[i].first {
			p.flushes[i].open--
			break
		}
	}
	for len(p.flushes) > 1 && p.flushes[0].open == 0 {
		close(p.flushes[0].ended)
		p.flushes = p.flushes[1:]
	}
}

// Close takes no more entries, waits until those that were accepted have ended, and stops. When
// ctx ends first, what was not sent ends with ErrClosed and the error is that of ctx. After it
// returns, nothing of the producer runs. A second call does nothing.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		<-p.stopped
		return nil
	}
	p.closing = true
	running := p.running
	p.mu.Unlock()

	var err error
	if running {
		err = p.Flush(ctx)
	}
	p.mu.Lock()
	p.take(p.machine.Abort(ErrClosed))
	p.mu.Unlock()
	// Batches under way end within the Redis client's own time-outs, or here.
	p.stop()
	p.wg.Wait()
	p.finish()
	close(p.stopped)
	return err
}

// finish ends what no goroutine is left for.
func (p *Producer) finish() {
	p.mu.Lock()
	p.take(p.machine.Abort(ErrClosed))
	batches := p.ready
	p.ready = nil
	for _, b := range batches {
		p.take(p.machine.Step(p.now(), appendflow.Replied{Batch: b, Reply: appendflow.Reply{Err: ErrClosed}}))
	}
	calls := p.calls
	p.calls = nil
	p.mu.Unlock()
	p.report(calls)
}

func (p *Producer) now() time.Duration { return time.Since(p.begin) }

// Layout is the layout in use, and whether there is one yet.
func (p *Producer) Layout() (epoch int64, shardCount int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l, ok := p.machine.Layout()
	return l.Epoch, l.Count, ok
}

// Queued is the number of entries that have not ended.
func (p *Producer) Queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// push gives an entry to the machine; false when the producer does not run.
func (p *Producer) push(a *pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running || p.closing {
		return false
	}
	p.open++
	p.accepted++
	a.number = p.accepted
	p.flushes[len(p.flushes)-1].open++
	now := p.now()
	p.machine.Push(now, &a.entry)
	p.take(p.machine.Step(now))
	return true
}

// withdraw takes an entry back that is not under way.
func (p *Producer) withdraw(a *pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-a.done:
		return false
	default:
	}
	if !p.machine.Cancel(&a.entry) {
		return false
	}
	p.closeOne(a)
	<-p.room
	return true
}

// step gives inputs to the machine.
func (p *Producer) step(inputs ...appendflow.Input) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(p.machine.Step(p.now(), inputs...))
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take carries out actions, under the lock: it only hands on, and never waits.
func (p *Producer) take(actions []appendflow.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case appendflow.Send:
			p.ready = append(p.ready, a.Batch)
			notify(p.toSend)
		case appendflow.Done:
			p.end(a)
		case appendflow.Refresh:
			notify(p.toRefresh)
		case appendflow.Look:
			p.wg.Go(p.look)
		case appendflow.Resolve:
			p.wg.Go(func() { p.resolve(a) })
		case appendflow.Bring:
			p.wg.Go(func() { p.bring(a) })
		}
	}
	if l, _ := p.machine.Layout(); l != p.layout {
		p.layout = l
		p.cfg.Logger.Info("layout", "stream", p.cfg.StreamPrefix, "epoch", l.Epoch, "shards", l.Count)
		if p.cfg.Hooks.Layout != nil {
			p.cfg.Hooks.Layout(l.Epoch, l.Count)
		}
	}
	if p.machine.Wake() < p.armed {
		notify(p.toTime)
	}
}

func (p *Producer) end(d appendflow.Done) {
	a := d.Entry.Value.(*pending) //nolint:forcetypeassert // nothing else is pushed
	a.err = d.Err
	p.closeOne(a)
	if a.call == nil {
		close(a.done)
		<-p.room
		return
	}
	p.calls = append(p.calls, a)
	notify(p.toCall)
}

// callBack reports asynchronous appends, one at a time.
func (p *Producer) callBack() {
	for {
		select {
		case <-p.toCall:
		case <-p.work.Done():
			return // finish reports the rest
		}
		p.mu.Lock()
		calls := p.calls
		p.calls = nil
		p.mu.Unlock()
		p.report(calls)
	}
}

func (p *Producer) report(calls []*pending) {
	for _, a := range calls {
		a.call(a.result, a.err)
		<-p.room
	}
}

// keepTime steps the machine when it is due.
func (p *Producer) keepTime() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		wake := p.machine.Wake()
		p.armed = wake
		p.mu.Unlock()
		if wake == appendflow.Never {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(max(wake-p.now(), 0))
		}
		select {
		case <-timer.C:
			p.step()
		case <-p.toTime:
		case <-p.work.Done():
			return
		}
	}
}

// isClosed says that the producer is being closed, so that a failure is no news.
func (p *Producer) isClosed() bool { return errors.Is(p.work.Err(), context.Canceled) }

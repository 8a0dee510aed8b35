package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	commandQueue   = 16384                   // commands that may wait at one actor; more are refused
	maxBatch       = 2048                    // commands in one turn
	commitTimeout  = 1500 * time.Millisecond // of one script; below the slack that clients give a heartbeat
	scanInterval   = 2 * time.Second         // how often the index of streams is read
	readinessGrace = 5 * time.Second         // Redis silent for longer: not ready
)

// Engine runs the actors of one replica. Create it with New, then Start, then Stop.
type Engine struct {
	cfg Config
	log *zap.Logger

	ctx    context.Context // of all goroutines of the engine, from Start to Stop
	cancel context.CancelFunc
	wg     sync.WaitGroup

	stopping atomic.Bool
	stopped  chan struct{} // closed when all goroutines have ended
	redisOK  atomic.Int64  // local time in ns at which Redis last answered
	probing  chan struct{} // bounds the passes that calls run to look at shards

	mu     sync.Mutex
	actors map[string]*actor

	metrics *metrics

	beforePass func(stream.Pass) // tests stop a replica here; nil otherwise
}

var _ API = (*Engine)(nil)

// New validates cfg; it starts nothing.
func New(cfg Config) (*Engine, error) {
	switch {
	case cfg.Store == nil:
		return nil, errors.New("engine: Store is required")
	case cfg.CoordinatorID == "":
		return nil, errors.New("engine: CoordinatorID is required")
	case cfg.Logger == nil:
		return nil, errors.New("engine: Logger is required")
	}
	if cfg.RoutingLease == 0 {
		cfg.RoutingLease = 30 * time.Second
	}
	if cfg.SweepInterval == 0 {
		cfg.SweepInterval = 10 * time.Second
	}
	if cfg.RetentionInterval == 0 {
		cfg.RetentionInterval = 5 * time.Second
	}
	if cfg.TickerTTL == 0 {
		cfg.TickerTTL = 3 * time.Second
	}
	if cfg.ObservationWindow == 0 {
		cfg.ObservationWindow = defaultObserve
	}
	return &Engine{cfg: cfg, log: cfg.Logger, stopped: make(chan struct{}), probing: make(chan struct{}, mostProbes), actors: map[string]*actor{}, metrics: newMetrics(cfg.Registerer)}, nil
}

// Start begins the background work: notices of other replicas and the periodic work of every
// stream in the index. The first read of the index happens in the background, so that a replica
// starts while Redis is away.
func (e *Engine) Start(ctx context.Context) error {
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.wg.Go(e.watchNotices)
	e.wg.Go(e.scanStreams)
	return nil
}

// Stop refuses new commands, answers what is held, gives the soft locks back and waits for all
// goroutines, or until ctx ends.
func (e *Engine) Stop(ctx context.Context) error {
	if e.cancel == nil {
		e.stopping.Store(true)
		return nil
	}
	if !e.stopping.Swap(true) {
		e.cancel()
		go func() { e.wg.Wait(); close(e.stopped) }()
	}
	select {
	case <-e.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Ready says whether this replica can serve.
func (e *Engine) Ready() error {
	if e.stopping.Load() {
		return protocol.NewError(protocol.CodeTerminating, "the coordinator is stopping")
	}
	at := e.redisOK.Load()
	if at == 0 {
		return protocol.NewError(protocol.CodeRedisUnavailable, "redis has not answered yet")
	}
	if since := time.Since(time.Unix(0, at)); since > readinessGrace {
		return protocol.NewError(protocol.CodeRedisUnavailable, "redis has not answered for "+since.Round(time.Second).String())
	}
	return nil
}

func (e *Engine) sawRedis() { e.redisOK.Store(time.Now().UnixNano()) }

// watchNotices hands the commits of other replicas to the actors concerned. It ends when the
// store is closed or the engine stops.
func (e *Engine) watchNotices() {
	notices := e.cfg.Store.Notices()
	for {
		select {
		case <-e.ctx.Done():
			return
		case n, ok := <-notices:
			if !ok {
				return
			}
			e.mu.Lock()
			a := e.actors[n.Prefix]
			e.mu.Unlock()
			if a != nil {
				a.notice(n.Nonce)
			}
		}
	}
}

// scanStreams keeps an actor for every stream in the index, so that its periodic work is done
// though no client speaks to this replica.
func (e *Engine) scanStreams() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-timer.C:
		}
		ctx, cancel := context.WithTimeout(e.ctx, commitTimeout)
		prefixes, err := e.cfg.Store.Streams(ctx)
		cancel()
		if err != nil {
			e.log.Warn("reading the index of streams", zap.Error(err))
		} else {
			e.sawRedis()
			for _, prefix := range prefixes {
				e.wake(prefix)
			}
		}
		timer.Reset(scanInterval)
	}
}

// wake makes sure that the stream has an actor.
func (e *Engine) wake(prefix string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.actors[prefix] == nil && !e.stopping.Load() {
		e.startActor(prefix)
	}
}

// startActor is called with mu held.
func (e *Engine) startActor(prefix string) *actor {
	a := newActor(e, prefix)
	e.actors[prefix] = a
	e.cfg.Store.Watch(prefix)
	e.wg.Go(a.run)
	return a
}

// submit queues a command at the actor of its stream. It never blocks.
func (e *Engine) submit(prefix string, c *command) *protocol.Error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping.Load() {
		return protocol.NewError(protocol.CodeTerminating, "the coordinator is stopping")
	}
	a := e.actors[prefix]
	if a == nil {
		a = e.startActor(prefix)
	}
	select {
	case a.queue <- c:
		return nil
	default:
		return protocol.NewError(protocol.CodeCoordinatorOverloaded, "too many requests wait for this stream")
	}
}

// retire removes an actor that has nothing to do; false when a command came in meanwhile.
func (e *Engine) retire(a *actor) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(a.queue) > 0 {
		return false
	}
	delete(e.actors, a.prefix)
	e.cfg.Store.Unwatch(a.prefix)
	return true
}

// do submits c and waits for its end. A command that a turn has taken is waited for even when ctx
// ends: for the time of a commit.
func (e *Engine) do(ctx context.Context, prefix string, c *command) *protocol.Error {
	if err := e.submit(prefix, c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		if !c.leave() {
			return <-c.done
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return protocol.NewError(protocol.CodeRedisUnavailable, "the request was not decided in time: redis is slow or away; repeat it")
		}
		return protocol.NewError(protocol.CodeInternal, "the client left before it was answered")
	}
}

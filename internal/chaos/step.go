package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Bounds of one change.
const (
	endWithin  = 90 * time.Second // until it has ended, whatever is killed meanwhile
	restWithin = 60 * time.Second // until the stream is at rest afterwards
	flowWithin = 60 * time.Second // until entries land and are handled again
)

// step is one change under way.
type step struct {
	w        *world
	plan     plan
	accepted chan struct{}
	id       string // known when accepted is closed
	ended    chan struct{}
	last     protocol.Resharding // of run

	mu     sync.Mutex
	phases map[protocol.Phase]chan struct{} // closed when it was seen
}

// outcome is what became of a change.
type outcome struct {
	plan       plan
	began      time.Time
	ended      time.Time
	phase      protocol.Phase // "" when the stream had that count already
	from, to   int
	problem    error // of the change itself
	unfinished bool  // nothing more can be done with this stream
}

// change makes one change, with everything that is to happen meanwhile, and checks what it left.
func (w *world) change(ctx context.Context, p plan) outcome {
	o := outcome{plan: p, began: time.Now()}
	defer func() { o.ended = time.Now() }()
	at, err := w.atRest(ctx)
	if err != nil {
		o.problem, o.unfinished = err, true
		return o
	}
	o.from = at.Status.ShardCount
	if p.target == o.from {
		p.target = p.target%maxShards + 1
	}
	abandoned, err := w.abandon(ctx, &p, o.from)
	if err != nil {
		o.problem = err
		return o
	}
	s := &step{w: w, plan: p, phases: map[protocol.Phase]chan struct{}{}, accepted: make(chan struct{}), ended: make(chan struct{})}
	var going sync.WaitGroup
	var meanwhile []error
	var mu sync.Mutex
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		meanwhile = append(meanwhile, err)
	}
	alongside := func(m moment, what string, do func() error) {
		going.Go(func() {
			if !s.await(ctx, m) {
				return
			}
			if err := do(); err != nil && ctx.Err() == nil {
				note(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	for _, f := range p.faults {
		alongside(f.moment, f.String(), func() error { return w.inflict(ctx, f) })
	}
	if p.rollback != nil {
		going.Go(func() {
			select {
			case <-s.accepted:
			case <-s.ended:
				return
			}
			if !s.await(ctx, *p.rollback) {
				return
			}
			if err := s.rollBack(ctx); err != nil && ctx.Err() == nil {
				note(fmt.Errorf("rollback: %w", err))
			}
		})
	}
	if p.pause != nil {
		alongside(*p.pause, "operator's pause", func() error { return s.operate(ctx) })
	}
	err = s.run(ctx)
	close(s.ended)
	going.Wait()
	o.problem = errors.Join(append([]error{err}, meanwhile...)...)
	o.phase, o.to = s.last.Phase, s.last.ToShardCount
	if err != nil {
		o.unfinished = true
		return o
	}
	if abandoned {
		o.problem = errors.Join(o.problem, w.forget(ctx, abandonedGroup(p.number)))
	}
	after, err := w.atRest(ctx)
	if err != nil {
		o.problem, o.unfinished = errors.Join(o.problem, err), true
		return o
	}
	o.problem = errors.Join(o.problem, s.check(ctx, after), w.flows(ctx))
	return o
}

// run asks for the change and follows it to its end.
func (s *step) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endWithin)
	defer cancel()
	if err := s.ask(ctx); err != nil {
		return err
	}
	close(s.accepted)
	for {
		r, err := s.w.api.Resharding(ctx, streamPrefix, s.id, s.last.Phase, 2*time.Second)
		if err == nil {
			s.seen(r)
			if r.Phase.Terminal() {
				return nil
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("resharding %s did not end within %s: last seen %s, waiting for %q: %w", s.id, endWithin, s.last.Phase, s.last.WaitingFor, errors.Join(err, ctx.Err()))
		}
		if err != nil {
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// ask declares the new count until a change to it is on record.
func (s *step) ask(ctx context.Context) error {
	count := int64(s.plan.target)
	reason := fmt.Sprint("chaos ", s.plan.number)
	for {
		res, err := s.w.api.PutStream(ctx, streamPrefix, protocol.PutStreamRequest{ShardCount: &count, Resharding: s.plan.policy, RequestedBy: "chaos", Reason: reason}, client.Call{})
		if err == nil && res.ReshardingID != "" {
			s.id = res.ReshardingID
			return nil
		}
		if _, refused := errors.AsType[*protocol.Error](err); refused && client.Permanent(err) && !errors.Is(err, protocol.ErrActiveResharding) {
			return fmt.Errorf("the change is refused: %w", err)
		}
		// The answer was lost, and the change has ended since: its record tells.
		list, listErr := s.w.api.Reshardings(ctx, streamPrefix)
		if i := slices.IndexFunc(list.Reshardings, func(r protocol.Resharding) bool {
			return r.Reason == reason || strings.HasPrefix(r.Reason, reason+";")
		}); i >= 0 {
			s.id = list.Reshardings[i].ReshardingID
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("the change was not accepted within %s: %w", endWithin, errors.Join(err, listErr))
		}
	}
}

// seen notes how far the change is.
func (s *step) seen(r protocol.Resharding) {
	s.last = r
	for _, span := range r.Phases {
		c := s.reached(span.Phase)
		select {
		case <-c:
		default:
			close(c)
		}
	}
}

func (s *step) reached(p protocol.Phase) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phases[p] == nil {
		s.phases[p] = make(chan struct{})
	}
	return s.phases[p]
}

// await waits for a moment; false when the run was interrupted.
func (s *step) await(ctx context.Context, m moment) bool {
	if m.phase != "" {
		select {
		case <-s.reached(m.phase):
		case <-s.ended:
		case <-ctx.Done():
			return false
		}
	}
	return pause(ctx, m.after)
}

// rollBack asks for it once. It may come too late.
func (s *step) rollBack(ctx context.Context) error {
	_, err := s.w.api.Rollback(ctx, streamPrefix, s.id, protocol.RollbackRequest{RequestedBy: "chaos", Reason: "chaos"}, client.Call{})
	if refused, ok := errors.AsType[*protocol.Error](err); ok && refused.Code.HTTPStatus() < 500 {
		return nil // too late
	}
	return ignoreOutage(err)
}

// operate is the operator's pause, and its end if it does not end by itself.
func (s *step) operate(ctx context.Context) error {
	_, err := s.w.api.PausePublishing(ctx, streamPrefix, protocol.PauseRequest{TimeoutMs: s.plan.pauseFor.Milliseconds(), RequestedBy: "chaos", Reason: "chaos"}, client.Call{})
	if err = ignoreOutage(err); err != nil || s.plan.resume == 0 || !pause(ctx, s.plan.resume) {
		return err
	}
	_, err = s.w.api.ResumePublishing(ctx, streamPrefix, protocol.ResumeRequest{RequestedBy: "chaos", Reason: "chaos"}, client.Call{})
	return ignoreOutage(err)
}

// ignoreOutage leaves only what a coordinator refused for good: calls fail while replicas are killed.
func ignoreOutage(err error) error {
	if refused, ok := errors.AsType[*protocol.Error](err); ok && !refused.Retriable() {
		return err
	}
	return nil
}

// atRest waits until no change runs and publishing is open, and returns what the stream looks like
// then.
func (w *world) atRest(ctx context.Context) (protocol.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, restWithin)
	defer cancel()
	var seen protocol.Stream
	for {
		s, err := w.api.Stream(ctx, streamPrefix)
		if err == nil {
			seen = s
			converged := slices.ContainsFunc(s.Status.Conditions, func(c protocol.Condition) bool { return c.Type == "Converged" && c.Status == "True" })
			if s.Status.ActiveReshardingID == "" && s.Status.PublishState == protocol.PublishOpen && converged {
				return s, w.remember(ctx)
			}
		}
		if !pause(ctx, 20*time.Millisecond) {
			return seen, fmt.Errorf("the stream is not at rest within %s: %+v: %w", restWithin, seen.Status, errors.Join(err, ctx.Err()))
		}
	}
}

// flows waits until producers land entries and every group handles some.
func (w *world) flows(ctx context.Context) error {
	const some = 20
	ctx, cancel := context.WithTimeout(ctx, flowWithin)
	defer cancel()
	before := w.journal.Progress()
	for {
		p := w.journal.Progress()
		ok := p.Landed >= before.Landed+some
		for g := range groupNames {
			ok = ok && p.Handled[g] >= before.Handled[g]+some
		}
		if ok {
			return nil
		}
		if !pause(ctx, 10*time.Millisecond) {
			return fmt.Errorf("traffic stands still after the change: %+v, then %+v", before, p)
		}
	}
}

// remember notes the times in which the changes on record promised no order.
func (w *world) remember(ctx context.Context) error {
	list, err := w.api.Reshardings(ctx, streamPrefix)
	if err != nil {
		return ignoreOutage(err) // the next one will do: many more are on record
	}
	for _, r := range list.Reshardings {
		if !r.Phase.Terminal() || w.known[r.ReshardingID] {
			continue
		}
		w.known[r.ReshardingID] = true
		w.records = append(w.records, r)
		window, moved, err := orderWindow(r)
		if err != nil {
			return err
		}
		if moved {
			w.journal.Excuse(window)
		}
	}
	return nil
}

// orderWindow is when keys may have changed their shard without a promise of order; false when they
// have not, or when the order is promised.
func orderWindow(r protocol.Resharding) (ledger.Window, bool, error) {
	strict := r.Strategy == protocol.StrategyQuiesce && r.DrainScope == protocol.DrainAll
	changed := slices.ContainsFunc(r.Phases, func(span protocol.PhaseSpan) bool {
		return span.Phase == protocol.PhaseOpening && span.EndedAt != nil
	})
	switch {
	case !changed:
		return ledger.Window{}, false, nil
	case strict && r.OrderWindow != nil:
		return ledger.Window{}, false, fmt.Errorf("resharding %s promises the order of each key and reports a window of disorder", r.ReshardingID)
	case strict:
		return ledger.Window{}, false, nil
	case r.FromShardCount == r.ToShardCount: // a repair
		return ledger.Window{}, false, nil
	case r.OrderWindow == nil || r.OrderWindow.To == nil:
		return ledger.Window{}, false, fmt.Errorf("resharding %s promises no order of the keys and does not report when they may be out of it", r.ReshardingID)
	}
	return ledger.Window{From: r.OrderWindow.From, To: *r.OrderWindow.To}, true, nil
}

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	// previewProbes is how many passes of previews run at a time in this replica: each is read
	// only, but counts entries.
	previewProbes = 4
	// previewCount is how many undelivered entries are counted of one group on one shard, at most
	// and at least; previewTotal is the budget of a whole pass between them.
	previewCount, previewCountLeast, previewTotal = 10_000, 100, 100_000
	// previewProducers is how many producers a preview lists, and producersLately since when.
	previewProducers = 100
	producersLately  = 5 * time.Minute
	defaultObserve   = 500 * time.Millisecond
)

// stored is what an actor holds of its stream, proven current when it was taken.
type stored struct {
	unit      aggregate.Unit
	identity  string
	revision  int64
	checkedAt protocol.Instant
	now       protocol.Instant
}

// look takes what is stored of a stream, once it is proven current.
func (e *Engine) look(ctx context.Context, prefix string) (stored, error) {
	var s stored
	c := newCommand(func(t *aggregate.Turn) *protocol.Error {
		t.Stream()
		for _, name := range t.GroupNames() {
			t.Group(name) // what is touched is proven
		}
		return nil
	})
	c.inspect = func(a *actor) {
		if a.cache == nil {
			return
		}
		s = stored{
			unit:     aggregate.Unit{Stream: a.cache.unit.Stream, Groups: maps.Clone(a.cache.unit.Groups), Leases: map[string]group.Leases{}},
			identity: a.cache.identity, revision: a.cache.streamToken.Revision, checkedAt: a.cache.checkedAt, now: a.now(),
		}
		for name, rows := range a.cache.unit.Leases {
			s.unit.Leases[name] = maps.Clone(rows) // the actor goes on with its own
		}
	}
	if err := e.do(ctx, prefix, c); err != nil {
		return stored{}, err
	}
	return s, nil
}

// decide is PutStream on a turn that is thrown away. A wrong generation is only one thing to
// tell: what the call would do for the present one is told as well.
func (s stored) decide(prefix string, spec protocol.StreamSpec, ifMatch int64) (stream.Decision, *protocol.Error) {
	d := stream.Decision{Prefix: prefix, Spec: spec, Before: s.unit.Stream, NewID: newReshardingID(), At: s.now}
	for {
		t := aggregate.Begin(s.unit, s.now, nil)
		_, id, refused := t.PutStream(prefix, spec, s.identity, stream.Request{ID: d.NewID, IfMatch: ifMatch})
		if refused != nil && refused.Code == protocol.CodeInvalidRequest {
			return d, refused
		}
		if refused != nil {
			d.Refused = append(d.Refused, refused)
		}
		if refused != nil && refused.Code == protocol.CodeGenerationMismatch && ifMatch != 0 {
			ifMatch = 0
			continue
		}
		d.ReshardingID, d.After = id, t.Stream()
		return d, nil
	}
}

// PreviewStream is what PutStream would do, as far as it can be known; it changes nothing. It
// runs beside the actor of the stream, which it asks once for what is stored.
func (e *Engine) PreviewStream(ctx context.Context, prefix string, spec protocol.StreamSpec, ifMatch int64) (protocol.Preview, error) {
	s, err := e.look(ctx, prefix)
	if err != nil {
		return protocol.Preview{}, err
	}
	d, refused := s.decide(prefix, spec, ifMatch)
	if refused != nil {
		return protocol.Preview{}, refused
	}
	var f stream.PreviewFacts
	started := time.Now()
	if f.Look, err = e.probe(ctx, prefix, s, d, nil); err != nil {
		return protocol.Preview{}, err
	}
	f.PassTime = time.Since(started)
	if backlogged := d.Backlogged(f.Look); len(backlogged) > 0 && e.cfg.ObservationWindow > 0 {
		if err := e.observationWindow(ctx); err != nil {
			return protocol.Preview{}, err
		}
		if f.Again, err = e.probe(ctx, prefix, s, d, backlogged); err != nil {
			return protocol.Preview{}, err
		}
	}
	if s.unit.Stream != nil {
		e.observers(ctx, prefix, s, d, &f)
	}
	return stream.Preview(d, f), nil
}

// probe looks at shards, with a bound on how many previews do so at a time.
func (e *Engine) probe(ctx context.Context, prefix string, s stored, d stream.Decision, only []int) (stream.PassResult, error) {
	pass := d.PlanProbe(previewCount, only)
	if pass.Empty() {
		return stream.PassResult{Pass: pass}, nil
	}
	shards := len(d.PlanProbe(0, nil).Stages[0])
	most := previewTotal / (shards * (len(s.unit.Groups) + 1))
	pass = d.PlanProbe(min(max(most, previewCountLeast), previewCount), only)
	select {
	case e.probing <- struct{}{}:
		defer func() { <-e.probing }()
	case <-ctx.Done():
		return stream.PassResult{}, notInTime(ctx)
	case <-e.ctx.Done():
		return stream.PassResult{}, protocol.NewError(protocol.CodeTerminating, "the coordinator is stopping")
	}
	res := e.cfg.Store.RunPass(ctx, prefix, s.revision, s.checkedAt, pass)
	if ctx.Err() != nil {
		return stream.PassResult{}, notInTime(ctx)
	}
	return res, nil
}

// observationWindow is the time between two looks, of which a call that must end soon gets less.
func (e *Engine) observationWindow(ctx context.Context) error {
	window := e.cfg.ObservationWindow
	if deadline, ok := ctx.Deadline(); ok {
		window = min(window, max(time.Until(deadline), 0)/2)
	}
	timer := time.NewTimer(window)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return notInTime(ctx)
	case <-e.ctx.Done():
		return protocol.NewError(protocol.CodeTerminating, "the coordinator is stopping")
	}
}

func notInTime(ctx context.Context) *protocol.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return protocol.NewError(protocol.CodeRedisUnavailable, "the shards were not looked at in time: redis is slow or away; repeat the request")
	}
	return protocol.NewError(protocol.CodeInternal, "the client left before it was answered")
}

// observers finds out who is concerned: members by group, and producers. What cannot be read is
// unknown.
func (e *Engine) observers(ctx context.Context, prefix string, s stored, d stream.Decision, f *stream.PreviewFacts) {
	f.Members = make(map[string]stream.GroupMembers, len(s.unit.Groups))
	for _, name := range s.unit.GroupNames() {
		g := s.unit.Groups[name]
		rows, now, err := e.cfg.Store.Leases(ctx, prefix, name, 0) // renewals by other replicas are no news to the actor
		if err != nil {
			e.log.Warn("reading lease rows", zap.String("stream", prefix), zap.String("group", name), zap.Error(err))
			f.Unknown = append(f.Unknown, fmt.Sprintf("the leases of group %s could not be read: its live members are those that this replica knew", name))
			rows, now = s.unit.Leases[name], s.now
		}
		f.Members[name] = stream.GroupMembers{Live: group.Live(g, rows, now), Affected: group.Affected(g, d.Assigned(), s.now)}
	}
	var err error
	if f.PlainSeen, err = e.cfg.Store.PlainSeen(ctx, prefix); err != nil {
		e.log.Warn("reading when plain producers were seen", zap.String("stream", prefix), zap.Error(err))
		f.Unknown = append(f.Unknown, "whether producers that do not fence were seen lately could not be read")
		f.PlainSeen = s.now // as if one had asked just now
	}
	if f.Producers, err = e.cfg.Store.Producers(ctx, prefix, s.now.Add(-producersLately), previewProducers); err != nil {
		e.log.Warn("reading producers", zap.String("stream", prefix), zap.Error(err))
		f.Unknown = append(f.Unknown, "which producers were seen lately could not be read")
	}
	slices.Sort(f.Unknown)
}

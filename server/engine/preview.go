package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	// previewCount is how many undelivered entries are counted of one group on one shard, at most
	// and at least; previewTotal is the budget of a whole pass between them.
	previewCount, previewCountLeast, previewTotal = 10_000, 100, 100_000
	// previewProducers is how many producers a preview lists, and producersLately since when.
	previewProducers = 100
	producersLately  = 5 * time.Minute
	defaultObserve   = 500 * time.Millisecond
)

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
		if err := e.observers(ctx, prefix, s, d, &f); err != nil {
			return protocol.Preview{}, err
		}
	}
	return stream.Preview(d, f), nil
}

// probe looks at shards, counting fewer entries of each group the more shards and groups there are.
func (e *Engine) probe(ctx context.Context, prefix string, s stored, d stream.Decision, only []int) (stream.PassResult, error) {
	pass := d.PlanProbe(previewCount, only)
	if pass.Empty() {
		return stream.PassResult{Pass: pass}, nil
	}
	shards := len(d.PlanProbe(0, nil).Stages[0])
	most := previewTotal / (shards * (len(s.unit.Groups) + 1))
	return e.probeShards(ctx, prefix, s, d.PlanProbe(min(max(most, previewCountLeast), previewCount), only))
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

// leases reads the lease rows of a group: renewals by other replicas are no news to the actor.
// When they cannot be read they are those that this replica knew, and unknown says so; err is for
// a call that has no time left.
func (e *Engine) leases(ctx context.Context, prefix, groupName string, s stored, unknown *[]string) (group.Leases, protocol.Instant, error) {
	rows, now, err := e.cfg.Store.Leases(ctx, prefix, groupName, 0)
	if ctx.Err() != nil {
		return nil, 0, notInTime(ctx)
	}
	if err != nil {
		e.log.Warn("reading lease rows", zap.String("stream", prefix), zap.String("group", groupName), zap.Error(err))
		*unknown = append(*unknown, fmt.Sprintf("the leases of group %s could not be read: its live members are those that this replica knew", groupName))
		return s.unit.Leases[groupName], s.now, nil
	}
	return rows, now, nil
}

// observers finds out who is concerned: members by group, and producers. What cannot be read is
// unknown, unless the call has no time left.
func (e *Engine) observers(ctx context.Context, prefix string, s stored, d stream.Decision, f *stream.PreviewFacts) error {
	f.Members = make(map[string]stream.GroupMembers, len(s.unit.Groups))
	for _, name := range s.unit.GroupNames() {
		g := s.unit.Groups[name]
		rows, now, err := e.leases(ctx, prefix, name, s, &f.Unknown)
		if err != nil {
			return err
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
	if ctx.Err() != nil {
		return notInTime(ctx)
	}
	slices.Sort(f.Unknown)
	return nil
}

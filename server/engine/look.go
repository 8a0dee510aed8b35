package engine

import (
	"context"
	"errors"
	"maps"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// A call that looks at the shards asks the actor once for what is stored, and then runs a pass
// that only reads beside it: the actor goes on meanwhile.

// mostProbes is how many such passes run at a time in this replica: they count entries.
const mostProbes = 4

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
	c.inspect = func(a *actor) { // a turn that was committed leaves a cache
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

// probeShards runs a pass that only reads, with a bound on how many of them run at a time.
func (e *Engine) probeShards(ctx context.Context, prefix string, s stored, pass stream.Pass) (stream.PassResult, error) {
	if pass.Empty() {
		return stream.PassResult{Pass: pass}, nil
	}
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

func notInTime(ctx context.Context) *protocol.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return protocol.NewError(protocol.CodeRedisUnavailable, "the shards were not looked at in time: redis is slow or away; repeat the request")
	}
	return protocol.NewError(protocol.CodeInternal, "the client left before it was answered")
}

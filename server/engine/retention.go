package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// retentionTrouble is how often at most the log says that retention is not carried out somewhere.
const retentionTrouble = time.Minute

// mostTrimmed is how many shards are trimmed by one pass: a slice of each is done well before the
// pass has to end, however many shards there are.
const mostTrimmed = 200

// retention is when a stream's declared retention is carried out. Only the holder of the periodic
// work does, at rest; two that take themselves for the holder are harmless, since a slice is one
// script that looks for itself.
type retention struct {
	due     time.Time // of all shards
	todo    []int     // shards whose turn comes before that, the first ones first
	warned  time.Time // last word about a shard that could not be trimmed
	removed int64     // since there was last nothing more to do
}

// queue lists the shards whose turn it is: each once, so that none waits for one that is never
// done, and none that a change has taken away meanwhile.
func (r *retention) queue(s *stream.State, now time.Time) []int {
	var list []int
	in := make([]bool, s.Layout.Count)
	add := func(i int) {
		if i < len(in) && !in[i] {
			in[i] = true
			list = append(list, i)
		}
	}
	for _, i := range r.todo {
		add(i)
	}
	if !now.Before(r.due) {
		for i := range in {
			add(i)
		}
	}
	return list
}

// plan is the next slice of the first shards in the queue, if there are any.
func (r *retention) plan(s *stream.State, now time.Time) stream.Pass {
	if !s.Retains() {
		return stream.Pass{}
	}
	list := r.queue(s, now)
	if len(list) == 0 {
		return stream.Pass{}
	}
	return stream.PlanRetention(s, list[:min(len(list), mostTrimmed)])
}

// begun is told that the pass of plan is on its way. Replicas and streams are kept from doing
// this all at once by a fifth of the interval, up or down.
func (r *retention) begun(s *stream.State, now time.Time, every time.Duration) {
	list := r.queue(s, now)
	r.todo = list[min(len(list), mostTrimmed):]
	if !now.Before(r.due) {
		r.due = now.Add(time.Duration((0.8 + 0.4*rand.Float64()) * float64(every)))
	}
}

// retained takes the outcome of a slice on each shard. There is nothing to commit: what went is
// counted where it went.
func (a *actor) retained(res stream.PassResult) {
	r := &a.runner.retention
	r.todo = append(r.todo, stream.Unfinished(res)...)
	a.e.metrics.retained(res)
	var failed *stream.Reply
	for i, rep := range res.Replies {
		r.removed += rep.Removed
		switch rep.Code {
		case shardscript.OK, shardscript.Retired, shardscript.Ahead, shardscript.NotFenced: // the last two: a change has begun, or the sweep is due
		default:
			failed = &res.Replies[i]
		}
	}
	if failed != nil {
		if now := time.Now(); now.Sub(r.warned) > retentionTrouble {
			r.warned = now
			a.log.Warn("retention is not carried out on a shard", zap.Int("shard", failed.Step.Index), zap.String("code", string(failed.Code)), zap.String("error", failed.Err))
		}
	}
	if len(r.todo) > 0 { // half of the time is everybody else's; a commit may come before
		a.runner.due = time.Now().Add(min(time.Since(a.runner.started), time.Second))
	}
	if len(r.todo) == 0 && r.removed > 0 {
		a.log.Debug("retention", zap.Int64("removed", r.removed))
		r.removed = 0
	}
}

// Retention tells what a stream's retention has cost its groups, shard by shard. The shards are
// looked at by the caller's goroutine.
func (e *Engine) Retention(ctx context.Context, prefix string) (protocol.RetentionReport, error) {
	s, err := e.look(ctx, prefix)
	if err != nil {
		return protocol.RetentionReport{}, err
	}
	if s.unit.Stream == nil {
		return protocol.RetentionReport{}, protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
	}
	res, err := e.probeShards(ctx, prefix, s, stream.PlanLosses(s.unit.Stream))
	if err != nil {
		return protocol.RetentionReport{}, err
	}
	return stream.LossesOf(s.unit.Stream, res, s.now), nil
}

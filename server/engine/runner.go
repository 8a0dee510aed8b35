package engine

import (
	"context"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	firstBackoff = 2 * time.Millisecond
	mostBackoff  = 250 * time.Millisecond
	// freshCheck is how old the proof of the aggregate's revision may be when a pass starts: well
	// inside the effect lease, so that slow shards do not make every script late.
	freshCheck = redisstore.EffectLease / 4
	// passLife is how long a pass waits for shards that do not answer. Its replies count for the
	// effect lease from its start: with a node that hangs, a pass that outlived it could not even
	// say what it waits for.
	passLife = redisstore.EffectLease * 3 / 4
)

// runner runs the passes over the shards that the stored state calls for, one at a time and
// apart from the actor's goroutine, so that heartbeats go on meanwhile.
type runner struct {
	running   bool
	started   time.Time // of the running pass
	due       time.Time // not before; zero: at once
	backoff   time.Duration
	moved     bool // a commit was made since the pass was planned
	surveyAt  time.Time
	ahead     *stream.Control // shards were ahead of the aggregate: LOOK before anything else
	surveyNow bool
	retention retention
}

// changed is told of every commit: what waits may go on.
func (r *runner) changed() {
	r.moved = true
	r.backoff, r.due = 0, time.Time{}
}

// survey makes the sweep run at the next occasion.
func (r *runner) survey() { r.surveyNow = true }

func newReshardingID() string { return "reshard-" + uuid.NewString() }

// startPass starts the pass that the state calls for, if this replica does the periodic work. It is
// called whenever something has happened, and every second.
func (a *actor) startPass() {
	r := &a.runner
	a.report(time.Now())
	if r.running || a.cache == nil || a.cache.unit.Stream == nil || a.cache.recover || a.e.stopping.Load() {
		return
	}
	now := time.Now()
	if !a.periodic.holder {
		if stream.Pending(a.cache.unit.Stream, a.now()) && a.periodic.lockDue.Sub(now) < a.tickerRenewal()-50*time.Millisecond {
			a.periodic.wanted = true
		}
		return
	}
	if now.Before(r.due) {
		return
	}
	r.due = time.Time{} // it has come: with nothing to run it must not fire again and again
	pass := a.plan(now)
	if pass.Empty() {
		return
	}
	if a.now().Sub(a.cache.checkedAt) > freshCheck {
		a.turn([]*command{newCommand(func(t *aggregate.Turn) *protocol.Error { t.Stream(); return nil })})
		if a.cache == nil || a.cache.unit.Stream == nil || a.now().Sub(a.cache.checkedAt) > freshCheck {
			r.due = now.Add(mostBackoff) // Redis is away
			return
		}
		if pass = a.plan(now); pass.Empty() {
			return
		}
	}
	r.begun(pass, a.cache.unit.Stream, now, a.e.cfg)
	revision, checkedAt := a.cache.streamToken.Revision, a.cache.checkedAt
	a.e.wg.Go(func() {
		if a.e.beforePass != nil {
			a.e.beforePass(pass)
		}
		ctx, cancel := context.WithTimeout(a.e.ctx, passLife)
		defer cancel()
		res := a.e.cfg.Store.RunPass(ctx, a.prefix, revision, checkedAt, pass)
		a.passes <- res
	})
}

// begun notes that a pass is on its way.
func (r *runner) begun(pass stream.Pass, s *stream.State, now time.Time, cfg Config) {
	r.running, r.started, r.moved = true, now, false
	switch pass.Kind {
	case stream.PassSurvey:
		r.surveyNow = false
		r.surveyAt = now.Add(cfg.SweepInterval)
	case stream.PassRetain:
		r.retention.begun(s, now, cfg.RetentionInterval)
	case stream.PassPhase, stream.PassGroup, stream.PassRemove, stream.PassHold, stream.PassPurge, stream.PassLook, stream.PassProbe:
	}
}

// plan is the next pass: the look after shards were ahead, then what the state calls for, then
// the sweep at rest and a slice of retention. It changes nothing: a pass that is planned need not
// be run.
func (a *actor) plan(now time.Time) stream.Pass {
	s := a.cache.unit.Stream
	if a.runner.ahead != nil {
		return stream.PlanLook(s)
	}
	if p := stream.Plan(s, a.now()); !p.Empty() {
		return p
	}
	if s.Active == nil && (a.runner.surveyNow || now.After(a.runner.surveyAt)) {
		if p := stream.PlanSurvey(s); !p.Empty() {
			return p
		}
	}
	return a.runner.retention.plan(s, now)
}

// passed takes the outcome of the running pass.
func (a *actor) passed(res stream.PassResult) {
	r := &a.runner
	r.running = false
	a.e.metrics.pass(res)
	if a.e.ctx.Err() != nil {
		return
	}
	if seen, ok := ahead(res); ok && a.shardsAhead(seen) {
		a.wait()
		return
	}
	plain := a.plainSeen(res.Pass)
	apply := func(t *aggregate.Turn) {
		t.PlainProducersSeen(plain)
		t.ApplyPass(res)
	}
	switch res.Pass.Kind {
	case stream.PassLook:
		if !a.looked(res) {
			a.wait()
			return
		}
		seen := *r.ahead
		r.ahead = nil
		id := newReshardingID()
		apply = func(t *aggregate.Turn) {
			if s := t.Stream(); s == nil || !stream.Behind(s, a.cache.streamToken.Revision, seen) {
				return // another replica has followed the shards meanwhile
			}
			a.log.Warn("redis lost writes: the shards are ahead of the coordinator's state and win", zap.Int64("epoch", seen.Epoch), zap.Int("count", seen.Count))
			a.e.metrics.recoveries.Inc()
			t.Adopt(seen, id)
		}
	case stream.PassSurvey:
		id := newReshardingID()
		apply = func(t *aggregate.Turn) { t.ApplySurvey(res, id) }
	case stream.PassRetain:
		a.retained(res)
		return
	case stream.PassPhase, stream.PassGroup, stream.PassRemove, stream.PassHold, stream.PassPurge, stream.PassProbe:
	}
	c := newCommand(func(t *aggregate.Turn) *protocol.Error { apply(t); return nil })
	c.notAfter = res.StartedAt.Add(redisstore.EffectLease) // a reply counts no longer than that (1.2.4)
	a.turn([]*command{c})
	if !r.moved {
		a.wait()
	}
}

// plainSeen is when a producer that does not fence last asked for the routing, where a phase
// has to know (protocol/resharding.md 1.1); 0 for never.
func (a *actor) plainSeen(p stream.Pass) protocol.Instant {
	if p.Phase != protocol.PhaseSealing && p.Phase != protocol.PhaseDraining {
		return 0
	}
	ctx, cancel := a.call()
	defer cancel()
	at, err := a.e.cfg.Store.PlainSeen(ctx, a.prefix)
	if err != nil {
		a.log.Warn("reading when plain producers were seen", zap.Error(err))
		return a.now() // unknown: as if one had asked just now
	}
	return at
}

// wait makes the next pass wait, longer each time that nothing changed.
func (a *actor) wait() {
	r := &a.runner
	r.backoff = min(max(2*r.backoff, firstBackoff), mostBackoff)
	r.due = time.Now().Add(r.backoff)
}

// ahead finds the newest state that a refusing shard showed: it has seen a revision, or a layout,
// that this aggregate has not.
func ahead(res stream.PassResult) (seen stream.Control, ok bool) {
	for _, reply := range res.Replies {
		if reply.Code != shardscript.Ahead {
			continue
		}
		ok = true
		seen = newest(seen, reply.Control)
	}
	return seen, ok
}

// newest merges two looks at control hashes: the higher layout and the higher revision.
func newest(a, b stream.Control) stream.Control {
	if b.Epoch > a.Epoch {
		a, b = b, a
	}
	a.Rev = max(a.Rev, b.Rev)
	a.High = max(a.High, b.High)
	return a
}

// shardsAhead reloads. If the aggregate is still older than what the shards have seen, Redis lost
// writes of it and shard 0 is asked; else another replica was faster, and the core makes of the
// replies what it can.
func (a *actor) shardsAhead(seen stream.Control) bool {
	a.drop()
	a.reload()
	if a.cache == nil || a.cache.unit.Stream == nil || !stream.Behind(a.cache.unit.Stream, a.cache.streamToken.Revision, seen) {
		return false
	}
	if a.runner.ahead != nil {
		seen = newest(seen, *a.runner.ahead)
	}
	a.runner.ahead = &seen
	return true
}

// looked merges shard 0's answer; false when it did not answer or the replicas did not confirm.
func (a *actor) looked(res stream.PassResult) bool {
	answered := len(res.Replies) > 0 && (res.Replies[0].Code == shardscript.OK || res.Replies[0].Code == shardscript.Unfenced) // Unfenced: shard 0 lost its hash
	if res.Unconfirmed || !answered || a.runner.ahead == nil {
		return false
	}
	merged := newest(*a.runner.ahead, res.Replies[0].Control)
	a.runner.ahead = &merged
	return true
}

package simulation

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const (
	stepTimeout   protocol.Instant = 1000
	sweepInterval protocol.Instant = 10_000
)

// passRunner runs the effects of a replica's cached state on the shards, one pass at a time.
type passRunner struct {
	r         *replica
	running   bool
	wait      protocol.Instant // back-off of the next pass of the same kind
	notBefore protocol.Instant
	lastSweep protocol.Instant
}

func (p *passRunner) reset() { *p = passRunner{r: p.r} }

// plan runs what the cached state calls for.
func (p *passRunner) plan() {
	r := p.r
	if p.running || !r.up || r.unit == nil || r.unit.Stream == nil || r.recover {
		return
	}
	pass := stream.Plan(r.unit.Stream, r.now())
	if pass.Empty() {
		p.wait = 0
		return
	}
	if r.s.now < p.notBefore {
		return // a wake-up is on its way
	}
	p.run(pass)
}

// sweep is 1.7.2, at rest.
func (p *passRunner) sweep() {
	r := p.r
	if p.running || r.unit == nil || r.unit.Stream == nil || r.recover || r.unit.Stream.Active != nil {
		return
	}
	if r.s.now-p.lastSweep < sweepInterval || !stream.Plan(r.unit.Stream, r.now()).Empty() {
		return
	}
	p.lastSweep = r.s.now
	p.run(stream.PlanSurvey(r.unit.Stream))
}

// run runs the stages of a pass one after the other and hands its result to the actor.
func (p *passRunner) run(pass stream.Pass) {
	r := p.r
	p.running = true
	res := stream.PassResult{Pass: pass, Confirmed: -1, StartedAt: r.now(), Barrier: "XSETID"}
	if pass.Confirm {
		res.Confirmed = 1
	}
	begun, revision, checked := r.s.now, r.unit.StreamToken.Revision, r.checked
	r.s.log("%s pass %s %s %s rev %d", r.name, pass.Kind, pass.ReshardingID, pass.Phase, revision)
	p.stage(pass, 0, revision, checked, &res, func() { p.finished(res, begun) })
}

func (p *passRunner) stage(pass stream.Pass, i int, revision int64, checked protocol.Instant, res *stream.PassResult, then func()) {
	if i == len(pass.Stages) {
		then()
		return
	}
	r, steps := p.r, pass.Stages[i]
	replies := make([]stream.Reply, len(steps))
	left := len(steps)
	if left == 0 {
		p.stage(pass, i+1, revision, checked, res, then)
		return
	}
	for n, step := range steps {
		replies[n] = stream.Reply{Step: step, Err: "no answer"}
		var reply stream.Reply
		confirmed := true
		sent, notAfter := p.inNodeTime(step, checked)
		r.call(string(step.Script)+" "+num(int64(step.Index)), step.Index, stepTimeout, func() {
			reply = r.s.oracle.script(r, sent, revision, notAfter)
			// ConfirmFirst is not in the model: here `high` may be lost, which is the harder case.
			if pass.Confirm {
				confirmed = r.s.confirm(step.Index)
			}
		}, func(ok bool) {
			if ok {
				reply.Step = step
				replies[n] = reply
				if !confirmed {
					res.Confirmed, res.Unconfirmed = 0, true
				}
			}
			if left--; left > 0 {
				return
			}
			res.Replies = append(res.Replies, replies...)
			for _, reply := range replies {
				if reply.Code != shardscript.OK && reply.Code != shardscript.Decided {
					then()
					return
				}
			}
			if res.Unconfirmed {
				then()
				return
			}
			p.stage(pass, i+1, revision, checked, res, then)
		})
	}
}

// inNodeTime gives a step and its not-after time on the clock of the shard's node.
func (p *passRunner) inNodeTime(step stream.Step, checked protocol.Instant) (stream.Step, protocol.Instant) {
	redis := p.r.s.redis
	ahead := redis.Nodes[redis.Home(step.Index)].Offset
	if step.NotAfter != 0 {
		step.NotAfter += ahead - p.r.offset
	}
	return step, checked + effectLease + ahead
}

func (p *passRunner) finished(res stream.PassResult, begun protocol.Instant) {
	if ahead, ok := aheadOf(res); ok {
		p.behind(ahead, func() { p.hand(res, begun) })
		return
	}
	p.hand(res, begun)
}

// hand gives the result to the actor.
func (p *passRunner) hand(res stream.PassResult, begun protocol.Instant) {
	r := p.r
	c := &command{what: "pass", notAfter: begun + effectLease + r.offset}
	id := r.s.id("repair")
	c.apply = func(t *aggregate.Turn) {
		if res.Pass.Kind == stream.PassSurvey {
			t.ApplySurvey(res, id)
			return
		}
		t.ApplyPass(res)
	}
	before := r.unit
	c.done = func(ok bool) {
		p.running = false
		if ok && before != nil && r.unit != nil && before.StreamToken != r.unit.StreamToken {
			p.wait = 0
		} else {
			p.wait = min(max(2*p.wait, 50), 1000)
		}
		p.later()
	}
	r.enqueue(c)
}

// later plans again after the back-off.
func (p *passRunner) later() {
	p.notBefore = p.r.s.now + p.wait
	p.r.after(p.wait, "plan", func() { p.plan() })
}

// aheadOf finds a shard that is ahead of the revision that the pass was computed from.
func aheadOf(res stream.PassResult) (stream.Control, bool) {
	var highest stream.Control
	found := false
	for _, reply := range res.Replies {
		if reply.Code != shardscript.Ahead {
			continue
		}
		found = true
		rev := max(highest.Rev, reply.Control.Rev)
		if reply.Control.Epoch >= highest.Epoch {
			highest = reply.Control
		}
		highest.Rev = rev
	}
	return highest, found
}

// behind is 1.7.1: reload; if that is not enough, Redis lost writes of the aggregate, and shard 0
// is asked first.
func (p *passRunner) behind(ahead stream.Control, current func()) {
	r := p.r
	again := func() {
		p.running = false
		p.wait = min(max(2*p.wait, 50), 1000)
		p.later()
	}
	r.s.log("%s is behind: a shard shows rev %d, epoch %d of %d by %s", r.name, ahead.Rev, ahead.Epoch, ahead.Count, ahead.By)
	p.reload(func(ok bool) {
		if !ok || r.unit == nil || r.unit.Stream == nil || r.recover {
			again()
			return
		}
		if !stream.Behind(r.unit.Stream, r.unit.StreamToken.Revision, ahead) {
			current()
			return
		}
		look := stream.Step{Script: shardscript.Look, Index: 0}
		if r.unit.Stream.Active != nil {
			look.ID = r.unit.Stream.Active.ID
		}
		var reply stream.Reply
		confirmed := false
		r.call("LOOK 0", 0, stepTimeout, func() {
			reply = r.s.oracle.script(r, look, 0, 0)
			confirmed = r.s.confirm(0)
		}, func(ok bool) {
			if !ok || !confirmed {
				again()
				return
			}
			seen := reply.Control
			rev := max(seen.Rev, ahead.Rev)
			if ahead.Epoch > seen.Epoch {
				seen = ahead
				seen.High = max(reply.Control.High, ahead.High)
			}
			seen.Rev = rev
			id := r.s.id("adopt")
			r.enqueue(&command{what: "adopt", apply: func(t *aggregate.Turn) { t.Adopt(seen, id) }, done: func(bool) { again() }})
		})
	})
}

// reload drops the cache and waits until it is read again.
func (p *passRunner) reload(then func(ok bool)) {
	r := p.r
	r.enqueue(&command{what: "reload", apply: func(t *aggregate.Turn) { t.Stream() }, done: then})
}

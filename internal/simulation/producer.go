package simulation

import (
	"fmt"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/appendflow"
	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// producer is one process of the SDK's producer: an append machine and what it asks Redis and
// the coordinator.
type producer struct {
	s       *sim
	name    string
	plain   bool
	machine *appendflow.Machine
	replica int
	seq     int
	wake    int64
	waiting map[*appendflow.Entry]protocol.Instant // pushed and not ended
	order   []*appendflow.Entry                    // the same, oldest first
}

func newProducer(s *sim, name string, plain bool) *producer {
	p := &producer{s: s, name: name, plain: plain, replica: s.rng.IntN(len(s.replicas)), waiting: map[*appendflow.Entry]protocol.Instant{}}
	p.machine = appendflow.New(appendflow.Config{MaxBatch: 4, Plain: plain, Seed: uint64(len(name))})
	s.after(s.between(0, 500), "produce", p.produce)
	s.after(s.between(0, 500), "routing", p.follow)
	return p
}

func (p *producer) clock() time.Duration { return (p.s.now - start).Sub(0) }

// produce pushes an entry now and then, until the faults are over.
func (p *producer) produce() {
	if p.s.calm {
		return
	}
	for range 1 + p.s.rng.IntN(3) {
		p.seq++
		key := fmt.Sprintf("%s-k%d", p.name, p.s.rng.IntN(4))
		e := &appendflow.Entry{Key: []byte(key), Value: fmt.Sprintf("%s#%d", key, p.seq)}
		p.waiting[e] = p.s.now
		p.order = append(p.order, e)
		p.machine.Push(p.clock(), e)
	}
	p.step()
	p.s.oracle.producing(p)
	p.s.after(p.s.between(100, 1500), "produce", p.produce)
}

// follow is the held routing request: the routing is heard of soon after it changes.
func (p *producer) follow() {
	p.askRouting(func(in appendflow.Input) {
		if routing, ok := in.(appendflow.Routing); ok {
			p.step(routing)
		}
	})
	p.s.after(p.s.between(500, 2500), "routing", p.follow)
}

// oldest is how long the oldest entry waits.
func (p *producer) oldest() protocol.Instant {
	for len(p.order) > 0 {
		if at, ok := p.waiting[p.order[0]]; ok {
			return p.s.now - at
		}
		p.order = p.order[1:]
	}
	return 0
}

func (p *producer) step(inputs ...appendflow.Input) {
	for _, action := range p.machine.Step(p.clock(), inputs...) {
		switch a := action.(type) {
		case appendflow.Send:
			p.send(a.Batch)
		case appendflow.Refresh:
			p.askRouting(func(in appendflow.Input) { p.step(in) })
		case appendflow.Look:
			p.look()
		case appendflow.Resolve:
			p.resolve(a)
		case appendflow.Bring:
			p.bring(a)
		case appendflow.Done:
			delete(p.waiting, a.Entry)
			if a.Err != nil {
				p.s.log("%s: %v ends with %v", p.name, a.Entry.Value, a.Err)
			} else {
				p.s.oracle.confirmed(value(a.Entry))
			}
		}
	}
	p.wake++
	number := p.wake
	if at := p.machine.Wake(); at != appendflow.Never {
		d := protocol.Instant((at - p.clock()).Milliseconds())
		p.s.after(max(d, 0)+1, "wake", func() {
			if p.wake == number {
				p.step()
			}
		})
	}
}

// ask runs one command on a shard's node, and then exactly one of reply and failed.
func (p *producer) ask(what string, shard int, op func(), reply, failed func()) {
	settled := false
	finish := func(f func()) {
		if !settled {
			settled = true
			f()
		}
	}
	p.s.command(p.name+" "+what, shard, op, func() { finish(reply) })
	p.s.after(redisTimeout, "timeout", func() { finish(failed) })
}

// value is what is appended for an entry.
func value(e *appendflow.Entry) string {
	return e.Value.(string) //nolint:forcetypeassert // this package alone makes the entries
}

func (p *producer) send(b *appendflow.Batch) {
	values := make([]string, len(b.Entries))
	for i, e := range b.Entries {
		values[i] = value(e)
	}
	lost := func() {
		p.step(appendflow.Replied{Batch: b, Reply: appendflow.Reply{Err: errNoReply, Lost: true}})
	}
	if b.Plain {
		fates := make([]appendflow.Fate, len(values))
		p.ask("XADD "+num(int64(b.Shard)), b.Shard, func() {
			for i, v := range values {
				ok := p.s.oracle.add(p, b.Shard, v)
				fates[i].Refused = !ok
			}
		}, func() {
			p.step(appendflow.Replied{Batch: b, Reply: appendflow.Reply{Fates: fates}})
		}, func() {
			for i := range fates {
				fates[i] = appendflow.Fate{Err: errNoReply, Lost: true}
			}
			p.step(appendflow.Replied{Batch: b, Reply: appendflow.Reply{Fates: fates}})
		})
		return
	}
	var reply redismodel.ClientReply
	p.ask("APPEND "+num(int64(b.Shard)), b.Shard, func() {
		reply = p.s.oracle.append(p, b.Shard, b.Layout, values)
	}, func() {
		p.step(appendflow.Replied{Batch: b, Reply: appendflow.Reply{
			Code: reply.Code, InForce: appendflow.Layout{Epoch: reply.Epoch, Count: reply.Count}, Gate: reply.Gate,
			Until: int64(reply.Until), Hold: int64(reply.Hold), Remaining: remaining(reply),
		}})
	}, lost)
}

// remaining is the time to the later of two deadlines, by the clock of the shard's node.
func remaining(r redismodel.ClientReply) time.Duration {
	end := max(r.Until, r.Hold)
	if end == 0 {
		return -1
	}
	return max(end.Sub(r.At), 0)
}

func (p *producer) askRouting(then func(appendflow.Input)) {
	r := p.s.pickReplica(&p.replica)
	settled := false
	finish := func(in appendflow.Input) {
		if !settled {
			settled = true
			then(in)
		}
	}
	asked := p.clock()
	var routing protocol.Routing
	known := false
	p.s.deliver(p.name+" routing", func() {
		if !r.up {
			return
		}
		r.after(0, "routing", func() {
			r.enqueue(&command{what: "routing", apply: func(t *aggregate.Turn) {
				known = false
				if st := t.Stream(); st != nil {
					routing, known = stream.RoutingOf(st), true
				}
			}, done: func(ok bool) {
				if !ok || !known {
					return
				}
				p.s.oracle.routed(routing)
				p.s.deliver(p.name+" routing answer", func() {
					finish(appendflow.Routing{
						Layout:   appendflow.Layout{Epoch: routing.LayoutEpoch, Count: routing.ShardCount},
						Open:     routing.PublishState == protocol.PublishOpen,
						LeaseEnd: asked + 30*time.Second,
					})
				})
			}})
		})
	})
	p.s.after(3000, "timeout", func() { finish(appendflow.RoutingFailed{Err: errNoReply}) })
}

func (p *producer) look() {
	var in appendflow.Shard0
	p.ask("look", 0, func() {
		if c := p.s.redis.Shard(0).Control; c != nil && c.HasEpoch {
			in = appendflow.Shard0{Layout: appendflow.Layout{Epoch: c.Epoch, Count: c.Count}, Found: true}
		}
	}, func() { p.step(in) }, func() { p.step(appendflow.Shard0{}) })
}

// resolve ends a pause at shard 0, and waits for the replica before it says so.
func (p *producer) resolve(a appendflow.Resolve) {
	var reply redismodel.ClientReply
	confirmed := false
	p.ask("RESOLVE", 0, func() {
		reply = p.s.oracle.resolve(a)
		confirmed = p.s.confirm(0)
	}, func() {
		code := reply.Code
		if !confirmed {
			code = ""
		}
		p.step(appendflow.Resolved{Shard: a.Shard, Code: code, Layout: appendflow.Layout{Epoch: reply.Epoch, Count: reply.Count}})
	}, func() { p.step(appendflow.Resolved{Shard: a.Shard}) })
}

func (p *producer) bring(a appendflow.Bring) {
	p.ask("BRING "+num(int64(a.Shard)), a.Shard, func() {
		reply := p.s.redis.Bring(a.Shard, a.Layout.Epoch, a.Layout.Count, a.Gate)
		p.s.log("%s BRING %d %+v: %s", p.name, a.Shard, a.Layout, reply.Code)
	}, func() {
		p.step(appendflow.Brought{Shard: a.Shard})
	}, func() {
		p.step(appendflow.Brought{Shard: a.Shard, Failed: true})
	})
}

var errNoReply = fmt.Errorf("no reply")

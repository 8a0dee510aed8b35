package simulation

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/internal/membership"
	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

const readCount = 3

// reader reads one shard under one ownership: take over, then read, check, dispatch and
// acknowledge (docs/protocol/handover.md §6).
type reader struct {
	p       *process
	s       *sim
	shard   int
	epoch   int64
	owner   redismodel.Owner
	revoked bool // no read and no dispatch from now on; what runs is finished
	over    bool // nothing at all any more

	taken    bool
	busy     bool // a command to Redis is under way
	queue    []redismodel.Entry
	handling map[redismodel.ID]bool
	handled  map[redismodel.ID]bool // by this ownership: acknowledged again when found pending (D8)
	acks     []redismodel.ID
	sweepDue protocol.Instant
	poll     int64
}

func newReader(p *process, shard int, epoch int64) *reader {
	rd := &reader{
		p: p, s: p.s, shard: shard, epoch: epoch, handling: map[redismodel.ID]bool{}, handled: map[redismodel.ID]bool{},
		owner:    redismodel.Owner{Epoch: epoch, MemberID: p.member, Incarnation: p.machine.Incarnation()},
		sweepDue: p.s.now + protocol.Instant(p.s.sc.spec.MemberLeaseMs),
	}
	rd.next(0)
	return rd
}

func (rd *reader) revoke() {
	rd.revoked = true
	rd.queue = nil
	rd.finishRevoke()
}

// finishRevoke reports a drained ownership: nothing in flight, nothing to acknowledge.
func (rd *reader) finishRevoke() {
	if !rd.revoked || rd.over || rd.busy || len(rd.handling) > 0 {
		return
	}
	if len(rd.acks) > 0 {
		rd.work()
		return
	}
	rd.over = true
	if rd.p.readers[rd.shard] == rd {
		delete(rd.p.readers, rd.shard)
	}
	rd.p.after(0, "drained", func() { rd.p.step(membership.Drained{Shard: rd.shard, Epoch: rd.epoch}) })
}

func (rd *reader) drop() {
	rd.over = true
	rd.queue, rd.acks = nil, nil
	if rd.p.readers[rd.shard] == rd {
		delete(rd.p.readers, rd.shard)
	}
}

// next works again in d milliseconds, unless something else does before.
func (rd *reader) next(d protocol.Instant) {
	rd.poll++
	number := rd.poll
	rd.p.after(d, "read", func() {
		if rd.poll == number {
			rd.work()
		}
	})
}

// usable is asked before every read, dispatch and acknowledgement (M3).
func (rd *reader) usable() bool { return !rd.over && rd.p.leased() }

// work sends the next command of this ownership.
func (rd *reader) work() {
	switch {
	case rd.busy || !rd.usable():
		return
	case rd.revoked:
		if len(rd.acks) > 0 {
			rd.acknowledge()
		} else {
			rd.finishRevoke()
		}
	case !rd.taken:
		rd.takeover(nil)
	case len(rd.queue) == 0 && len(rd.handling) == 0:
		rd.read()
	case len(rd.acks) > 0 && len(rd.queue) == 0:
		rd.acknowledge()
	}
}

// call sends a pipeline to the shard's node.
func (rd *reader) call(what string, then func(), ops ...func()) {
	rd.busy = true
	settled := false
	finish := func(ok bool) {
		if settled {
			return
		}
		settled, rd.busy = true, false
		if rd.over {
			return
		}
		if ok {
			then()
		} else { // it may have read something: the next thing is to take over what is pending
			rd.taken = false
			rd.next(100)
		}
		rd.finishRevoke()
	}
	rd.s.pipeline(rd.p.name+" "+what, rd.shard, ops, func() { rd.p.after(0, what, func() { finish(true) }) })
	rd.p.after(redisTimeout, "timeout", func() { finish(false) })
}

// takeover is D3; got is what was read before it.
func (rd *reader) takeover(got []redismodel.Entry) {
	var reply redismodel.ClientReply
	rd.call("TAKEOVER "+num(int64(rd.shard)), func() {
		switch reply.Code {
		case shardscript.OK:
			rd.taken = true
			rd.dispatch(merge(got, reply.Entries))
		case shardscript.NotOwner:
			rd.lost(reply.Owner)
		case shardscript.NoGroup:
			rd.makeGroup()
		default: // retired, or not made yet
			rd.next(300)
		}
	}, func() { reply = rd.s.oracle.takeover(rd.p, rd.shard, rd.owner) })
}

// makeGroup makes the group again that Redis has lost.
func (rd *reader) makeGroup() {
	rd.taken = false
	rd.call("MKGROUP "+num(int64(rd.shard)), func() { rd.next(10) }, func() {
		reply := rd.s.redis.MakeGroup(rd.shard, rd.p.group, rd.owner)
		rd.s.log("%s MKGROUP %d: %s", rd.p.name, rd.shard, reply.Code)
	})
}

// lost: somebody has this shard under a higher epoch (D5, D6).
func (rd *reader) lost(epoch int64) {
	rd.s.log("%s finds %d owned under %d, has %d", rd.p.name, rd.shard, epoch, rd.epoch)
	rd.queue, rd.acks, rd.taken = nil, nil, false
	clear(rd.handling)
	rd.p.step(membership.Seen{Shard: rd.shard, Epoch: epoch})
	if !rd.over {
		rd.next(1000)
	}
}

// read is a group read and, behind it in the same pipeline, the check (D4). Nothing is
// dispatched before the check has answered.
func (rd *reader) read() {
	if rd.s.now >= rd.sweepDue {
		rd.sweep()
		return
	}
	var got []redismodel.Entry
	var reply redismodel.ClientReply
	acks := rd.takeAcks()
	rd.call("read "+num(int64(rd.shard)), func() { rd.checked(reply, got, acks) }, func() {
		got = rd.s.redis.ReadGroup(rd.shard, rd.p.group, protocol.ConsumerName(rd.p.member, rd.epoch), readCount)
	}, func() {
		reply = rd.s.oracle.checkAck(rd.p, rd.shard, rd.owner, acks)
	})
}

// acknowledge sends acknowledgements alone.
func (rd *reader) acknowledge() {
	var reply redismodel.ClientReply
	acks := rd.takeAcks()
	rd.call("ack "+num(int64(rd.shard)), func() { rd.checked(reply, nil, acks) }, func() {
		reply = rd.s.oracle.checkAck(rd.p, rd.shard, rd.owner, acks)
	})
}

func (rd *reader) takeAcks() []redismodel.ID {
	acks := rd.acks
	rd.acks = nil
	return acks
}

func (rd *reader) checked(reply redismodel.ClientReply, got []redismodel.Entry, acks []redismodel.ID) {
	switch reply.Code {
	case shardscript.OK:
		// What is pending elsewhere, or under our own name without our knowing, was read by a
		// late command: it comes first (D4, D8).
		known := len(got) + len(rd.queue) + len(rd.handling) + len(rd.acks)
		if (reply.Elsewhere > 0 || reply.Own > known) && !rd.revoked {
			rd.takeover(got)
			return
		}
		rd.dispatch(got)
	case shardscript.NotOwner:
		rd.lost(reply.Owner)
	case shardscript.LostOwner: // the node lost writes: the same epoch again, then repeat
		rd.s.log("%s takes %d over again", rd.p.name, rd.shard)
		rd.taken = false
		if rd.revoked { // the next owner handles them again
			rd.acks = nil
			return
		}
		rd.acks = append(acks, rd.acks...)
		rd.next(0)
	case shardscript.NoGroup:
		if !rd.revoked {
			rd.makeGroup()
		}
	default: // retired
		if !rd.revoked {
			rd.next(300)
		}
	}
}

// sweep is D8: what is pending under any name and is not being handled is handled again, or
// acknowledged again when this ownership has handled it.
func (rd *reader) sweep() {
	rd.sweepDue = rd.s.now + protocol.Instant(rd.s.sc.spec.MemberLeaseMs)
	rd.takeover(nil)
}

// dispatch hands entries to handlers, in id order, one at a time.
func (rd *reader) dispatch(entries []redismodel.Entry) {
	for _, e := range entries {
		switch {
		case rd.handled[e.ID]:
			rd.acks = append(rd.acks, e.ID)
		case !rd.handling[e.ID] && !rd.revoked && !slices.ContainsFunc(rd.queue, func(q redismodel.Entry) bool { return q.ID == e.ID }):
			rd.queue = append(rd.queue, e)
		}
	}
	rd.handle()
}

// handle runs the handler of the next entry.
func (rd *reader) handle() {
	if !rd.usable() || rd.revoked || len(rd.handling) > 0 {
		return
	}
	if len(rd.queue) == 0 {
		if len(rd.acks) > 0 {
			rd.next(0)
		} else {
			rd.next(rd.s.between(1500, 2500)) // the doorbell rings before
		}
		return
	}
	e := rd.queue[0]
	rd.queue = rd.queue[1:]
	rd.handling[e.ID] = true
	rd.s.oracle.dispatched(rd.p, rd.shard, e)
	d := rd.s.between(2, 30)
	if rd.s.chance(rd.s.sc.slowHandlers) {
		d = rd.s.between(500, 12_000)
	}
	rd.p.after(d, "handled", func() {
		if !rd.handling[e.ID] {
			return
		}
		delete(rd.handling, e.ID)
		if rd.over {
			return
		}
		rd.handled[e.ID] = true
		rd.acks = append(rd.acks, e.ID)
		rd.handle()
		if rd.revoked {
			rd.finishRevoke()
		}
	})
}

// merge puts two lists in id order.
func merge(a, b []redismodel.Entry) []redismodel.Entry {
	out := make([]redismodel.Entry, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if b[0].ID.Less(a[0].ID) {
			out, b = append(out, b[0]), b[1:]
		} else {
			out, a = append(out, a[0]), a[1:]
		}
	}
	return append(append(out, a...), b...)
}

// ring is the doorbell: something landed on a shard.
func (s *sim) ring(shard int) {
	for _, p := range s.processes {
		if rd := p.readers[shard]; rd != nil && p.alive && !rd.busy && len(rd.handling) == 0 {
			rd.next(s.between(1, 10))
		}
	}
}

package simulation

import (
	"runtime/debug"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func stack() string { return string(debug.Stack()) }

// hop is how long a message takes without a fault.
func (s *sim) hop() protocol.Instant { return s.between(0, 3) }

// deliver carries a message between a client and a replica: it may be late, lost or doubled.
func (s *sim) deliver(what string, run func()) {
	if s.chance(s.sc.loss) {
		s.log("lost: %s", what)
		return
	}
	d := s.hop()
	if s.chance(s.sc.delay) {
		d = s.between(100, 20_000)
		s.log("delayed by %d ms: %s", d, what)
	}
	s.after(d, what, run)
	if s.chance(s.sc.dup) {
		again := d + s.between(1, 20_000)
		s.log("doubled, again in %d ms: %s", again, what)
		s.after(again, what, run)
	}
}

// command carries one command to the node of a shard (−1: of the coordinator's keys) and its
// reply back. It may be sent late (its sender was frozen between computing and sending it), be
// lost, or lose its reply. op runs at Redis; reply runs at the sender unless something was lost.
func (s *sim) command(what string, shard int, op, reply func()) {
	s.pipeline(what, shard, []func(){op}, reply)
}

// pipeline carries several commands on one connection: they run in order, but others may come
// in between, and the connection may break between two.
func (s *sim) pipeline(what string, shard int, ops []func(), reply func()) {
	d := s.hop()
	switch {
	case s.chance(s.sc.freeze):
		d = s.between(100, 2500)
		if s.rng.IntN(2) == 0 {
			d = s.between(500, 15_000)
		}
		s.log("frozen for %d ms: %s", d, what)
	case s.chance(s.sc.lost):
		s.log("lost: %s", what)
		return
	}
	noReply := s.chance(s.sc.lost)
	s.after(d, what, func() { s.execute(what, shard, ops, noReply, reply) })
}

func (s *sim) execute(what string, shard int, ops []func(), noReply bool, reply func()) {
	if s.redis.Down(shard) {
		s.log("node is down: %s", what)
		return
	}
	ops[0]()
	switch {
	case len(ops) > 1:
		if !s.chance(s.sc.lost) {
			s.after(s.between(0, 1), what, func() { s.execute(what, shard, ops[1:], noReply, reply) })
		}
	case noReply:
		s.log("reply lost: %s", what)
	default:
		s.after(s.hop(), "reply", reply)
	}
}

// confirm is WAIT 1 on the connection of the write before. Sometimes it times out, and sometimes
// the replica that confirms is not the one that will be promoted.
func (s *sim) confirm(shard int) bool {
	if s.chance(s.sc.lostConfirmations) {
		return s.redis.Wait(shard, false)
	}
	if s.redis.Lags(shard) && s.chance(s.sc.betrayal) {
		s.log("another replica confirms")
		s.betrayed = true
		return true
	}
	return s.redis.Wait(shard, true)
}

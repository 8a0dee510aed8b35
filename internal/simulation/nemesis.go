package simulation

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// nemesis makes faults happen where they hurt: around the commits and scripts on which the
// protocol rests, not only at random times.
type nemesis struct {
	failovers int // that are left
	blackouts int
	stalls    int
	rollbacks int
	cuts      int
}

// loses starts, sometimes, a failover that loses the write that is about to be made, and all
// that follow until the primary dies.
func (s *sim) loses(node int, p float64) {
	if s.nemesis.failovers == 0 || s.redis.LagsNode(node) || !s.chance(p) {
		return
	}
	s.nemesis.failovers--
	s.log("the replica of node %d lags", node)
	s.redis.Lag(node)
	s.failNode(node)
}

// beforeCommit is called before a commit that writes.
func (s *sim) beforeCommit() {
	p := 0.03
	if s.sc.silent {
		p = 0.1
	}
	s.loses(0, p)
}

// beforeScript is called before a script of a coordinator runs on a shard.
func (s *sim) beforeScript(step stream.Step) {
	switch step.Script {
	case shardscript.Survey, shardscript.Look:
	case shardscript.Evidence:
		s.loses(s.redis.Home(step.Index), 0.01)
	case shardscript.Seal:
		s.loses(s.redis.Home(step.Index), 0.1)
	default:
		s.loses(s.redis.Home(step.Index), 0.03)
	}
}

// beforeAck is called before entries are acknowledged: on a shard that is about to go, an
// acknowledgement that is lost hurts most.
func (s *sim) beforeAck(shard, entries int) {
	st := s.redis.Stored().Stream
	if entries > 0 && st != nil && st.Active != nil && shard >= st.Active.To.Count {
		s.loses(s.redis.Home(shard), 0.1)
	}
}

// afterScript is called when a script has run.
func (s *sim) afterScript(step stream.Step, code shardscript.Code) {
	if code != shardscript.OK {
		return
	}
	switch step.Script {
	case shardscript.Seal, shardscript.Decide, shardscript.Open, shardscript.Release:
		if s.nemesis.blackouts > 0 && s.chance(0.2) {
			s.nemesis.blackouts--
			s.blackout()
		}
	default: // it leads to no decision
	}
}

// afterPhase is called when a resharding has entered a phase.
func (s *sim) afterPhase(r *replica, a *stream.Resharding) {
	switch a.Phase {
	case protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseOpening, protocol.PhaseDrainingRemoved, protocol.PhaseConverging:
		if s.nemesis.stalls > 0 && s.chance(0.4) { // nobody drains for a while
			s.nemesis.stalls--
			d := s.between(5000, 40_000)
			for _, p := range s.processes {
				if p.alive {
					p.freeze(d)
				}
			}
		}
	default: // members have no part in it
	}
	if s.nemesis.rollbacks > 0 && s.chance(0.2) {
		s.nemesis.rollbacks--
		id := a.ID
		s.after(s.between(0, 40), "rollback", func() { s.rollback(id) })
	}
	if s.sc.replicaFreezes > 0 && s.chance(0.05) && r.frozenUntil <= s.now {
		r.freeze(s.between(500, 15_000))
	}
}

func (s *sim) rollback(id string) {
	s.admin("rollback", func(t *aggregate.Turn) error {
		return refusal(t.ChangeStream(func(st *stream.Turn) *protocol.Error { return st.Rollback(id, s.request("rollback"), t.Now()) }))
	})
}

// afterShard is called when a commit has changed the holder or the telling of a shard of a group.
func (s *sim) afterShard(name string, holder *group.Holder) {
	if holder == nil || s.nemesis.cuts == 0 || !s.chance(0.05) {
		return
	}
	for _, p := range s.processes {
		if p.alive && p.group == name && p.member == holder.MemberID {
			s.nemesis.cuts--
			s.cutOff(p)
			return
		}
	}
}

// cutOff keeps the calls of a process, or their answers, from getting through for a while. Its
// reads go on as long as its lease lets them; sometimes a supervisor takes it for dead.
func (s *sim) cutOff(p *process) {
	d := s.between(2000, 25_000)
	s.log("%s is cut off from the coordinator for %d ms", p.name, d)
	p.cutOff = s.now + d
	if s.rng.IntN(2) == 0 && !p.duplicate {
		s.after(s.between(5000, 14_000), "start", func() {
			if p.alive {
				newProcess(s, p.member, p.group, "").duplicate = true
			}
		})
	}
}

// blackout: for a while there is no coordinator at all.
func (s *sim) blackout() {
	s.log("--- no coordinator for a while")
	for _, r := range s.replicas {
		if r.up {
			r.crash()
		}
	}
	s.after(s.between(15_000, 60_000), "light", func() {
		for _, r := range s.replicas {
			if !r.up {
				r.restart()
			}
		}
	})
}

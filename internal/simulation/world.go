package simulation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const lateGroupName = "late"

// setUp makes Redis and the replicas, creates the stream and, once it is in force, lets members,
// producers and faults loose.
func (s *sim) setUp() {
	s.sc = newScenario(s.rng)
	sc := s.sc
	offsets := make([]protocol.Instant, sc.nodes)
	for i := range offsets {
		if sc.skew > 0 {
			offsets[i] = s.between(-int64(sc.skew)/2, int64(sc.skew)/2)
		}
	}
	home := make([]int, sc.maxShards)
	for i := range home {
		home[i] = s.rng.IntN(sc.nodes)
	}
	s.redis = redismodel.New(offsets, home)
	s.redis.Now = s.now
	s.oracle = newOracle(s)
	s.calm = true
	for i := range sc.replicas {
		s.replicas = append(s.replicas, newReplica(s, fmt.Sprintf("R%d", i+1)))
	}
	s.log("%v: %+v, shards on nodes %v, clocks %v", sc.kind, sc, home, offsets)
	s.admin("create", func(t *aggregate.Turn) error {
		spec := protocol.StreamSpec{ShardCount: sc.shards, Resharding: s.policy(protocol.StrategyQuiesce)}
		if _, _, err := t.PutStream(prefix, spec, s.redis.Nodes[0].Identity, s.request("reshard-")); err != nil {
			return err
		}
		for _, name := range s.groupNames() {
			if _, err := t.PutGroup(name, sc.spec, 0); err != nil {
				return err
			}
		}
		return nil
	})
	s.awaitStart()
}

func (s *sim) groupNames() []string { return []string{"g1", "g2"}[:s.sc.groups] }

func (s *sim) request(kind string) stream.Request {
	return stream.Request{ID: s.id(kind), RequestedBy: "simulation", Reason: "seed"}
}

func (s *sim) policy(strategy protocol.Strategy) protocol.ReshardingPolicy {
	return protocol.ReshardingPolicy{
		Strategy: strategy, DrainScope: protocol.DrainAll, Retire: protocol.RetireDelete,
		PauseTimeoutMs: s.sc.pauseMs, DrainTimeoutMs: s.sc.drainMs, OnTimeout: protocol.OnTimeoutRollback,
	}
}

// admin makes a call of an operator, at any replica that is up, again until it was answered.
func (s *sim) admin(what string, apply func(t *aggregate.Turn) error) {
	answered := false
	var try func(attempt int)
	try = func(attempt int) {
		if answered || attempt > 20 {
			return
		}
		r := s.replicas[s.rng.IntN(len(s.replicas))]
		s.deliver("admin", func() {
			if !r.up || answered {
				return
			}
			r.after(0, what, func() {
				var err error
				r.enqueue(&command{what: what, apply: func(t *aggregate.Turn) { err = apply(t) }, done: func(ok bool) {
					if ok && !answered {
						answered = true
						if err != nil {
							s.log("admin: %s: %v", what, err)
						} else {
							s.log("admin: %s done by %s", what, r)
						}
					}
				}})
			})
		})
		s.after(s.between(2000, 5000), what, func() { try(attempt + 1) })
	}
	try(0)
}

func refusal(err *protocol.Error) error {
	if err == nil {
		return nil
	}
	return err
}

// awaitStart waits until the stream is in force.
func (s *sim) awaitStart() {
	s.after(100, "await", func() {
		st := s.redis.Stored().Stream
		if st == nil || st.Active != nil || len(s.oracle.log.registered) < s.sc.groups {
			if s.now > start+60_000 {
				s.fail("I13: the stream is not there after a minute")
			}
			s.awaitStart()
			return
		}
		s.begin()
	})
}

func (s *sim) begin() {
	s.log("--- begin")
	s.calm = false
	sc := s.sc
	for _, name := range s.groupNames() {
		for i := range sc.members {
			newProcess(s, fmt.Sprintf("%s%c", name, 'A'+i), name, "")
		}
	}
	for i := range sc.reference {
		startReference(s, fmt.Sprintf("P%d", i), "g1")
	}
	for i := range sc.producers {
		s.producers = append(s.producers, newProducer(s, fmt.Sprintf("p%d", i), false))
	}
	for i := range sc.plainProducers {
		s.producers = append(s.producers, newProducer(s, fmt.Sprintf("q%d", i), true))
	}
	s.schedule()
	s.after(sc.faultsEnd, "calm", s.repair)
}

// sometime schedules n happenings before the faults end.
func (s *sim) sometime(n int, what string, run func()) {
	for range n {
		s.after(s.between(2000, int64(s.sc.faultsEnd)-1000), what, func() {
			if !s.calm {
				run()
			}
		})
	}
}

// schedule draws the faults and what operators do.
func (s *sim) schedule() {
	sc := s.sc
	s.sometime(sc.crashes, "crash", func() {
		r := s.replicas[s.rng.IntN(len(s.replicas))]
		if r.up {
			r.crash()
			s.after(s.between(500, 8000), "restart", func() {
				if !r.up {
					r.restart()
				}
			})
		}
	})
	s.sometime(sc.replicaFreezes, "freeze", func() { s.replicas[s.rng.IntN(len(s.replicas))].freeze(s.between(1000, 20_000)) })
	s.sometime(sc.kills, "kill", func() {
		if p := s.anyProcess(); p != nil {
			p.kill()
			s.succeed(p, s.between(200, 12_000))
		}
	})
	s.sometime(sc.processFreezes, "freeze", func() {
		if p := s.anyProcess(); p != nil {
			p.freeze(s.between(1000, 40_000))
		}
	})
	s.sometime(sc.leaves, "leave", func() {
		if p := s.anyProcess(); p != nil {
			static := s.rng.IntN(2) == 0
			s.log("%s is asked to stop, static %v", p.name, static)
			p.leaving = true
			p.stop(static)
		}
	})
	if sc.duplicates {
		s.sometime(1, "duplicate", func() {
			if p := s.anyProcess(); p != nil {
				newProcess(s, p.member, p.group, "").duplicate = true
			}
		})
	}
	s.sometime((sc.failovers+1)/2, "failover", s.failover)
	s.sometime(sc.clockSteps, "clock step", func() {
		s.log("the clock of node 0 steps by 20 s")
		s.redis.Nodes[0].Offset += 20_000
	})
	s.sometime(sc.reshardings, "scale", s.scale)
	if sc.operator {
		s.sometime(1, "pause", func() {
			ms := s.between(3000, 20_000)
			s.admin("pause", func(t *aggregate.Turn) error {
				return refusal(t.ChangeStream(func(st *stream.Turn) *protocol.Error { return st.Pause(t.Now()+ms, s.request("pause"), t.Now()) }))
			})
			if s.rng.IntN(2) == 0 {
				s.after(s.between(1000, 12_000), "resume", s.resume)
			}
		})
	}
	if sc.lateGroup {
		s.sometime(1, "register", func() {
			s.register(lateGroupName)
		})
	}
	if sc.blackout {
		s.nemesis.blackouts = 1
		s.sometime(1, "blackout", func() {
			if s.nemesis.blackouts > 0 {
				s.nemesis.blackouts--
				s.blackout()
			}
		})
	}
	s.sometime(sc.cuts, "cut", func() {
		if p := s.anyProcess(); p != nil {
			s.cutOff(p)
		}
	})
	s.nemesis.failovers, s.nemesis.stalls, s.nemesis.cuts = sc.failovers, sc.stalls, sc.cuts
	if sc.rollbacks > 0 {
		s.nemesis.rollbacks = 1
	}
}

func (s *sim) register(name string) {
	s.admin("register "+name, func(t *aggregate.Turn) error {
		_, err := t.PutGroup(name, s.sc.spec, 0)
		return refusal(err)
	})
}

func (s *sim) resume() {
	s.admin("resume", func(t *aggregate.Turn) error {
		return refusal(t.ChangeStream(func(st *stream.Turn) *protocol.Error { return st.Resume(s.request("resume"), t.Now()) }))
	})
}

// scale asks for another number of shards, and sometimes for its end soon after.
func (s *sim) scale() {
	stored := s.redis.Stored().Stream
	to := 1 + s.rng.IntN(s.sc.maxShards-1)
	if stored == nil || to == stored.Spec.ShardCount {
		to = 1 + to%(s.sc.maxShards-1)
	}
	strategy := protocol.StrategyQuiesce
	if s.rng.Float64() < s.sc.online {
		strategy = protocol.StrategyOnline
	}
	policy := s.policy(strategy)
	if s.rng.IntN(4) == 0 {
		policy.DrainScope = protocol.DrainRemoved
	}
	if s.rng.IntN(4) == 0 {
		policy.Retire = protocol.RetireArchive
	}
	req := s.request("reshard-")
	s.log("admin: scale to %d, %s %s, %s", to, policy.Strategy, policy.DrainScope, req.ID)
	s.admin("scale", func(t *aggregate.Turn) error {
		st := t.Stream()
		if st == nil || st.Active != nil || stream.ReshardingOf(st, req.ID, t.Now()) != nil {
			return nil // a doubled request takes an id of its own in the shell
		}
		_, _, err := t.PutStream(prefix, protocol.StreamSpec{ShardCount: to, Resharding: policy}, "", req)
		return refusal(err)
	})
	if s.rng.Float64() < s.sc.rollbacks {
		s.after(s.between(0, 1500), "rollback", func() {
			s.rollback(req.ID)
		})
	}
}

// failover: the replica of a node lags, the primary dies, and after a while the replica is the
// primary. What it had not received is lost.
func (s *sim) failover() {
	node := s.rng.IntN(len(s.redis.Nodes))
	if s.rng.IntN(4) > 0 {
		s.log("the replica of node %d lags", node)
		s.redis.Lag(node)
	}
	s.failNode(node)
}

// failNode lets the primary of a node die soon, and promotes its replica after a while.
func (s *sim) failNode(node int) {
	most := int64(8000)
	if s.sc.silent {
		most = 500 // few commits are lost, so that their revisions come again
	}
	s.after(s.between(0, most), "primary dies", func() {
		if s.redis.Nodes[node].IsDown() {
			return
		}
		s.log("the primary of node %d dies", node)
		s.redis.Stop(node)
		down := s.between(int64(effectLease)+500, 6000)
		s.after(down, "failover", func() { s.oracle.failover(node) })
		if s.sc.silent { // one replica sleeps through it, and wakes with the cache of the lost history
			s.replicas[s.rng.IntN(len(s.replicas))].freeze(down + s.between(5, 1500))
		}
	})
}

// anyProcess picks a process that runs.
func (s *sim) anyProcess() *process {
	var running []*process
	for _, p := range s.processes {
		if p.alive && !p.leaving && p.frozenUntil <= s.now {
			running = append(running, p)
		}
	}
	if len(running) == 0 {
		return nil
	}
	return running[s.rng.IntN(len(running))]
}

// succeed starts another process under a member id, as a supervisor does. Sometimes it can prove
// the death of the one before.
func (s *sim) succeed(p *process, d protocol.Instant) {
	if p.duplicate {
		return
	}
	replaces := ""
	if s.rng.IntN(2) == 0 {
		replaces = p.lastSession
	}
	s.after(d, "start", func() { newProcess(s, p.member, p.group, replaces) })
}

// stopped: a process has ended by itself.
func (s *sim) stopped(p *process, err error) {
	if err == nil && p.leaving {
		if s.rng.IntN(4) > 0 {
			s.succeed(p, s.between(500, 10_000))
		}
		return
	}
	if !p.duplicate {
		s.succeed(p, s.between(500, 3000))
	}
}

func (s *sim) referenceEnded(ref *reference) {
	s.after(s.between(500, 10_000), "start", func() { startReference(s, ref.member, ref.group) })
}

// groupReady starts the members of a group that was registered late.
func (s *sim) groupReady(name string) {
	if name == lateGroupName && !slices.ContainsFunc(s.processes, func(p *process) bool { return p.group == name }) {
		s.after(100, "start", func() { newProcess(s, "L", lateGroupName, "") })
	}
}

// repair ends the faults: from now on all must settle.
func (s *sim) repair() {
	s.log("--- faults end")
	s.calm = true
	for _, r := range s.replicas {
		r.frozenUntil = min(r.frozenUntil, s.now)
		if !r.up {
			r.restart()
		}
	}
	for i := range s.redis.Nodes {
		if !s.redis.Nodes[i].IsDown() {
			s.redis.CatchUp(i)
		}
	}
	for _, p := range s.processes {
		p.frozenUntil, p.cutOff = min(p.frozenUntil, s.now), 0
	}
	// Every group has at least one member from now on.
	for _, name := range s.oracle.log.registered {
		s.ensureMember(name)
	}
	if st := s.redis.Stored().Stream; st != nil && st.Hold != nil {
		s.resume()
	}
}

// staffed says whether every group has had a member for a while.
func (s *sim) staffed() bool {
	for i := range s.redis.MaxShards() {
		if st := s.redis.Shard(i).Stream; st != nil {
			for _, g := range st.Groups { // one whose registration was lost has to be ignored by name
				if !slices.Contains(s.oracle.log.registered, g.Name) {
					return false
				}
			}
		}
	}
	for _, name := range s.oracle.log.registered {
		if !slices.ContainsFunc(s.processes, func(p *process) bool {
			return p.group == name && p.alive && !p.leaving && s.now-p.started > protocol.Instant(s.sc.drainMs)
		}) {
			return false
		}
	}
	return true
}

func (s *sim) ensureMember(name string) {
	for _, p := range s.processes {
		if p.group == name && p.alive && !p.leaving {
			return
		}
	}
	newProcess(s, name+"Z", name, "")
}

// lookAtEnd ends a run when everything has settled, and fails it when that takes too long (I13).
func (s *sim) lookAtEnd() {
	if !s.calm || s.now < start+s.sc.faultsEnd || len(s.processes) == 0 {
		return
	}
	waits := s.unsettled()
	if s.sc.silent {
		waits = ""
	}
	if waits == "" {
		s.final()
		s.oracle.done = true
		return
	}
	if s.now > start+s.sc.faultsEnd+s.sc.bound {
		s.fail("I13: %d s after the faults: %s", s.sc.bound/1000, waits)
	}
}

// unsettled says what is not settled, "" when everything is (I7, I11, I13).
func (s *sim) unsettled() string {
	for i := range s.redis.Nodes {
		if s.redis.Nodes[i].IsDown() {
			return "a node is down"
		}
	}
	stored := s.redis.Stored()
	st := stored.Stream
	if st == nil {
		return "no stream"
	}
	if st.ServerIdentity != s.redis.Nodes[0].Identity {
		return "nobody has noticed the failover"
	}
	if a := st.Active; a != nil {
		return fmt.Sprintf("%s %s is %s, waiting for %v", a.Kind, a.ID, a.Phase, a.WaitingFor)
	}
	if st.PublishState != protocol.PublishOpen {
		return "publishing is paused"
	}
	for i := range s.redis.MaxShards() {
		sh := s.redis.Shard(i)
		switch {
		case i < st.Layout.Count && sh.Stream == nil:
			return fmt.Sprintf("shard %d is missing", i)
		case i < st.Layout.Count && sh.Stream.Sealed():
			return fmt.Sprintf("shard %d is sealed: %s", i, showControl(stream.Control{Present: true, Epoch: sh.Control.Epoch, Gate: sh.Control.Gate, Until: sh.Control.Until, Hold: sh.Control.Hold}))
		case i < st.Layout.Count && (sh.Control.Epoch != st.Layout.Epoch || sh.Control.Count != st.Layout.Count):
			return fmt.Sprintf("shard %d is at layout %d/%d", i, sh.Control.Epoch, sh.Control.Count)
		case i >= st.Layout.Count && sh.Stream != nil && !s.forgotten(sh):
			return fmt.Sprintf("shard %d was not retired", i)
		}
	}
	for _, name := range st.GroupNames() {
		if !st.Groups[name].Ready {
			return fmt.Sprintf("group %s is not ready", name)
		}
		if waits := s.groupUnsettled(name, stored.Groups[name], st.Layout.Count); waits != "" {
			return waits
		}
	}
	for _, p := range s.producers {
		if p.oldest() > 0 || len(p.waiting) > 0 {
			return fmt.Sprintf("%s has %d entries that it could not append", p.name, len(p.waiting))
		}
	}
	return ""
}

// forgotten: the aggregate and the highest count that shard 0 keeps were lost together, and with
// them all knowledge of a shard that was provisioned and never used. It is empty and sealed, and
// the next change that reaches its index takes it over. Where a decision was confirmed by a
// replica that was then not promoted, it may have entries.
func (s *sim) forgotten(sh *redismodel.Shard) bool {
	high := 0
	if c := s.redis.Shard(0).Control; c != nil {
		high = c.High
	}
	if st := s.redis.Stored().Stream; st != nil {
		high = max(high, st.HighCount)
	}
	if !s.oracle.log.nodeFailed[0] || sh.Index < high {
		return false
	}
	return sh.Stream.Added == 0 && sh.Stream.Sealed() || s.betrayed
}

func (s *sim) groupUnsettled(name string, g *group.State, count int) string {
	if g == nil || g.Assignable != count {
		return fmt.Sprintf("group %s does not have the layout", name)
	}
	if g.RecoverUntil != 0 {
		return fmt.Sprintf("group %s is recovering", name)
	}
	owner := map[int]string{}
	for _, p := range s.processes {
		for _, i := range p.shards() {
			if p.group == name && p.mayRead(i) && p.readers[i].epoch == g.Shards[i].OwnershipEpoch {
				owner[i] = p.member
			}
		}
	}
	for _, ref := range s.refs {
		for _, i := range ref.owned {
			if ref.group == name && ref.mayRead(i) {
				owner[i] = ref.member
			}
		}
	}
	for i := range count {
		sh := g.Shards[i]
		if sh.Target == "" || owner[i] != sh.Target {
			return fmt.Sprintf("shard %d of group %s is read by %q, its target is %q", i, name, owner[i], sh.Target)
		}
		if st := s.redis.Shard(i).Stream; s.sc.reference == 0 {
			rg := st.Group(name)
			if rg == nil {
				return fmt.Sprintf("group %s is not on shard %d", name, i)
			}
			if len(rg.Pending) > 0 || len(st.Entries) > 0 && rg.LastDelivered.Less(st.Entries[len(st.Entries)-1].ID) {
				return fmt.Sprintf("shard %d has %d entries pending for group %s, last delivered %v", i, len(rg.Pending), name, rg.LastDelivered)
			}
		}
	}
	return ""
}

// final asserts I9 over the whole run.
func (s *sim) final() {
	if s.sc.reference > 0 || s.sc.silent {
		return
	}
	for _, e := range s.oracle.log.entries {
		if sh := s.redis.Shard(e.shard); sh.Stream != nil && e.shard >= s.redis.Stored().Stream.Layout.Count && s.forgotten(sh) {
			continue
		}
		for _, name := range s.oracle.log.registered {
			if !e.lost && !e.exempt[name] && !e.acked[name] {
				s.fail("I9: %s (shard %d, epoch %d) was never acknowledged by %s", e.value, e.shard, e.epoch, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.redis.Stored().Groups)) {
		for _, text := range group.Check(s.redis.Stored().Groups[name]) {
			s.fail("group %s: %s", name, text)
		}
	}
}

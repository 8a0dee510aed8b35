package simulation

import (
	"maps"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// oracle sees everything at once and asserts the invariants (design.md's I1–I11 and I13). It
// keeps its own account of what was stored, granted, appended, delivered and acknowledged.
type oracle struct {
	s    *sim
	done bool

	groups map[string]*groupBook
	log    logBook

	failed0  int              // how often the coordinator's node has failed over
	opened   int64            // highest layout epoch that was committed
	given    int64            // highest layout epoch that was given out, in the history that Redis has
	lastDown protocol.Instant // when a node was last down
	nextLook protocol.Instant
}

// bases are the states that a commit was computed from.
type bases struct {
	stream *stream.State
	groups map[string]*group.State
}

func newOracle(s *sim) *oracle {
	return &oracle{s: s, groups: map[string]*groupBook{}, log: newLogBook()}
}

// fail reports a violation. Where Redis loses writes without showing it by another identity, no
// more than I4 is promised.
func (o *oracle) fail(format string, args ...any) {
	if o.s.sc.silent && !strings.HasPrefix(format, "I4") {
		return
	}
	o.s.fail(format, args...)
}

// commit makes a commit for a replica and asserts what it did.
func (o *oracle) commit(r *replica, c redismodel.Commit, from bases, recovering bool) redismodel.Result {
	stored := o.s.redis.Stored()
	before := redismodel.Unit{Stream: stored.Stream, StreamToken: stored.StreamToken, Groups: maps.Clone(stored.Groups), Leases: map[string]group.Leases{}}
	for _, g := range c.Groups {
		before.Leases[g.Name] = maps.Clone(stored.Leases[g.Name])
	}
	if c.Next != nil || slices.ContainsFunc(c.Groups, func(g redismodel.GroupCommit) bool { return g.Next != nil }) {
		o.s.beforeCommit()
	}
	res := o.s.redis.Commit(c)
	if res.Outcome != redismodel.Committed {
		o.s.log("%s commit refused: %s", r, res.Outcome)
		return res
	}
	o.s.counts.Commits++
	if c.CheckStream && before.Stream != from.stream {
		o.fail("I4: %s committed on a stream aggregate that is not the one it read", r)
	}
	identity := o.s.redis.Nodes[0].Identity
	if before.Stream != nil && before.Stream.ServerIdentity != identity && !recovering {
		o.fail("I3: %s committed on server %s without recovery", r, identity)
	}
	if recovering {
		o.s.counts.Recoveries++
	}
	if c.Next != nil {
		o.streamCommitted(r, before.Stream, c.Next)
	}
	for _, g := range c.Groups {
		if before.Groups[g.Name] != from.groups[g.Name] {
			o.fail("I4: %s committed on an aggregate of group %s that is not the one it read", r, g.Name)
		}
		if g.Next != nil {
			o.groupCommitted(r, g.Name, before.Groups[g.Name], g.Next, before.Leases[g.Name], res.Time, recovering)
		}
	}
	return res
}

// streamCommitted asserts a change of the stream aggregate.
func (o *oracle) streamCommitted(r *replica, old, next *stream.State) {
	for _, text := range stream.Check(next) {
		o.fail("stream: %s", text)
	}
	if a := next.Active; a != nil && (old == nil || old.Active == nil || old.Active.Phase != a.Phase || old.Active.ID != a.ID) {
		o.s.log("%s commits %s %s %d→%d (e%d→e%d) in %s %s", r, a.Kind, a.ID, a.From.Count, a.To.Count, a.From.Epoch, a.To.Epoch, a.Phase, a.Error)
		o.s.afterPhase(r, a)
	}
	if a := next.Active; a != nil && (old == nil || old.Active == nil || old.Active.ID != a.ID) {
		if a.To != a.From && a.Kind != stream.KindAdopt && a.To.Epoch <= o.given {
			o.fail("I3: %s was given layout epoch %d, and %d had been given out", a.ID, a.To.Epoch, o.given)
		}
		o.given = max(o.given, a.To.Epoch)
	}
	if old == nil {
		return
	}
	if next.MetadataVersion < old.MetadataVersion || next.RoutingVersion < old.RoutingVersion || next.LastEpoch < old.LastEpoch ||
		next.Layout.Epoch < old.Layout.Epoch || next.Generation < old.Generation {
		o.fail("I3: a version of the stream went back")
	}
	if shard0 := o.s.redis.Shard(0).Control; next.Layout != old.Layout && !o.log.decisionLost {
		if shard0 == nil || shard0.Epoch != next.Layout.Epoch || shard0.Count != next.Layout.Count {
			o.fail("I8: layout %+v was committed, but shard 0 has not decided on it", next.Layout)
		}
	}
	o.opened = max(o.opened, next.Layout.Epoch)
	if len(next.History) > len(old.History) {
		ended := next.History[len(next.History)-1]
		if ended.Phase == protocol.PhaseFailed && ended.DrainBy != 0 && ended.Kind != stream.KindAdopt && o.s.staffed() {
			o.fail("I13: %s was not drained in %d s: %s", ended.ID, o.s.sc.drainMs/1000, ended.Error)
		}
		o.s.log("%s: %s ended %s %s", r, ended.ID, ended.Phase, ended.Error)
		switch ended.Phase {
		case protocol.PhaseCompleted:
			o.s.counts.Reshardings++
			for i := ended.To.Count; i < ended.Old; i++ {
				if o.s.redis.Shard(i).Stream != nil && !slices.Contains(ended.Skip, i) {
					o.fail("I13: %s is completed, and shard %d is still there", ended.ID, i)
				}
			}
		default:
			o.s.counts.RolledBack++
		}
		switch ended.Kind {
		case stream.KindAdopt:
			o.s.counts.Adopted++
		case stream.KindRepair:
			o.s.counts.Repairs++
		default: // asked for by an operator
		}
		if ended.Phase == protocol.PhaseRolledBack && !o.log.decisionLost && next.Layout != old.Layout {
			o.fail("a change was rolled back and the layout moved")
		}
	}
	for _, name := range next.GroupNames() {
		e, was := next.Groups[name], old.Groups[name]
		if e.Ready && (was == nil || !was.Ready) {
			o.groupReady(name, next)
		}
	}
}

// groupReady: whatever can still be read must reach the group from now on.
func (o *oracle) groupReady(name string, st *stream.State) {
	o.s.log("group %s is ready", name)
	reachable := map[string]bool{}
	for i := range o.s.redis.MaxShards() {
		sh := o.s.redis.Shard(i)
		if sh.Stream == nil {
			continue
		}
		if sh.Stream.Group(name) == nil && i < st.Layout.Count {
			o.fail("I9: group %s was registered, but is not on shard %d", name, i)
		}
		for _, e := range sh.Stream.Entries {
			reachable[e.Value] = true
		}
	}
	for _, e := range o.log.entries {
		if !reachable[e.value] {
			e.exempt[name] = true
		}
	}
	o.log.registered = append(o.log.registered, name)
	slices.Sort(o.log.registered)
	o.s.groupReady(name)
}

// routed asserts a routing answer.
func (o *oracle) routed(routing protocol.Routing) {
	c := o.s.redis.Shard(0).Control
	if o.log.decisionLost || o.s.redis.Down(0) {
		return
	}
	if c == nil || c.Epoch < routing.LayoutEpoch {
		o.fail("I5: a routing answer shows layout epoch %d, which shard 0 has not decided on", routing.LayoutEpoch)
	}
}

// check is called after every step; what needs a look at everything is asserted now and then.
func (o *oracle) check() {
	if o.s.now < o.nextLook {
		return
	}
	o.nextLook = o.s.now + 500
	for i := range o.s.redis.Nodes {
		if o.s.redis.Nodes[i].IsDown() {
			o.lastDown = o.s.now
		}
	}
	o.s.lookAtEnd()
}

// failover loses the last writes of a node, and what the oracle knows of them.
func (o *oracle) failover(node int) {
	redis := o.s.redis
	epochBefore := epochOf(redis.Shard(0).Control)
	before := map[string]bool{}
	sealed := map[int]bool{}
	each := func(f func(i int, sh *redismodel.Shard)) {
		for i := range redis.MaxShards() {
			if redis.Home(i) == node {
				f(i, redis.Shard(i))
			}
		}
	}
	each(func(i int, sh *redismodel.Shard) {
		if sh.Stream != nil {
			sealed[i] = sh.Stream.Sealed()
			for _, e := range sh.Stream.Entries {
				before[e.Value] = true
			}
		}
	})
	redis.Fail(node, !o.s.sc.silent)
	if !o.s.sc.silent && o.s.rng.IntN(3) == 0 { // another machine, another clock
		redis.Nodes[node].Offset += o.s.between(-5000, 5000)
	}
	if node == 0 {
		o.failed0++
	}
	after := map[string]bool{}
	each(func(i int, sh *redismodel.Shard) {
		o.log.nodeFailed[i] = true
		if sh.Stream == nil {
			return
		}
		if sealed[i] && !sh.Stream.Sealed() {
			o.log.sealLost[i] = true
		}
		for _, e := range sh.Stream.Entries {
			after[e.Value] = true
		}
	})
	lost := 0
	for _, e := range o.log.entries {
		if before[e.value] && !after[e.value] && redis.Home(e.shard) == node {
			e.lost = true
			lost++
		}
	}
	if now := epochOf(redis.Shard(0).Control); redis.Home(0) == node && now < epochBefore {
		o.log.decisionLost = true
		if now < o.opened && !o.s.betrayed {
			o.fail("I8: layout epoch %d was committed, and Redis lost the decision: no replica had confirmed it", o.opened)
		}
	}
	if node == 0 {
		stored := redis.Stored()
		if stored.Stream != nil {
			o.given = stored.Stream.LastEpoch
		}
		// A registration that Redis lost was lost with its promise.
		o.log.registered = slices.DeleteFunc(o.log.registered, func(name string) bool {
			lost := stored.Stream == nil || stored.Stream.Groups[name] == nil
			if lost { // its operator applies it again
				o.s.after(o.s.between(1000, 10_000), "register", func() { o.s.register(name) })
			}
			return lost || !stored.Stream.Groups[name].Ready
		})
		for _, name := range slices.Sorted(maps.Keys(stored.Groups)) {
			o.book(name).restored(stored.Groups[name])
		}
	}
	o.s.log("node %d failed over to %s, %d entries are lost", node, redis.Nodes[node].Identity, lost)
}

func epochOf(c *redismodel.Control) int64 {
	if c == nil {
		return 0
	}
	return c.Epoch
}

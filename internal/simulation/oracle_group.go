package simulation

import (
	"slices"
	"strconv"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// groupBook is what the oracle knows of one group.
type groupBook struct {
	history []*group.State // every state that was ever stored, in order
	highest group.Epochs   // ever committed, also in a history that Redis lost
	grants  map[int64]grant
}

// grant is the one session and shard that an ownership epoch was given to.
type grant struct {
	row         string
	incarnation string
	shard       int
}

func (o *oracle) book(name string) *groupBook {
	b := o.groups[name]
	if b == nil {
		b = &groupBook{grants: map[int64]grant{}}
		o.groups[name] = b
	}
	return b
}

// restored: a failover brought this state back.
func (b *groupBook) restored(s *group.State) { b.history = append(b.history, s) }

// groupCommitted asserts one change of a group; rows are the lease rows before it.
func (o *oracle) groupCommitted(r *replica, name string, old, next *group.State, rows group.Leases, now protocol.Instant, recovering bool) {
	b := o.book(name)
	for _, text := range group.Check(next) {
		o.fail("group %s: %s", name, text)
	}
	b.history = append(b.history, next)
	if old == nil {
		return
	}
	o.logGroup(r, name, old, next)
	if next.GroupEpoch < old.GroupEpoch || next.MetadataVersion < old.MetadataVersion || next.OwnershipCounter < old.OwnershipCounter {
		o.fail("I3: an epoch of group %s went back", name)
	}
	if recovering && next.GroupEpoch <= b.highest.GroupEpoch && o.failed0 <= 1 { // a recovery may be lost as well
		o.fail("I3: group %s recovers at epoch %d, which was given out before the writes were lost (%d)", name, next.GroupEpoch, b.highest.GroupEpoch)
	}
	b.highest.GroupEpoch = max(b.highest.GroupEpoch, next.GroupEpoch)

	// An estimate of Redis time may be off by the tolerance of C5.
	quiet := next.RecoverUntil > now.Add(next.Config().Margin()/2)
	for _, id := range memberIDs(old, next) {
		was, is := old.Members[id], next.Members[id]
		if was == nil || is == nil || was.JoinEpoch != is.JoinEpoch || was.State == is.State {
			continue
		}
		if is.State == group.Expired {
			o.s.counts.Expiries++
			if end, ok := rows[group.Row(id, is.JoinEpoch)]; !ok || end > now {
				o.fail("I2: %s expired session %s of group %s whose row ends %d ms later", r, group.Row(id, is.JoinEpoch), name, end-now)
			}
		}
		if quiet && is.State.SessionOver() && !was.State.SessionOver() && !recovering {
			o.fail("I3: session %s of group %s ended (%s) during recovery", group.Row(id, is.JoinEpoch), name, is.State)
		}
	}
	raised := next.GroupEpoch > old.GroupEpoch && next.MetadataVersion > old.MetadataVersion
	for i := range max(len(old.Shards), len(next.Shards)) {
		var was, is group.Shard
		if i < len(old.Shards) {
			was = old.Shards[i]
		}
		if i < len(next.Shards) {
			is = next.Shards[i]
		}
		o.shardCommitted(name, i, next, was, is, recovering, quiet)
		if was.Target != is.Target && !raised {
			o.fail("I3: the target of shard %d of group %s moved, and its epochs did not (C8)", i, name)
		}
	}
	if next.GroupEpoch == old.GroupEpoch+1 {
		o.minimal(name, old, next)
	}
}

// shardCommitted asserts what a commit did to one shard.
func (o *oracle) shardCommitted(name string, i int, next *group.State, was, is group.Shard, recovering, quiet bool) {
	if was.Holder != is.Holder || was.RevokedAt != is.RevokedAt {
		o.s.afterShard(name, is.Holder)
	}
	same := was.Holder != nil && is.Holder != nil && *was.Holder == *is.Holder
	if was.Holder != nil && !same {
		if rd := o.readerOf(name, i, was.OwnershipEpoch); rd != nil {
			o.fail("I2: shard %d of group %s was taken from session %s, which may read it", i, name, was.Holder.Row())
		}
		h, m := was.Holder, next.Members[was.Holder.MemberID]
		running := m != nil && m.JoinEpoch == h.JoinEpoch && m.State == group.Active
		if running && was.RevokedAt == 0 && !was.Orphaned && !recovering {
			o.fail("I2: shard %d of group %s was taken from session %s, which was never told", i, name, h.Row())
		}
	}
	if same && was.RevokedAt != 0 && is.RevokedAt == 0 && was.OwnershipEpoch == is.OwnershipEpoch && !is.Orphaned {
		o.fail("I2: shard %d of group %s went back from REVOKING to HELD", i, name)
	}
	if is.Holder != nil && (!same || was.OwnershipEpoch != is.OwnershipEpoch) {
		if !same {
			o.s.counts.Handovers++
		}
		if quiet && !same {
			o.fail("I3: shard %d of group %s was granted during recovery", i, name)
		}
		g := grant{row: is.Holder.Row(), incarnation: is.Holder.Incarnation, shard: i}
		grants := o.book(name).grants
		if before, given := grants[is.OwnershipEpoch]; given && before != g {
			o.fail("I2: ownership epoch %d of group %s was given twice: %+v and %+v", is.OwnershipEpoch, name, before, g)
		}
		grants[is.OwnershipEpoch] = g
	}
}

// readerOf finds a process that may read the shard under this ownership.
func (o *oracle) readerOf(name string, shard int, epoch int64) *process {
	for _, p := range o.s.processes {
		if p.group == name && p.mayRead(shard) && p.readers[shard].epoch == epoch {
			return p
		}
	}
	return nil
}

// minimal asserts I6 for a commit with one change of the members or of the layout: of the shards
// that members read and go on being members, as few as can be are taken away.
func (o *oracle) minimal(name string, old, next *group.State) {
	load, lost, moved := map[string]int{}, 0, false
	targets := []string{}
	for _, id := range memberIDs(next, next) {
		if m := next.Members[id]; m.State == group.Active || m.State == group.Away {
			targets = append(targets, id)
		}
	}
	n := min(old.Assignable, next.Assignable, len(old.Shards), len(next.Shards))
	for i := range n {
		sh := old.Shards[i]
		if is := next.Shards[i]; is.Holder != nil && (sh.Holder == nil || *sh.Holder != *is.Holder) {
			return // granted in the same commit, perhaps before the change
		}
		moved = moved || sh.Target != next.Shards[i].Target
		if sh.Holder == nil || sh.RevokedAt != 0 || sh.Orphaned || !slices.Contains(targets, sh.Holder.MemberID) {
			continue
		}
		if m := next.Members[sh.Holder.MemberID]; m.JoinEpoch != sh.Holder.JoinEpoch {
			continue // another session: nothing goes on
		}
		if is := next.Shards[i]; is.Holder == nil || is.RevokedAt != 0 || is.Orphaned {
			continue // let go in the same commit
		}
		load[sh.Holder.MemberID]++
		if next.Shards[i].Target != sh.Holder.MemberID {
			lost++
		}
	}
	if len(targets) == 0 || !moved {
		return
	}
	var loads []int
	for _, id := range targets {
		loads = append(loads, load[id])
	}
	slices.SortFunc(loads, func(a, b int) int { return b - a })
	least, floor, extra := 0, next.Assignable/len(targets), next.Assignable%len(targets)
	for i, l := range loads {
		room := floor
		if i < extra {
			room++
		}
		least += max(0, l-room)
	}
	if lost > least {
		o.fail("I6: %d shards of group %s are taken from members that read them, %d had to be", lost, name, least)
	}
}

// leased asserts I1 when a process got shards or a longer lease.
func (o *oracle) leased(p *process) {
	for _, shard := range p.shards() {
		if !p.mayRead(shard) {
			continue
		}
		for _, other := range o.s.processes {
			if other != p && other.group == p.group && other.mayRead(shard) {
				o.fail("I1: %s and %s may both read shard %d", p.name, other.name, shard)
			}
		}
		for _, other := range o.s.refs {
			if other.group == p.group && other.mayRead(shard) {
				o.fail("I1: %s and %s may both read shard %d", p.name, other.name, shard)
			}
		}
	}
}

// referenceLeased is the same for a reference member.
func (o *oracle) referenceLeased(ref *reference) {
	for _, shard := range ref.owned {
		if !ref.mayRead(shard) {
			continue
		}
		for _, p := range o.s.processes {
			if p.group == ref.group && p.mayRead(shard) {
				o.fail("I1: %s and %s may both read shard %d", ref.name, p.name, shard)
			}
		}
		for _, other := range o.s.refs {
			if other != ref && other.group == ref.group && other.mayRead(shard) {
				o.fail("I1: %s and %s may both read shard %d", ref.name, other.name, shard)
			}
		}
	}
}

// asked gives the place in the history of the group at which a request was made.
func (o *oracle) asked(name string) int { return max(0, len(o.book(name).history)-1) }

// answered asserts I5: what the answer shows was stored, at some time since the request.
func (o *oracle) answered(name string, req *protocol.HeartbeatRequest, resp protocol.HeartbeatResponse, since int) {
	if !resp.Status.ExtendsLease() {
		return
	}
	history := o.book(name).history
	for i := len(history) - 1; i >= since && i >= 0; i-- {
		var before *group.State
		if i > 0 {
			before = history[i-1]
		}
		if shows(before, history[i], req, resp) {
			return
		}
	}
	o.fail("I5: %s of group %s was answered epoch %d, shards %v, which was never stored",
		req.MemberID, name, resp.GroupEpoch, protocol.Indexes(resp.Assignment.AssignedShards))
}

// shows says whether the commit that turned before into s covers the answer: the answer is that
// of its own application, so its epoch may be one that the rest of the batch went beyond (C7);
// but what it grants is in the store, unless the same batch had the member leave.
func shows(before, s *group.State, req *protocol.HeartbeatRequest, resp protocol.HeartbeatResponse) bool {
	exact := s.GroupEpoch == resp.GroupEpoch && s.MetadataVersion == resp.MetadataVersion
	within := before != nil && before.GroupEpoch <= resp.GroupEpoch && resp.GroupEpoch <= s.GroupEpoch && resp.MetadataVersion <= s.MetadataVersion
	if !exact && !within {
		return false
	}
	m := s.Members[req.MemberID]
	if m == nil || m.Incarnation != req.Incarnation || m.State != group.Active {
		return within
	}
	for _, shard := range resp.Assignment.AssignedShards {
		if shard.ShardIndex >= len(s.Shards) {
			return false
		}
		sh := s.Shards[shard.ShardIndex]
		if sh.Holder == nil || sh.Holder.MemberID != req.MemberID || sh.Holder.JoinEpoch != m.JoinEpoch {
			return false
		}
		if sh.RevokedAt != 0 && sh.RevokedAt <= resp.GroupEpoch {
			return false // told to let go, and assigned all the same (S10)
		}
		if epoch, ok := resp.Assignment.OwnershipEpochs[strconv.Itoa(shard.ShardIndex)]; ok && epoch != sh.OwnershipEpoch {
			return false
		}
	}
	return true
}

// memberIDs lists the members of both states, sorted.
func memberIDs(a, b *group.State) []string {
	ids := make([]string, 0, len(a.Members)+len(b.Members))
	for id := range a.Members {
		ids = append(ids, id)
	}
	for id := range b.Members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// logGroup writes what a commit changed into the trace.
func (o *oracle) logGroup(r *replica, name string, old, next *group.State) {
	if !o.s.tracing {
		return
	}
	o.s.log("%s commits group %s ge%d mv%d recoverUntil %d", r, name, next.GroupEpoch, next.MetadataVersion, max(0, next.RecoverUntil-start))
	for _, id := range memberIDs(old, next) {
		was, is := old.Members[id], next.Members[id]
		switch {
		case is == nil:
			o.s.log("    member %s removed", id)
		case was == nil || was.State != is.State || was.JoinEpoch != is.JoinEpoch:
			o.s.log("    member %s %s %s joined e%d", id, is.Incarnation, is.State, is.JoinEpoch)
		}
	}
	for i, sh := range next.Shards {
		if i < len(old.Shards) && sameShard(old.Shards[i], sh) {
			continue
		}
		holder := "free"
		if sh.Holder != nil {
			holder = sh.Holder.Row()
		}
		o.s.log("    shard %d target %s holder %s own %d revokedAt %d ack %v orphaned %v", i, sh.Target, holder, sh.OwnershipEpoch, sh.RevokedAt, sh.Acknowledged, sh.Orphaned)
	}
}

func sameShard(a, b group.Shard) bool {
	holders := a.Holder == b.Holder || a.Holder != nil && b.Holder != nil && *a.Holder == *b.Holder
	a.Holder, b.Holder = nil, nil
	return holders && a == b
}

package group

import (
	"cmp"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	markOwned    = 1 << iota // listed as owned: read now
	markDraining             // listed as told to let go, not done
)

// report is what one request lists.
type report struct {
	items   []reported // by ascending shard, each once
	unknown bool       // an owned shard that the group does not have
}

type reported struct {
	shard int
	marks uint8
}

// read takes over what the request lists, of a group with so many shards.
func (r *report) read(req *protocol.HeartbeatRequest, shards int) {
	r.clear()
	add := func(shard int, marks uint8) bool {
		if shard < 0 || shard >= shards {
			return false
		}
		r.items = append(r.items, reported{shard, marks})
		return true
	}
	for _, o := range req.OwnedShards {
		if !add(o.ShardIndex, markOwned) {
			r.unknown = true
		}
	}
	for i := range req.RevokingShards {
		if item := &req.RevokingShards[i]; !item.Released() {
			add(item.Shard.ShardIndex, markDraining)
		}
	}
	slices.SortFunc(r.items, func(a, b reported) int { return cmp.Compare(a.shard, b.shard) })
	once := r.items[:0]
	for _, item := range r.items {
		if n := len(once); n > 0 && once[n-1].shard == item.shard {
			once[n-1].marks |= item.marks
			continue
		}
		once = append(once, item)
	}
	r.items = once
}

// clear empties the report: nothing is listed. The report of a join is never read.
func (r *report) clear() { r.items, r.unknown = r.items[:0], false }

func (r *report) marks(shard int) uint8 {
	i, found := slices.BinarySearchFunc(r.items, shard, func(item reported, shard int) int { return cmp.Compare(item.shard, shard) })
	if !found {
		return 0
	}
	return r.items[i].marks
}

func (r *report) owned(shard int) bool    { return r.marks(shard)&markOwned != 0 }
func (r *report) draining(shard int) bool { return r.marks(shard)&markDraining != 0 }
func (r *report) listed(shard int) bool   { return r.marks(shard) != 0 }

// overclaims says whether the report lists as owned what is neither held by the session nor
// free for it to take (S6).
func (t *Turn) overclaims(memberID string, m *Member) bool {
	s := t.State()
	if t.report.unknown {
		return true
	}
	for _, item := range t.report.items {
		if item.marks&markOwned == 0 {
			continue
		}
		sh := &s.Shards[item.shard]
		if !sh.holds(memberID, m) && (sh.Holder != nil || sh.Target != memberID) {
			return true
		}
	}
	return false
}

// release applies the report to the shards that the session was told to let go (S5). Only a
// call that has seen the telling counts: no late or repeated copy releases anything.
func (t *Turn) release(req *protocol.HeartbeatRequest, m *Member, now protocol.Instant) {
	for _, i := range t.State().shardsOf(req.MemberID) {
		s := t.State()
		if i >= len(s.Shards) {
			break
		}
		sh := &s.Shards[i]
		if sh.RevokedAt == 0 || req.MemberEpoch < sh.RevokedAt || !sh.holds(req.MemberID, m) {
			continue
		}
		switch {
		case !t.report.listed(i):
			t.free(i, now)
		case !t.report.owned(i) && !sh.Acknowledged:
			t.edit(now).Shards[i].Acknowledged = true
		}
	}
}

// countIgnored counts what the report says of shards that are not the session's; it has no
// other effect (S6).
func (t *Turn) countIgnored(req *protocol.HeartbeatRequest, m *Member) {
	s := t.State()
	foreign := func(i int) bool {
		return i < 0 || i >= len(s.Shards) || !s.Shards[i].holds(req.MemberID, m)
	}
	for i := range req.RevokingShards {
		if item := &req.RevokingShards[i]; !item.Released() && foreign(item.Shard.ShardIndex) {
			t.ignored++
		}
	}
	for i := range req.ShardProgress {
		if foreign(req.ShardProgress[i].Shard.ShardIndex) {
			t.ignored++
		}
	}
}

// seeEpochs applies higher ownership epochs that the member met in Redis (D6): the counter
// moves above them, and what the member holds under an epoch that is not above gets a new one.
// An epoch that is more than a day ahead of Redis time is not believed.
func (t *Turn) seeEpochs(req *protocol.HeartbeatRequest, m *Member, now protocol.Instant) {
	for _, seen := range req.OwnershipSeen {
		if seen.Epoch > int64(now.Add(maxEpochLead)) {
			t.ignored++
			continue
		}
		if seen.Epoch > t.State().OwnershipCounter {
			t.edit(now).OwnershipCounter = seen.Epoch
		}
		i, s := seen.Shard.ShardIndex, t.State()
		if i < 0 || i >= len(s.Shards) {
			continue
		}
		if sh := &s.Shards[i]; sh.held(req.MemberID, m) && sh.OwnershipEpoch <= seen.Epoch {
			epoch := t.nextOwnership(now)
			t.edit(now).Shards[i].OwnershipEpoch = epoch
		}
	}
}

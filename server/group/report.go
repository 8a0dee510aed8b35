package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	markOwned    = 1 << iota // listed as owned: read now
	markDraining             // listed as told to let go, not done
)

// report is what one request lists, by shard.
type report struct {
	marks   []uint8 // of each shard of the group
	touched []int   // shards with a mark
	unknown bool    // an owned shard that the group does not have
}

// read takes over what the request lists. A report that is not to be applied is not read.
func (r *report) read(req *protocol.HeartbeatRequest, shards int) {
	r.clear(shards)
	for _, o := range req.OwnedShards {
		if !r.mark(o.ShardIndex, markOwned) {
			r.unknown = true
		}
	}
	for i := range req.RevokingShards {
		if item := &req.RevokingShards[i]; !item.Released() {
			r.mark(item.Shard.ShardIndex, markDraining)
		}
	}
}

// clear empties the report: nothing is listed.
func (r *report) clear(shards int) {
	for _, i := range r.touched {
		r.marks[i] = 0
	}
	r.touched, r.unknown = r.touched[:0], false
	if len(r.marks) < shards {
		r.marks = make([]uint8, shards)
	}
}

func (r *report) mark(shard int, as uint8) bool {
	if shard < 0 || shard >= len(r.marks) {
		return false
	}
	if r.marks[shard] == 0 {
		r.touched = append(r.touched, shard)
	}
	r.marks[shard] |= as
	return true
}

func (r *report) owned(shard int) bool {
	return shard < len(r.marks) && r.marks[shard]&markOwned != 0
}

func (r *report) draining(shard int) bool {
	return shard < len(r.marks) && r.marks[shard]&markDraining != 0
}

func (r *report) listed(shard int) bool { return shard < len(r.marks) && r.marks[shard] != 0 }

// overclaims says whether the report lists as owned what is neither held by the session nor
// free for it to take (S6).
func (t *Turn) overclaims(memberID string, m *Member) bool {
	s := t.State()
	if t.report.unknown {
		return true
	}
	for _, i := range t.report.touched {
		if !t.report.owned(i) {
			continue
		}
		if i >= len(s.Shards) {
			return true
		}
		sh := &s.Shards[i]
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

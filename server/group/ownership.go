package group

import (
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// maxEpochLead bounds how far reports may push the ownership counter ahead of Redis time (D6).
const maxEpochLead = 24 * time.Hour

// holds says whether the shard is in the hands of the session and not an orphan of it.
func (sh *Shard) holds(memberID string, m *Member) bool {
	return sh.Holder != nil && !sh.Orphaned && sh.Holder.MemberID == memberID && sh.Holder.JoinEpoch == m.JoinEpoch
}

// held says whether the session may go on reading the shard if its target lets it.
func (sh *Shard) held(memberID string, m *Member) bool {
	return sh.RevokedAt == 0 && sh.holds(memberID, m)
}

// nextOwnership is rule D7: neither lost writes nor a group made anew repeats an epoch.
func (t *Turn) nextOwnership(now protocol.Instant) int64 {
	s := t.edit(now)
	s.OwnershipCounter = max(s.OwnershipCounter+1, int64(now))
	return s.OwnershipCounter
}

// grant makes the session the holder of a free shard (S7).
func (t *Turn) grant(shard int, memberID string, m *Member, now protocol.Instant) {
	epoch := t.nextOwnership(now)
	sh := &t.edit(now).Shards[shard]
	sh.Holder = &Holder{MemberID: memberID, JoinEpoch: m.JoinEpoch, Incarnation: m.Incarnation}
	sh.OwnershipEpoch = epoch
}

// free takes the shard from whoever has it. Shards that the layout no longer has end with it.
func (t *Turn) free(shard int, now protocol.Instant) {
	s := t.edit(now)
	sh := &s.Shards[shard]
	*sh = Shard{Target: sh.Target, OwnershipEpoch: sh.OwnershipEpoch}
}

// orphan leaves the shard with a session that is over, until its lease row ends.
func (t *Turn) orphan(shard int, now protocol.Instant) {
	sh := &t.edit(now).Shards[shard]
	sh.Orphaned, sh.RevokedAt, sh.Acknowledged, sh.Deadline = true, 0, false, 0
}

// trim drops the free shards at the end that the layout no longer has.
func (t *Turn) trim() {
	s := t.next
	if s == nil {
		return
	}
	n := len(s.Shards)
	for n > s.Assignable && s.Shards[n-1].Holder == nil {
		n--
	}
	s.Shards = s.Shards[:n]
}

// settleRow drops the row of a session that is over once no shard waits for it.
func (t *Turn) settleRow(h Holder) {
	s := t.State()
	if s.session(&h) != nil {
		return
	}
	for _, i := range s.shardsOf(h.MemberID) {
		if i < len(s.Shards) && s.Shards[i].Holder != nil && *s.Shards[i].Holder == h {
			return
		}
	}
	t.rows.Drop(h.Row())
}

// sessionOf names the running session of a member.
func sessionOf(memberID string, m *Member) Holder {
	return Holder{MemberID: memberID, JoinEpoch: m.JoinEpoch, Incarnation: m.Incarnation}
}

// letGo takes from the session all that it holds: shards for which kept says so become orphans,
// the others are free.
func (t *Turn) letGo(memberID string, m *Member, now protocol.Instant, kept func(*Shard) bool) {
	for _, i := range t.State().shardsOf(memberID) {
		s := t.State()
		if i >= len(s.Shards) || !s.Shards[i].holds(memberID, m) {
			continue
		}
		if kept(&s.Shards[i]) {
			t.orphan(i, now)
		} else {
			t.free(i, now)
		}
	}
}

func keepAll(*Shard) bool  { return true }
func keepNone(*Shard) bool { return false }

// fence ends the session of a member that claimed what is not its own or did not let go in
// time. It says nothing about what its process still does: only what it acknowledged to have
// stopped reading is free at once; the rest waits for its row (4.6).
func (t *Turn) fence(memberID string, now protocol.Instant) {
	m := t.editMember(memberID, now)
	t.letGo(memberID, m, now, func(sh *Shard) bool { return !sh.Acknowledged })
	m.State, m.Since = Fenced, now
	t.settleRow(sessionOf(memberID, m))
}

package group

import (
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// retention is how long the record of a session that is over, or of a member that has left, is
// kept once it holds nothing.
const retention = 10 * time.Minute

// Tick expires sessions whose rows have ended, fences at deadlines, frees orphans whose rows
// have ended, writes missing rows of sessions that are not over, and prunes records (S11).
// Members in present have a request in the same batch and are not expired by it (C7).
func (t *Turn) Tick(now protocol.Instant, leases Leases, present map[string]bool) {
	if until := t.State().RecoverUntil; until != 0 && until <= now {
		t.edit(now).RecoverUntil = 0 // grants may go on: whoever waits is looked at again
	}
	t.writeMissing(leases)
	if !t.State().recovering(now) {
		expired := t.expired(now, leases, present)
		overdue := t.overdueMembers(now, present, expired)
		if len(expired)+len(overdue) > 0 {
			t.raise(now)
			for _, id := range expired {
				t.expire(id, now)
			}
			for _, id := range overdue {
				t.fence(id, now)
			}
			t.retarget(now)
		}
		t.freeOrphans(now, leases)
	}
	t.prune(now)
	t.trim()
}

// writeMissing gives a row to whatever waits for one: a missing row is never taken as ended.
func (t *Turn) writeMissing(leases Leases) {
	s := t.State()
	var missing []string
	need := func(row string) {
		if _, ok := leases[row]; !ok && !t.rows.dropped[row] {
			missing = append(missing, row)
		}
	}
	for id, m := range s.Members {
		if !m.State.SessionOver() {
			need(Row(id, m.JoinEpoch))
		}
	}
	for i := range s.Shards {
		if s.Shards[i].Orphaned {
			need(s.Shards[i].Holder.Row())
		}
	}
	slices.Sort(missing)
	for _, row := range missing {
		t.rows.Renew(row)
	}
}

// expired lists the members whose session's row has ended, sorted.
func (t *Turn) expired(now protocol.Instant, leases Leases, present map[string]bool) []string {
	s := t.State()
	var ids []string
	for id, m := range s.Members {
		if m.State.SessionOver() || present[id] {
			continue
		}
		if t.rowEnded(Row(id, m.JoinEpoch), now, leases) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (t *Turn) rowEnded(row string, now protocol.Instant, leases Leases) bool {
	end, ok := t.rows.end(row, now, t.State().Config().MemberLease, leases)
	return ok && end <= now
}

// expire ends the session and frees all that it holds: its row has ended.
func (t *Turn) expire(id string, now protocol.Instant) {
	m := t.editMember(id, now)
	row := Row(id, m.JoinEpoch)
	t.letGo(id, m, now, keepNone)
	m.State, m.Since = Expired, now
	t.rows.Check(row, 0)
	t.settleRow(sessionOf(id, m))
}

// overdueMembers lists the active members that hold a shard past its deadline, sorted.
func (t *Turn) overdueMembers(now protocol.Instant, present map[string]bool, expired []string) []string {
	s := t.State()
	var ids []string
	for i := range s.Shards {
		sh := &s.Shards[i]
		if !sh.overdue(now) || sh.Holder == nil || sh.Orphaned {
			continue
		}
		id := sh.Holder.MemberID
		m := s.session(sh.Holder)
		if m == nil || m.State != Active || present[id] || slices.Contains(expired, id) || slices.Contains(ids, id) {
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// freeOrphans frees the orphans whose rows have ended.
func (t *Turn) freeOrphans(now protocol.Instant, leases Leases) {
	for i := range t.State().Shards {
		sh := &t.State().Shards[i]
		if !sh.Orphaned {
			continue
		}
		holder := *sh.Holder
		if !t.rowEnded(holder.Row(), now, leases) {
			continue
		}
		t.rows.Check(holder.Row(), 0)
		t.free(i, now)
		t.settleRow(holder)
	}
}

// prune removes old records. MV moves, as views and routing show it; targets do not.
func (t *Turn) prune(now protocol.Instant) {
	var old []string
	s := t.State()
	for id, m := range s.Members {
		if prunable(m) && m.Since.Add(retention) <= now && !s.holdsAnything(id) {
			old = append(old, id)
		}
	}
	if len(old) == 0 {
		return
	}
	slices.Sort(old)
	s = t.edit(now)
	for _, id := range old {
		m := s.Members[id]
		if !m.State.SessionOver() {
			t.rows.Drop(Row(id, m.JoinEpoch))
		}
		delete(s.Members, id)
	}
	s.MetadataVersion++
	s.Correction = nil
}

func prunable(m *Member) bool { return m.State.SessionOver() || m.State == Leaving }

// holdsAnything says whether a shard is in the hands of any session of the member, also one
// that is over.
func (s *State) holdsAnything(memberID string) bool {
	for _, i := range s.shardsOf(memberID) {
		if i < len(s.Shards) && s.Shards[i].Holder != nil && s.Shards[i].Holder.MemberID == memberID {
			return true
		}
	}
	return false
}

// Next is the earliest instant at which Tick may have something to do, 0 for none. It may lie
// in the past.
func Next(s *State, leases Leases) protocol.Instant {
	var next protocol.Instant
	at := func(i protocol.Instant) {
		if i = max(i, 1); next == 0 || i < next {
			next = i
		}
	}
	ended := func(row string) {
		end, ok := leases[row]
		if !ok {
			at(1) // to be written
			return
		}
		at(max(end, s.RecoverUntil))
	}
	if s.RecoverUntil != 0 {
		at(s.RecoverUntil)
	}
	for id, m := range s.Members {
		if !m.State.SessionOver() {
			ended(Row(id, m.JoinEpoch))
		}
		if prunable(m) && !s.holdsAnything(id) {
			at(m.Since.Add(retention))
		}
	}
	for i := range s.Shards {
		switch sh := &s.Shards[i]; {
		case sh.Orphaned:
			ended(sh.Holder.Row())
		case sh.Deadline != 0:
			at(max(sh.Deadline, s.RecoverUntil))
		}
	}
	return next
}

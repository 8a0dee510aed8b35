package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// maxRaise bounds how far one request may push the epochs while lost writes are made up for.
const maxRaise = 1 << 32

// Heartbeat decides one heartbeat that has passed the checks of its form (contract rows 1–3).
// leases may be stale; whatever is decided on an ended or quiet row is put into Rows.Check.
func (t *Turn) Heartbeat(req *protocol.HeartbeatRequest, now protocol.Instant, leases Leases) protocol.HeartbeatResponse {
	defer t.trim()
	s := t.State()
	m := s.Members[req.MemberID]

	// S1: the first row that fits.
	switch {
	case req.MemberEpoch == protocol.EpochJoin:
		return t.join(req, now, leases)
	case req.MemberEpoch < protocol.EpochAway:
		return t.reject(req, protocol.StatusInvalidRequest, "")
	case m == nil || m.Incarnation != req.Incarnation:
		return t.reject(req, protocol.StatusUnknownMemberID, protocol.ReasonSessionOver)
	case m.State.SessionOver():
		return t.fenced(req)
	case m.State == Active && s.recovering(now) && ahead(req, s):
		return t.catchUp(req, m, now)
	case m.State == Active && t.superseded(req, m):
		return t.fenced(req)
	case m.State == Active && t.outOfDate(req):
		return t.sync(req, m, now)
	case req.MemberEpoch < 0:
		return t.leave(req, m, now)
	case m.State != Active:
		return t.fenced(req)
	}

	// S2: the session is running, and the request is not of an earlier one.
	if req.MemberEpoch > s.GroupEpoch {
		return t.reject(req, protocol.StatusInvalidRequest, "")
	}
	return t.accept(req, now)
}

// superseded says whether the request belongs to an earlier session of a client that names no
// incarnation. While a correction round is open S1 would answer it SYNC_METADATA whatever its
// epoch is, and so take a second process into the running session; it is refused as S2 refuses
// it at any other time.
func (t *Turn) superseded(req *protocol.HeartbeatRequest, m *Member) bool {
	return req.MemberEpoch > 0 && req.MemberEpoch < m.JoinEpoch && req.MetadataVersion <= t.State().MetadataVersion
}

// ahead says whether the request knows of a group epoch that the group has lost.
func ahead(req *protocol.HeartbeatRequest, s *State) bool {
	return req.MemberEpoch > s.GroupEpoch && req.MemberEpoch-s.GroupEpoch <= maxRaise
}

// catchUp answers a member that is ahead of a group which lost writes: the epochs rise above
// what it sent, so that neither ever falls in its eyes (S2, in recovery).
func (t *Turn) catchUp(req *protocol.HeartbeatRequest, m *Member, now protocol.Instant) protocol.HeartbeatResponse {
	s := t.edit(now)
	s.GroupEpoch = req.MemberEpoch
	if req.MetadataVersion-s.MetadataVersion <= maxRaise {
		s.MetadataVersion = max(s.MetadataVersion, req.MetadataVersion)
	}
	t.raise(now)
	return t.syncAnswer(req, m)
}

// accept applies the report of a request of the running session, and answers what the session
// may read now (4.3, 4.4). A request that changes nothing only renews.
func (t *Turn) accept(req *protocol.HeartbeatRequest, now protocol.Instant) protocol.HeartbeatResponse {
	s := t.State()
	id, m := req.MemberID, s.Members[req.MemberID]
	recovering := s.recovering(now)

	t.report.read(req, len(s.Shards))
	t.countIgnored(req, m)
	if !recovering && req.MemberEpoch == s.GroupEpoch && t.overclaims(id, m) {
		return t.fenceNow(req, now)
	}
	t.release(req, m, now)
	t.seeEpochs(req, m, now)
	if !recovering && t.overdue(id, m, now) {
		return t.fenceNow(req, now)
	}

	t.setName(req, now)
	t.rows.Renew(Row(id, m.JoinEpoch))
	t.acknowledgeRound(req, now)
	return t.view(req, now)
}

// overdue says whether the session still holds a shard whose deadline has passed. Every
// accepted request looks, so that a member which goes on calling is not spared by it.
func (t *Turn) overdue(memberID string, m *Member, now protocol.Instant) bool {
	s := t.State()
	for _, i := range s.shardsOf(memberID) {
		if i < len(s.Shards) && s.Shards[i].overdue(now) && s.Shards[i].holds(memberID, m) {
			return true
		}
	}
	return false
}

func (sh *Shard) overdue(now protocol.Instant) bool { return sh.Deadline != 0 && sh.Deadline <= now }

// fenceNow ends the session of the caller and tells it.
func (t *Turn) fenceNow(req *protocol.HeartbeatRequest, now protocol.Instant) protocol.HeartbeatResponse {
	t.raise(now)
	t.fence(req.MemberID, now)
	t.retarget(now)
	return t.fenced(req)
}

// setName keeps the name that the member last gave itself.
func (t *Turn) setName(req *protocol.HeartbeatRequest, now protocol.Instant) {
	if req.MemberName == nil || *req.MemberName == t.State().Members[req.MemberID].Name {
		return
	}
	t.editMember(req.MemberID, now).Name = *req.MemberName
}

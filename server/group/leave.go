package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// leave decides −1 and −2 of a session that is not over (4.5). What the member lists as
// draining stays with it until it no longer does; all else is free at once.
func (t *Turn) leave(req *protocol.HeartbeatRequest, m *Member, now protocol.Instant) protocol.HeartbeatResponse {
	// A client without an incarnation shows by its metadata version that it has seen the
	// answer to the join of this session; a late leave of an earlier one has not.
	if m.Incarnation == "" && req.MetadataVersion < m.JoinMV {
		return t.fenced(req)
	}

	id := req.MemberID
	state := m.State
	switch {
	case req.MemberEpoch == protocol.EpochLeave:
		state = Leaving
	case state == Active: // −2 never brings back the targets of one that left for good
		state = Away
	}
	if state != m.State {
		t.raise(now)
		next := t.editMember(id, now)
		next.State, next.Since = state, now
	}

	t.report.read(req, len(t.State().Shards))
	for _, i := range t.State().shardsOf(id) {
		s := t.State()
		if i >= len(s.Shards) {
			break
		}
		sh := &s.Shards[i]
		switch {
		case !sh.holds(id, m):
		case !t.report.draining(i):
			t.free(i, now)
		case m.State == Active:
			// It has let go of all by itself: its row decides from here, not the deadline.
			sh := &t.edit(now).Shards[i]
			if sh.RevokedAt == 0 {
				sh.RevokedAt = s.GroupEpoch
			}
			sh.Acknowledged, sh.Deadline = true, 0
		}
	}
	if state.targeted() != m.State.targeted() {
		t.retarget(now)
	}

	t.rows.Renew(Row(id, m.JoinEpoch))
	return t.farewell(req)
}

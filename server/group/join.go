package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// join decides a request with member epoch 0 (4.2). The incumbent wins: a second live process
// never takes the id over, and an echo of a finished session opens nothing. The report of a
// join is never applied.
func (t *Turn) join(req *protocol.HeartbeatRequest, now protocol.Instant, leases Leases) protocol.HeartbeatResponse {
	id := req.MemberID
	m := t.State().Members[id]
	cfg := t.State().Config()
	t.report.clear()

	switch {
	case m == nil:
		t.open(req, now)
	case m.State != Active: // over, or leaving
		if sameIncarnation(m, req) {
			t.freeReplaced(req, now)
			return t.fenced(req)
		}
		t.letGo(id, m, now, keepAll) // what it still drains
		t.open(req, now)
		t.settleRow(sessionOf(id, m))
	case sameIncarnation(m, req) || sameRequest(m, req):
		t.freeReplaced(req, now)
		t.setName(req, now)
		t.rows.Renew(Row(id, m.JoinEpoch))
		return t.view(req, now)
	case req.Replaces != "" && req.Replaces == m.Incarnation:
		t.letGo(id, m, now, keepNone)
		t.open(req, now)
		t.settleRow(sessionOf(id, m))
	default:
		row, quiet := Row(id, m.JoinEpoch), cfg.MemberLease-cfg.QuietTime()
		if end, ok := t.rows.end(row, now, cfg.MemberLease, leases); !ok || end.Sub(now) > quiet {
			t.freeReplaced(req, now)
			return t.reject(req, protocol.StatusInvalidRequest, protocol.ReasonIDInUse)
		}
		t.rows.Check(row, quiet)
		t.letGo(id, m, now, keepAll)
		t.open(req, now)
		t.settleRow(sessionOf(id, m))
	}
	t.freeReplaced(req, now)
	return t.view(req, now)
}

// sameIncarnation says whether the request comes from the process of the record's session.
func sameIncarnation(m *Member, req *protocol.HeartbeatRequest) bool {
	return m.Incarnation != "" && m.Incarnation == req.Incarnation
}

// sameRequest says whether the request is a copy of the one that opened the session. Clients
// without an incarnation have nothing else to be known by.
func sameRequest(m *Member, req *protocol.HeartbeatRequest) bool {
	return m.JoinRequestID != "" && m.JoinRequestID == req.RequestID && m.Incarnation == req.Incarnation
}

// open begins a session in place of whatever the record was.
func (t *Turn) open(req *protocol.HeartbeatRequest, now protocol.Instant) {
	t.raise(now)
	s := t.edit(now)
	before := s.Members[req.MemberID]
	m := &Member{
		State: Active, Incarnation: req.Incarnation, JoinEpoch: s.GroupEpoch, JoinMV: s.MetadataVersion,
		JoinRequestID: req.RequestID, Since: now,
	}
	if req.MemberName != nil {
		m.Name = *req.MemberName
	}
	s.Members[req.MemberID] = m
	t.rows.Renew(Row(req.MemberID, m.JoinEpoch))
	if before == nil || !before.State.targeted() {
		t.retarget(now) // otherwise the members to assign to are the same
	}
}

// freeReplaced frees the orphans of a session that the client knows to be finished (S4).
func (t *Turn) freeReplaced(req *protocol.HeartbeatRequest, now protocol.Instant) {
	if req.Replaces == "" || req.Replaces == req.Incarnation {
		return
	}
	for _, i := range t.State().shardsOf(req.MemberID) {
		s := t.State()
		if i >= len(s.Shards) {
			break
		}
		sh := &s.Shards[i]
		if sh.Orphaned && sh.Holder.MemberID == req.MemberID && sh.Holder.Incarnation == req.Replaces {
			holder := *sh.Holder
			t.free(i, now)
			t.settleRow(holder)
		}
	}
}

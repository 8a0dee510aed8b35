package group

import (
	"strconv"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// reject answers a request that changes nothing and belongs to no session: the numbers of the
// group are not told, the epoch is an echo.
func (t *Turn) reject(req *protocol.HeartbeatRequest, status protocol.HeartbeatStatus, reason string) protocol.HeartbeatResponse {
	spec := t.State().Spec
	return protocol.HeartbeatResponse{
		ResponseTo: req.RequestID, Status: status, MemberID: req.MemberID, MemberEpoch: req.MemberEpoch,
		HeartbeatIntervalMs: spec.HeartbeatIntervalMs, RebalanceTimeoutMs: spec.RebalanceTimeoutMs,
		Assignment: protocol.Assignment{AssignedShards: protocol.Shards(nil), PendingShards: protocol.Shards(nil)},
		Reason:     reason,
	}
}

// answer has the numbers of the group as it stands, and nothing assigned.
func (t *Turn) answer(req *protocol.HeartbeatRequest, status protocol.HeartbeatStatus) protocol.HeartbeatResponse {
	s := t.State()
	out := t.reject(req, status, "")
	out.MemberEpoch = s.GroupEpoch
	out.GroupEpoch, out.AssignmentEpoch, out.MetadataVersion = s.GroupEpoch, s.GroupEpoch, s.MetadataVersion
	out.Assignment.MetadataVersion = s.MetadataVersion
	if status.ExtendsLease() {
		out.MemberLeaseMs = s.Spec.MemberLeaseMs
	}
	return out
}

// fenced answers a request of a session that is over.
func (t *Turn) fenced(req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	out := t.answer(req, protocol.StatusFencedMemberEpoch)
	out.Reason = protocol.ReasonSessionOver
	return out
}

// farewell answers an accepted leave.
func (t *Turn) farewell(req *protocol.HeartbeatRequest) protocol.HeartbeatResponse {
	out := t.answer(req, protocol.StatusOK)
	out.MemberEpoch = protocol.EpochLeave
	return out
}

// syncAnswer asks the member to go on with what it reports and may keep, under the group's
// numbers. It renews the lease, and leaves out without telling (revokedAt stays).
func (t *Turn) syncAnswer(req *protocol.HeartbeatRequest, m *Member) protocol.HeartbeatResponse {
	s := t.State()
	t.report.read(req, len(s.Shards))
	t.rows.Renew(Row(req.MemberID, m.JoinEpoch))
	out := t.answer(req, protocol.StatusSyncMetadata)
	t.assigned(&out, func(i int) bool { return t.report.owned(i) })
	return out
}

// view grants and tells what there is to grant and to tell, and answers what the member may
// read now (S7–S9). While a correction round is open it grants nothing and shows only what
// the member reads anyhow.
func (t *Turn) view(req *protocol.HeartbeatRequest, now protocol.Instant) protocol.HeartbeatResponse {
	s := t.State()
	id := req.MemberID
	m := s.Members[id]
	recovering, correcting := s.recovering(now), s.Correction != nil

	for _, i := range s.shardsOf(id) {
		s := t.State()
		if i >= len(s.Shards) {
			break
		}
		sh := &s.Shards[i]
		switch {
		case sh.Holder == nil && sh.Target == id && !recovering && !correcting && !t.report.draining(i):
			t.grant(i, id, m, now)
		case sh.Target != id && sh.held(id, m):
			t.edit(now).Shards[i].RevokedAt = s.GroupEpoch
		}
	}

	status := protocol.StatusOK
	if correcting {
		status = protocol.StatusRevokePending
	}
	out := t.answer(req, status)
	t.assigned(&out, func(i int) bool {
		return !t.report.draining(i) && (!recovering && !correcting || t.report.owned(i))
	})
	return out
}

// assigned fills in the target of the member: assigned where the session holds the shard and
// shown says so, pending otherwise.
func (t *Turn) assigned(out *protocol.HeartbeatResponse, shown func(shard int) bool) {
	s := t.State()
	m := s.Members[out.MemberID]
	mine := s.shardsOf(out.MemberID)
	assigned := make([]protocol.Shard, 0, len(mine))
	for _, i := range mine {
		if i >= len(s.Shards) {
			break
		}
		sh := &s.Shards[i]
		switch {
		case sh.Target != out.MemberID:
		case sh.held(out.MemberID, m) && shown(i):
			assigned = append(assigned, protocol.Shard{ShardIndex: i})
			if out.Assignment.OwnershipEpochs == nil {
				out.Assignment.OwnershipEpochs = make(map[string]int64, len(mine))
			}
			out.Assignment.OwnershipEpochs[strconv.Itoa(i)] = sh.OwnershipEpoch
		default:
			out.Assignment.PendingShards = append(out.Assignment.PendingShards, protocol.Shard{ShardIndex: i})
		}
	}
	out.Assignment.AssignedShards = assigned
}

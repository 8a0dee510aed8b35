package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Settled says whether the answer to req would equal what req lists (rule 4.8): such a request
// may be held. What the group still waits for (pending shards, a recovery) does not unsettle
// it; the change that ends the wait does.
func Settled(s *State, req *protocol.HeartbeatRequest) bool {
	m := s.Members[req.MemberID]
	if m == nil || m.State != Active || m.Incarnation != req.Incarnation ||
		req.MemberEpoch != s.GroupEpoch || req.MemberEpoch < m.JoinEpoch ||
		s.Correction != nil || req.MetadataVersion > s.MetadataVersion || len(req.OwnershipSeen) > 0 {
		return false
	}
	var r report
	r.read(req, len(s.Shards))
	if r.unknown {
		return false
	}
	for i := range req.RevokingShards {
		if !req.RevokingShards[i].Released() {
			return false
		}
	}

	listed := len(r.items)
	for _, i := range s.shardsOf(req.MemberID) {
		if i >= len(s.Shards) {
			break
		}
		sh := &s.Shards[i]
		switch {
		case sh.Holder == nil && sh.Target == req.MemberID:
			if s.RecoverUntil == 0 {
				return false // a grant is due
			}
		case !sh.holds(req.MemberID, m):
		case sh.RevokedAt != 0:
			if !r.owned(i) {
				return false // a release is due
			}
		case sh.Target != req.MemberID:
			return false // a telling is due
		case r.owned(i):
			listed--
		case s.RecoverUntil == 0:
			return false // the answer would list it
		}
	}
	return listed == 0
}

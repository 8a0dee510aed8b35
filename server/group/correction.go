package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// outOfDate says whether the member has metadata that the group cannot have given it, or not
// yet the one that an open correction round asks for.
func (t *Turn) outOfDate(req *protocol.HeartbeatRequest) bool {
	s := t.State()
	return req.MetadataVersion > s.MetadataVersion ||
		s.Correction != nil && req.MetadataVersion != s.Correction.TargetMV
}

// sync opens or goes on with a correction round: every member reports once more under the
// group's own metadata version. The answer tells nothing and grants nothing.
func (t *Turn) sync(req *protocol.HeartbeatRequest, m *Member, now protocol.Instant) protocol.HeartbeatResponse {
	s := t.State()
	if s.Correction == nil {
		s = t.edit(now)
		s.Correction = &Correction{TargetMV: s.MetadataVersion, HighestMV: req.MetadataVersion, Acknowledged: map[string]bool{}}
	}
	if req.MetadataVersion > s.Correction.HighestMV {
		t.edit(now).Correction.HighestMV = req.MetadataVersion
	}
	if t.State().Correction.Acknowledged[req.MemberID] {
		delete(t.edit(now).Correction.Acknowledged, req.MemberID)
	}
	return t.syncAnswer(req, m)
}

// acknowledgeRound counts the request in the open round, if there is one, and closes the round
// once every member has acknowledged and nothing is being moved.
func (t *Turn) acknowledgeRound(req *protocol.HeartbeatRequest, now protocol.Instant) {
	s := t.State()
	if s.Correction == nil {
		return
	}
	if !s.Correction.Acknowledged[req.MemberID] {
		s = t.edit(now)
		s.Correction.Acknowledged[req.MemberID] = true
	}
	for id, m := range s.Members {
		if m.State == Active && !s.Correction.Acknowledged[id] {
			return
		}
	}
	if !s.moving() {
		t.edit(now).Correction = nil
	}
}

// moving says whether any shard is in other hands than its target's.
func (s *State) moving() bool {
	for i := range s.Shards {
		if sh := &s.Shards[i]; sh.Holder != nil && !s.settledShard(sh) {
			return true
		}
	}
	return false
}

// settledShard says whether the shard is held by the running session of its target.
func (s *State) settledShard(sh *Shard) bool {
	if sh.Holder == nil || sh.Holder.MemberID != sh.Target {
		return false
	}
	m := s.session(sh.Holder)
	return m != nil && sh.held(sh.Target, m)
}

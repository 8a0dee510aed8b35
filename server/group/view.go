package group

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// GroupState is the state as views show it.
func GroupState(s *State) protocol.GroupState {
	live, held, unowned := ProgressOf(s, s.Assignable)
	switch {
	case !live:
		return protocol.GroupEmpty
	case len(held)+len(unowned) > 0:
		return protocol.GroupReconciling
	default:
		return protocol.GroupStable
	}
}

// hands is what the sessions of one member have.
type hands struct {
	target   []int
	held     []int // read, as far as the group knows: granted and not told to let go
	granted  []int // of these, the ones that are still its target
	revoking []int // told to let go, or left by a session that is over
	deadline protocol.Instant
}

func allHands(s *State) map[string]*hands {
	all := make(map[string]*hands, len(s.Members))
	of := func(id string) *hands {
		h := all[id]
		if h == nil {
			h = &hands{}
			all[id] = h
		}
		return h
	}
	for id := range s.Members {
		of(id)
	}
	for i := range s.Shards {
		sh := &s.Shards[i]
		if sh.Target != "" {
			h := of(sh.Target)
			h.target = append(h.target, i)
		}
		if sh.Holder == nil {
			continue
		}
		h := of(sh.Holder.MemberID)
		if sh.Orphaned || sh.RevokedAt != 0 {
			h.revoking = append(h.revoking, i)
		} else {
			h.held = append(h.held, i)
			if sh.Target == sh.Holder.MemberID {
				h.granted = append(h.granted, i)
			}
		}
		if sh.Deadline != 0 && (h.deadline == 0 || sh.Deadline < h.deadline) {
			h.deadline = sh.Deadline
		}
	}
	return all
}

// Members lists the members for monitoring, sorted by id. memberEpoch is GE for an ACTIVE
// member, −1 for one that leaves or is away, and the join epoch of a session that is over.
// leases gives lease ends. Observations (progress, capacity) are merged by the caller.
func Members(s *State, leases Leases) []protocol.MemberView {
	all := allHands(s)
	lease := s.Config().MemberLease
	views := make([]protocol.MemberView, 0, len(s.Members))
	for _, id := range sortedMembers(s) {
		m, h := s.Members[id], all[id]
		v := protocol.MemberView{
			MemberID: id, MemberName: m.Name, State: protocol.MemberState(m.State),
			MemberEpoch: m.JoinEpoch, MetadataVersion: m.JoinMV,
			CurrentAssignment: protocol.Shards(h.held), GrantedAssignment: protocol.Shards(h.granted), Revoking: protocol.Shards(h.revoking),
			LastHeartbeatAt: m.Since.Time(), MemberLeaseExpiresAt: m.Since.Time(),
			RebalanceTimeoutMs: s.Spec.RebalanceTimeoutMs, ShardProgress: []protocol.ShardProgress{},
		}
		if v.MemberName == "" {
			v.MemberName = id
		}
		switch m.State {
		case Active:
			v.MemberEpoch, v.MetadataVersion = s.GroupEpoch, s.MetadataVersion
		case Leaving, Away:
			v.State, v.MemberEpoch = protocol.MemberLeaving, protocol.EpochLeave
		case Expired, Fenced:
		}
		if end, ok := leases[Row(id, m.JoinEpoch)]; ok {
			v.MemberLeaseExpiresAt, v.LastHeartbeatAt = end.Time(), end.Add(-lease).Time()
		}
		if h.deadline != 0 {
			at := h.deadline.Time()
			v.RebalanceDeadlineAt = &at
		}
		views = append(views, v)
	}
	return views
}

// AssignmentsOf is the target, current and revoking ownership of every member, and the texts of
// violated invariants (none in a correct state).
func AssignmentsOf(s *State) protocol.Assignments {
	out := protocol.Assignments{
		TargetAssignment: map[string][]protocol.Shard{}, CurrentAssignments: map[string][]protocol.Shard{},
		RevokeProgress: map[string][]protocol.Shard{}, InvariantViolations: slices.Concat([]string{}, Check(s)),
	}
	for id, h := range allHands(s) {
		m := s.Members[id]
		if m != nil && m.State.targeted() {
			out.TargetAssignment[id] = protocol.Shards(h.target)
		}
		if m != nil {
			out.CurrentAssignments[id] = protocol.Shards(h.held)
		}
		if len(h.revoking) > 0 {
			out.RevokeProgress[id] = protocol.Shards(h.revoking)
		}
	}
	if out.InvariantViolations == nil {
		out.InvariantViolations = []string{}
	}
	return out
}

// Summaries counts the shards of each member: its targets, listing everyone that is assigned
// to, and what it holds, listing only who holds something.
func Summaries(s *State) (target, current map[string]int) {
	target, current = map[string]int{}, map[string]int{}
	for id, h := range allHands(s) {
		if m := s.Members[id]; m != nil && m.State.targeted() {
			target[id] = len(h.target)
		}
		if len(h.held) > 0 {
			current[id] = len(h.held)
		}
	}
	return target, current
}

package stream

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Pending says whether the state calls for a pass now: what !Plan(s, now).Empty() says, without
// building the steps. A replica that does not do the periodic work asks after every batch of
// commands, also while a change of thousands of shards runs elsewhere.
func Pending(s *State, now protocol.Instant) bool {
	switch {
	case s.Deleting:
		return s.highest() > 0
	case pendingSide(s, now):
		return true
	case s.Active != nil:
		return pendingPhase(s)
	}
	return false
}

// pendingSide mirrors planSide.
func pendingSide(s *State, now protocol.Instant) bool {
	if now < s.RetryAt || s.span() == 0 || !s.HoldDirty && !s.makesGroups() && len(s.Removing) == 0 {
		return false
	}
	r := s.Active
	return r == nil || r.Phase != protocol.PhaseProvisioning || now >= r.since().Add(provisioningFirst)
}

func (s *State) hasUnreadyGroup() bool {
	for _, g := range s.Groups {
		if !g.Ready {
			return true
		}
	}
	return false
}

// pendingPhase mirrors planPhase.
func pendingPhase(s *State) bool {
	r := s.Active
	switch r.Phase {
	case protocol.PhaseProvisioning:
		return max(r.Old, r.To.Count) > 0
	case protocol.PhaseSealing, protocol.PhaseDraining:
		return r.Old > 0
	case protocol.PhaseActivating:
		return true
	case protocol.PhaseOpening:
		return r.To.Count > 0 || r.removes()
	case protocol.PhaseDrainingRemoved:
		return len(r.Reopen) > 0 || len(r.Remake) > 0 && len(s.Groups) > 0 || r.removes() || r.looks(r.To.Count)
	case protocol.PhaseConverging:
		return len(r.Reopen) > 0 || r.looks(max(r.Old, r.To.Count))
	case protocol.PhaseRetiring:
		return r.removes()
	case protocol.PhaseRollingBack:
		return r.TooLate || !r.Released0 || max(r.Old, r.To.Count) > 1
	default: // a resharding that has ended is not active
		return false
	}
}

// removes says whether removed lists anything.
func (r *Resharding) removes() bool {
	for i := r.To.Count; i < r.Old; i++ {
		if !slices.Contains(r.Skip, i) {
			return true
		}
	}
	return false
}

// looks says whether surveySteps lists anything below count.
func (r *Resharding) looks(count int) bool {
	for i := range count {
		if !slices.Contains(r.Skip, i) {
			return true
		}
	}
	return false
}

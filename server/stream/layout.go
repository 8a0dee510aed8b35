package stream

import "github.com/redisstream/terraform-provider-redisstream/sdk/protocol"

// Layout is (epoch, shard count): what shards, routing and producers carry.
type Layout struct {
	Epoch int64 `json:"epoch"`
	Count int   `json:"count"`
}

// Assignable is how many shards the groups' members are to be assigned in the present phase
// (1.5: old ∪ new from OPENING on, the new layout from CONVERGING on).
func (s *State) Assignable() int {
	r := s.Active
	if r == nil {
		return s.Layout.Count
	}
	switch r.Phase {
	case protocol.PhaseOpening, protocol.PhaseDrainingRemoved:
		return max(r.Old, r.To.Count)
	default:
		return s.Layout.Count
	}
}

// span is how many indexes exist in either layout: those below it.
func (s *State) span() int {
	if r := s.Active; r != nil {
		return max(s.Layout.Count, r.Old, r.To.Count)
	}
	return s.Layout.Count
}

// highest is the highest shard count that anything in the state knows of.
func (s *State) highest() int { return max(s.HighCount, s.span()) }

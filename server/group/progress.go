package group

// ProgressOf tells, for a layout of count shards: whether somebody can read shards, the shards
// ≥ count that are not FREE, and the shards < count that their target does not hold yet.
func ProgressOf(s *State, count int) (liveMember bool, heldAbove, unowned []int) {
	for _, m := range s.Members {
		if m.State == Active {
			liveMember = true
			break
		}
	}
	for i := max(count, 0); i < len(s.Shards); i++ {
		if s.Shards[i].Holder != nil {
			heldAbove = append(heldAbove, i)
		}
	}
	for i := range count {
		if i >= len(s.Shards) || !s.settledShard(&s.Shards[i]) {
			unowned = append(unowned, i)
		}
	}
	return liveMember, heldAbove, unowned
}

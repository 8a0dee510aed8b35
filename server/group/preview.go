package group

import (
	"maps"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Live counts the members that are active and whose lease has not ended.
func Live(s *State, leases Leases, now protocol.Instant) int {
	n := 0
	for id, m := range s.Members {
		if m.State == Active && leases[Row(id, m.JoinEpoch)] > now {
			n++
		}
	}
	return n
}

// Affected lists the members that lose or gain a shard when count shards are assigned, sorted:
// the assignment is computed as it would be, on a turn that is thrown away.
func Affected(s *State, count int, now protocol.Instant) []string {
	t := Begin(s)
	t.SetAssignable(count, now)
	before, after := s, t.State()
	ids := map[string]bool{}
	for i := range max(len(before.Shards), len(after.Shards)) {
		was, is := "", ""
		if i < len(before.Shards) {
			was = before.Shards[i].Target
		}
		if i < len(after.Shards) {
			is = after.Shards[i].Target
		}
		if was != is {
			ids[was], ids[is] = true, true
		}
	}
	delete(ids, "")
	return slices.Sorted(maps.Keys(ids))
}

// Package assign computes target assignments: sticky, balanced and with the fewest moves that
// any balanced assignment needs. Pure: no I/O, no clock, no randomness.
package assign

import (
	"cmp"
	"slices"
)

// Balance assigns shards 0..shardCount-1 to members (ids; any order, no duplicates).
//
// prev[i] is the member that shard i was assigned to before, "" for none; it may be shorter
// or longer than shardCount. The result has an entry for every shard; all are "" when there is
// no member. Guarantees:
//
//   - balanced: the loads of any two members differ by at most 1;
//   - sticky: the number of shards whose previous owner is a member and who lose it is the
//     smallest that any balanced assignment has;
//   - deterministic: equal input gives equal output, whatever the order of members.
//
// Why the moves are fewest: of n shards and m members, n mod m members end with one shard more
// than the others. A member loses what it has above its quota, and a larger quota spares a
// loss only to a member that has that much; so the larger quotas go to the fullest.
func Balance(members []string, shardCount int, prev []string) []string {
	next := make([]string, max(shardCount, 0))
	if len(members) == 0 || shardCount <= 0 {
		return next
	}

	ids := slices.Sorted(slices.Values(members))
	ordinal := make(map[string]int, len(ids))
	for i, id := range ids {
		ordinal[id] = i
	}

	load := make([]int, len(ids)) // shards that each member has from before
	owner := make([]int, shardCount)
	for i := range owner {
		owner[i] = -1
		if i >= len(prev) || prev[i] == "" {
			continue
		}
		if m, ok := ordinal[prev[i]]; ok {
			owner[i] = m
			load[m]++
		}
	}

	quota := quotas(load, shardCount)

	// The highest shards go first from who has too many.
	for i := shardCount - 1; i >= 0; i-- {
		if m := owner[i]; m >= 0 && load[m] > quota[m] {
			owner[i] = -1
			load[m]--
		}
	}

	fill(owner, load, quota)
	for i, m := range owner {
		next[i] = ids[m]
	}
	return next
}

// quotas says how many shards each member ends with, given how many it has.
func quotas(load []int, shardCount int) []int {
	byLoad := make([]int, len(load))
	for m := range byLoad {
		byLoad[m] = m
	}
	slices.SortFunc(byLoad, func(a, b int) int {
		return cmp.Or(cmp.Compare(load[b], load[a]), cmp.Compare(a, b))
	})
	quota := make([]int, len(load))
	for rank, m := range byLoad {
		quota[m] = shardCount / len(load)
		if rank < shardCount%len(load) {
			quota[m]++
		}
	}
	return quota
}

// fill gives every shard without owner, in ascending order, to the members that are short of
// their quota: in turn, the emptiest first.
func fill(owner, load, quota []int) {
	var short []int
	for m := range load {
		if load[m] < quota[m] {
			short = append(short, m)
		}
	}
	slices.SortFunc(short, func(a, b int) int {
		return cmp.Or(cmp.Compare(load[a], load[b]), cmp.Compare(a, b))
	})
	turn := 0
	for i := range owner {
		if owner[i] >= 0 {
			continue
		}
		if turn == len(short) {
			short = slices.DeleteFunc(short, func(m int) bool { return load[m] == quota[m] })
			turn = 0
		}
		m := short[turn]
		owner[i] = m
		load[m]++
		turn++
	}
}

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
func Balance(members []string, shardCount int, prev []string) []string {
	return BalanceInUse(members, shardCount, prev, nil)
}

// BalanceInUse is Balance for shards of which some are in use: inUse[i] says that prev[i] reads
// shard i now, so that taking it away interrupts somebody. It may be shorter than prev. The
// number of shards in use that are taken away is the smallest that any balanced assignment
// has, and among these assignments the number of all shards taken away is the smallest.
//
// Why: of n shards and m members, n mod m members end with one shard more than the others. A
// member loses what it has above its quota, and a larger quota spares a loss only to a member
// that has that much. So the larger quotas go first to whom they spare a shard in use, then to
// the fullest.
func BalanceInUse(members []string, shardCount int, prev []string, inUse []bool) []string {
	next := make([]string, max(shardCount, 0))
	if len(members) == 0 || shardCount <= 0 {
		return next
	}

	ids := slices.Sorted(slices.Values(members))
	ordinal := make(map[string]int, len(ids))
	for i, id := range ids {
		ordinal[id] = i
	}

	used := func(i int) bool { return i < len(inUse) && inUse[i] }
	load := make([]int, len(ids)) // shards that each member has from before
	busy := make([]int, len(ids)) // of these, in use
	owner := make([]int, shardCount)
	for i := range owner {
		owner[i] = -1
		if i >= len(prev) || prev[i] == "" {
			continue
		}
		if m, ok := ordinal[prev[i]]; ok {
			owner[i] = m
			load[m]++
			if used(i) {
				busy[m]++
			}
		}
	}

	// From who has too many go first the shards that are not in use, then the highest.
	quota := quotas(load, busy, shardCount)
	for _, also := range []bool{false, true} {
		for i := shardCount - 1; i >= 0; i-- {
			if m := owner[i]; m >= 0 && load[m] > quota[m] && used(i) == also {
				owner[i] = -1
				load[m]--
			}
		}
	}

	fill(owner, load, quota)
	for i, m := range owner {
		next[i] = ids[m]
	}
	return next
}

// quotas says how many shards each member ends with, given how many it has.
func quotas(load, busy []int, shardCount int) []int {
	least := shardCount / len(load)
	spared := func(m int) int { return min(max(busy[m]-least, 0), 1) }
	order := make([]int, len(load))
	for m := range order {
		order[m] = m
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(spared(b), spared(a)), cmp.Compare(load[b], load[a]), cmp.Compare(a, b))
	})
	quota := make([]int, len(load))
	for rank, m := range order {
		quota[m] = least
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

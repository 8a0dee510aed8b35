// Package assign computes target assignments: sticky, balanced and with the fewest moves that
// any balanced assignment needs. Pure: no I/O, no clock, no randomness.
package assign

// Balance assigns shards 0..shardCount-1 to members (ids; any order, no duplicates).
//
// prev[i] is the member that shard i was assigned to before, "" for none; it may be shorter
// or longer than shardCount. The result has an entry for every shard; all are "" when there is
// no member. Guarantees:
//
//   - balanced: the loads of any two members differ by at most 1;
//   - sticky: the number of shards whose previous owner is a member and who lose it is the
//     smallest that any balanced assignment has;
//   - deterministic: equal input gives equal output.
func Balance(members []string, shardCount int, prev []string) []string {
	panic("not built yet")
}

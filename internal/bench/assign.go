package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/server/assign"
)

// assignment measures the computation of a target assignment: from nothing, and after one join
// or leave. The number of moves is checked against the least that balance allows.
func (b *bench) assignment(context.Context) ([]result, error) {
	const shards, members, times = 10_000, 1_000, 21
	ids := make([]string, members+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("member-%04d", i)
	}
	full := assign.Balance(ids[:members], shards, nil)

	var out []result
	for _, c := range []struct {
		name    string
		members []string
		prev    []string
		moves   int // the least: what the newcomer gets, what the leaver had
	}{
		{"from nothing", ids[:members], nil, shards},
		{"one join", ids, full, shards / (members + 1)},
		{"one leave", ids[1:members], full, shards / members},
	} {
		var took []time.Duration
		var got []string
		for range times {
			begin := time.Now()
			got = assign.Balance(c.members, shards, c.prev)
			took = append(took, time.Since(begin))
		}
		moves := 0
		for i, m := range got {
			if c.prev == nil || c.prev[i] != m {
				moves++
			}
		}
		if moves > c.moves {
			return nil, fmt.Errorf("assign, %s: %d moves, %d would do", c.name, moves, c.moves)
		}
		// The bare twin walks the same shards once and writes an owner for each.
		var bare []time.Duration
		for range times {
			begin := time.Now()
			owners := slices.Clone(got)
			for i := range owners {
				owners[i] = c.members[i%len(c.members)]
			}
			bare = append(bare, time.Since(begin))
		}
		out = append(out, within("assign 10,000 shards to 1,000 members, "+c.name, median(took), 5*time.Millisecond, median(bare)))
	}
	return out, nil
}

package main

import (
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// TestPlanFollowsFromTheSeed: the same seed makes the same choices, another one others, and every kind
// of thing happens within 200 changes.
func TestPlanFollowsFromTheSeed(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	differ := 0
	for n := 1; n <= 200; n++ {
		p := planOf(1, n)
		if again := planOf(1, n); p.String() != again.String() {
			t.Fatalf("change %d is %s and %s", n, p, again)
		}
		if p.String() != planOf(2, n).String() {
			differ++
		}
		if p.target < 1 || p.target > maxShards {
			t.Errorf("change %d goes to %d shards", n, p.target)
		}
		seen[string(p.policy.Strategy)+" "+string(p.policy.DrainScope)]++
		seen[string(p.policy.Retire)]++
		for _, f := range p.faults {
			if f.index < 0 || f.index >= howMany[f.victim] || f.lasts <= 0 || f.lasts > memberLease+2*time.Second {
				t.Errorf("change %d: fault %s", n, f)
			}
			what := "kill "
			if f.freeze {
				what = "freeze "
			}
			seen[what+string(f.victim)]++
		}
		if p.rollback != nil {
			seen["rollback"]++
		}
		if p.pause != nil {
			seen["pause"]++
		}
		seen["abandoned "+string(p.abandoned)]++
	}
	if differ < 190 {
		t.Errorf("only %d of 200 plans differ between two seeds", differ)
	}
	for _, what := range []string{
		"QUIESCE ALL", "QUIESCE REMOVED", "ONLINE ALL", "DELETE", "ARCHIVE", "kill coordinator", "kill producer", "kill consumer",
		"freeze coordinator", "freeze producer", "freeze consumer", "rollback", "pause", "abandoned ignored", "abandoned blocking",
	} {
		if seen[what] == 0 {
			t.Errorf("no %s in 200 changes: %v", what, seen)
		}
	}
}

// TestOrderWindow: only a change that moved keys without a promise excuses disorder.
func TestOrderWindow(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	span := func(p protocol.Phase, from, to int) protocol.PhaseSpan {
		end := at(to)
		return protocol.PhaseSpan{Phase: p, StartedAt: at(from), EndedAt: &end}
	}
	opened := []protocol.PhaseSpan{span(protocol.PhaseProvisioning, 1, 2), span(protocol.PhaseActivating, 2, 3), span(protocol.PhaseOpening, 3, 4)}
	to := at(35)
	for _, c := range []struct {
		name  string
		r     protocol.Resharding
		moved bool
		fails bool
	}{
		{"online", protocol.Resharding{Strategy: protocol.StrategyOnline, ToShardCount: 2, Phases: opened, OrderWindow: &protocol.TimeWindow{From: at(3), To: &to}}, true, false},
		{"online without a window", protocol.Resharding{Strategy: protocol.StrategyOnline, ToShardCount: 2, Phases: opened}, false, true},
		{"online, rolled back", protocol.Resharding{Strategy: protocol.StrategyOnline, ToShardCount: 2, Phases: opened[:2]}, false, false},
		{"quiesced, all", protocol.Resharding{Strategy: protocol.StrategyQuiesce, DrainScope: protocol.DrainAll, ToShardCount: 2, Phases: opened}, false, false},
		{"quiesced, all, with a window", protocol.Resharding{Strategy: protocol.StrategyQuiesce, DrainScope: protocol.DrainAll, ToShardCount: 2, Phases: opened, OrderWindow: &protocol.TimeWindow{From: at(3), To: &to}}, false, true},
		{"quiesced, removed", protocol.Resharding{Strategy: protocol.StrategyQuiesce, DrainScope: protocol.DrainRemoved, ToShardCount: 2, Phases: opened, OrderWindow: &protocol.TimeWindow{From: at(3), To: &to}}, true, false},
		{"a repair", protocol.Resharding{Strategy: protocol.StrategyOnline, FromShardCount: 2, ToShardCount: 2, Phases: opened}, false, false},
	} {
		w, moved, err := orderWindow(c.r)
		if moved != c.moved || (err != nil) != c.fails {
			t.Errorf("%s: %v, %v, %v", c.name, w, moved, err)
		}
		if moved && (w.From != at(3) || w.To != to) {
			t.Errorf("%s: window %v", c.name, w)
		}
	}
}

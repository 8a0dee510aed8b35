package stream_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// TestPendingOfAnyState compares Pending with Plan for states that need not be reachable.
func TestPendingOfAnyState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := anyState(rt)
		now := protocol.Instant(rapid.IntRange(0, 3000).Draw(rt, "now"))
		if got, want := stream.Pending(s, now), !stream.Plan(s, now).Empty(); got != want {
			rt.Fatalf("Pending says %t, Plan %t: %+v, active %+v", got, want, s, s.Active)
		}
	})
}

// TestPendingOfReachableStates does so for those that the machine comes to.
func TestPendingOfReachableStates(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		actions := m.actions()
		m.losses(actions)
		check := actions[""]
		actions[""] = func(rt *rapid.T) {
			check(rt)
			if got, want := stream.Pending(m.s, m.w.now), !stream.Plan(m.s, m.w.now).Empty(); got != want {
				rt.Fatalf("Pending says %t, Plan %t: %+v, active %+v", got, want, m.s, m.s.Active)
			}
		}
		rt.Repeat(actions)
	})
}

func anyState(rt *rapid.T) *stream.State {
	flag := func(what string) bool { return rapid.Bool().Draw(rt, what) }
	rarely := func(what string) bool { return rapid.IntRange(0, 9).Draw(rt, what) == 0 }
	number := func(what string) int { return rapid.IntRange(0, 3).Draw(rt, what) }
	indexes := func(what string) []int {
		return rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 3, rapid.ID).Draw(rt, what)
	}
	instant := func(what string) protocol.Instant {
		return protocol.Instant(rapid.SampledFrom([]int{0, 1000, 2000}).Draw(rt, what))
	}
	s := &stream.State{
		Prefix: "orders", Layout: stream.Layout{Epoch: 3, Count: number("count")}, LastEpoch: 4, HighCount: number("high"),
		Groups: map[string]*stream.GroupEntry{}, Deleting: rarely("deleting"), HoldDirty: rarely("hold"),
	}
	if flag("retries") {
		s.RetryAt, s.Retries = instant("retry at"), number("retries")
	}
	for _, name := range []string{"g", "h"} {
		if flag("group") {
			s.Groups[name] = &stream.GroupEntry{Ready: !rarely("unready")}
		}
	}
	if flag("rest") {
		return s
	}
	r := &stream.Resharding{
		ID: "r1", From: s.Layout, To: stream.Layout{Epoch: 4, Count: number("to")}, Old: number("old"),
		Policy: protocol.ReshardingPolicy{}.WithDefaults(),
		Phase: rapid.SampledFrom([]protocol.Phase{
			protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating, protocol.PhaseOpening,
			protocol.PhaseDrainingRemoved, protocol.PhaseConverging, protocol.PhaseRetiring, protocol.PhaseRollingBack, protocol.PhaseCompleted,
		}).Draw(rt, "phase"),
		Released0: flag("released"), TooLate: flag("too late"),
		Skip: indexes("skip"), Reopen: indexes("reopen"), Remake: indexes("remake"), Unfenced: indexes("unfenced"),
	}
	if flag("online") {
		r.Policy.Strategy = protocol.StrategyOnline
	}
	r.Phases = []stream.PhaseSpan{{Phase: r.Phase, Started: instant("since")}}
	s.Active = r
	return s
}

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// maxShards is the highest shard count of a run.
const maxShards = 64

// victims are processes that can be killed and frozen.
type victim string

const (
	coordinators victim = "coordinator"
	producers    victim = "producer"
	consumers    victim = "consumer"
)

// howMany of each there are.
var howMany = map[victim]int{coordinators: 3, producers: 2, consumers: 4}

// moment is when something happens: so long after the change was asked for (a rollback: accepted) or, when phase is given,
// after that phase was first seen; at the end of the change when it never is.
type moment struct {
	phase protocol.Phase
	after time.Duration
}

func (m moment) String() string {
	if m.phase == "" {
		return fmt.Sprintf("at %s", m.after)
	}
	return fmt.Sprintf("in %s + %s", m.phase, m.after)
}

// fault is a SIGKILL, or a SIGSTOP when freeze is set, and how long it lasts until the process is
// started again or goes on.
type fault struct {
	victim victim
	index  int
	freeze bool
	moment
	lasts time.Duration
}

func (f fault) String() string {
	what := "kill"
	if f.freeze {
		what = "freeze"
	}
	return fmt.Sprintf("%s %s %d %s for %s", what, f.victim, f.index, f.moment, f.lasts)
}

// abandonment is what a Redis consumer group that nobody reads does to a change.
type abandonment string

const (
	abandonedNone    abandonment = ""
	abandonedIgnored abandonment = "ignored"  // by name: it must not matter
	abandonedBlocks  abandonment = "blocking" // until the pause has lasted too long
)

// plan is one change and what happens meanwhile.
type plan struct {
	number    int
	target    int // when the stream has that count already, one more
	policy    protocol.ReshardingPolicy
	faults    []fault
	rollback  *moment
	pause     *moment // the operator's
	pauseFor  time.Duration
	resume    time.Duration // after the pause; 0: the operator leaves it to its deadline
	abandoned abandonment
}

func (p plan) String() string {
	parts := []string{fmt.Sprintf("→ %d %s/%s/%s", p.target, p.policy.Strategy, p.policy.DrainScope, p.policy.Retire)}
	if p.policy.PauseTimeoutMs < longPause.Milliseconds() {
		parts = append(parts, fmt.Sprintf("pauseTimeout %d ms", p.policy.PauseTimeoutMs))
	}
	for _, f := range p.faults {
		parts = append(parts, f.String())
	}
	if p.rollback != nil {
		parts = append(parts, "rollback "+p.rollback.String())
	}
	if p.pause != nil {
		parts = append(parts, fmt.Sprintf("operator's pause %s for %s, resume after %s", p.pause, p.pauseFor, p.resume))
	}
	if p.abandoned != abandonedNone {
		parts = append(parts, string(p.abandoned)+" abandoned group")
	}
	return strings.Join(parts, "; ")
}

const longPause = 20 * time.Second

// planOf decides everything about change number n of a run, from the seed and n alone: whatever
// happened before, the same seed makes the same choices.
func planOf(seed uint64, n int) plan {
	r := rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // repeatable on purpose; n is not negative
	chance := func(percent int) bool { return r.IntN(100) < percent }
	between := func(from, to time.Duration) time.Duration {
		return (from + time.Duration(r.Int64N(int64(to-from)))).Round(time.Millisecond)
	}
	when := func() *moment {
		if chance(50) {
			return &moment{after: between(0, 250*time.Millisecond)}
		}
		phases := []protocol.Phase{
			protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating,
			protocol.PhaseOpening, protocol.PhaseDrainingRemoved, protocol.PhaseConverging, protocol.PhaseRetiring,
		}
		return &moment{phase: phases[r.IntN(len(phases))], after: between(0, 20*time.Millisecond)}
	}
	// stuck keeps a group from draining for a while from the beginning on: most changes are decided
	// within some ten ms otherwise.
	stuck := func(p *plan, lasts time.Duration) {
		p.faults = append(p.faults, fault{victim: consumers, index: r.IntN(howMany[consumers]), freeze: true, lasts: lasts})
	}

	p := plan{number: n, target: 1 + r.IntN(maxShards), policy: protocol.ReshardingPolicy{
		Strategy: protocol.StrategyOnline, DrainScope: protocol.DrainAll, Retire: protocol.RetireDelete,
		PauseTimeoutMs: longPause.Milliseconds(), DrainTimeoutMs: time.Minute.Milliseconds(),
	}}
	if chance(50) {
		p.target = 1 + r.IntN(12)
	}
	if chance(65) {
		p.policy.Strategy = protocol.StrategyQuiesce
	}
	if chance(30) {
		p.policy.DrainScope = protocol.DrainRemoved
	}
	if chance(30) {
		p.policy.Retire = protocol.RetireArchive
	}
	if chance(12) {
		timeout := between(100*time.Millisecond, 800*time.Millisecond)
		p.policy.PauseTimeoutMs = timeout.Milliseconds()
		if chance(60) {
			stuck(&p, timeout+between(0, 400*time.Millisecond))
		}
	}
	if chance(25) {
		p.policy.OnTimeout = protocol.OnTimeoutFail
	}
	for range []int{0, 0, 1, 1, 1, 1, 1, 2, 2, 3}[r.IntN(10)] {
		f := fault{victim: []victim{coordinators, coordinators, consumers, consumers, producers}[r.IntN(5)], freeze: chance(35), moment: *when(), lasts: between(20*time.Millisecond, 700*time.Millisecond)}
		if chance(10) { // longer than a lease and an effect lease
			f.lasts = between(memberLease, memberLease+time.Second)
		}
		f.index = r.IntN(howMany[f.victim])
		p.faults = append(p.faults, f)
	}
	if chance(4) { // nobody is left to end the change
		all := *when()
		for i := range howMany[coordinators] {
			p.faults = append(p.faults, fault{victim: coordinators, index: i, moment: all, lasts: between(100*time.Millisecond, 1500*time.Millisecond)})
		}
	}
	if chance(15) {
		p.rollback = &moment{after: between(0, 20*time.Millisecond)}
		if chance(60) {
			stuck(&p, between(300*time.Millisecond, time.Second))
			p.rollback = &moment{phase: protocol.PhaseDraining, after: between(0, 200*time.Millisecond)}
		}
	}
	if chance(10) {
		p.pause, p.pauseFor = when(), between(300*time.Millisecond, 1500*time.Millisecond)
		if chance(60) {
			p.resume = between(50*time.Millisecond, 600*time.Millisecond)
		}
	}
	switch {
	case chance(8):
		p.abandoned = abandonedIgnored
	case chance(4):
		p.abandoned = abandonedBlocks
		p.policy.PauseTimeoutMs = between(500*time.Millisecond, 1500*time.Millisecond).Milliseconds()
		p.policy.DrainTimeoutMs = p.policy.PauseTimeoutMs
	}
	return p
}

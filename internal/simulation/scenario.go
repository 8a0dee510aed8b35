package simulation

import (
	"math/rand/v2"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// kind is what a run is about. Most faults of a rule show soonest where little else happens.
type kind int

const (
	membershipOnly kind = iota // no producers, no resharding
	reshardingOnly             // stable members, reshardings under faults
	ownershipOnly              // entries, owners that change, zombies
	everything
	lostHistory // Redis loses writes and shows the same identity: only I4 is asserted
)

func (k kind) String() string {
	return [...]string{"membership", "resharding", "ownership", "everything", "lost history"}[k]
}

// scenario is what a seed stands for: who takes part and which faults there are.
type scenario struct {
	kind kind

	replicas, members, producers, groups int
	reference                            int // members without an incarnation
	nodes                                int
	shards                               int // at the start
	maxShards                            int
	reshardings                          int

	spec protocol.GroupSpec

	faultsEnd protocol.Instant // after the start; then the network is good and all is repaired
	bound     protocol.Instant // after faultsEnd, all must be settled

	delay, loss, dup  float64 // of a message between a client and a replica
	freeze            float64 // of a command of a replica to Redis: sent much later
	lost              float64 // of a command, or of its reply
	crashes           int     // of replicas
	replicaFreezes    int
	kills             int // of member processes
	processFreezes    int
	leaves            int
	failovers         int
	clockSteps        int
	skew              protocol.Instant // clocks of nodes are apart by up to this
	blackout          bool             // for a while there is no coordinator at all
	operator          bool             // pauses and resumes
	lateGroup         bool             // a group is registered while reshardings run
	duplicates        bool             // a second process under a member id
	slowHandlers      float64
	online            float64 // share of ONLINE reshardings
	rollbacks         float64
	cuts              int // of processes from the coordinator
	stalls            int // times at which no process does anything while a resharding waits
	pauseMs, drainMs  int64
	plainProducers    int
	lostConfirmations float64
	betrayal          float64 // a confirming replica is not the one that is promoted
	silent            bool
}

func newScenario(rng *rand.Rand) scenario {
	pick := func(lo, hi int) int { return lo + rng.IntN(hi-lo+1) }
	maybe := func(p float64) bool { return rng.Float64() < p }
	sc := scenario{
		kind: [...]kind{membershipOnly, reshardingOnly, ownershipOnly, everything, membershipOnly, reshardingOnly, ownershipOnly, everything, reshardingOnly, lostHistory}[rng.IntN(10)], replicas: pick(1, 3), members: pick(2, 3), groups: 1, nodes: pick(1, 3),
		shards: pick(1, 4), maxShards: 6, faultsEnd: protocol.Instant(pick(30, 70)) * 1000, bound: 240_000,
		spec:    protocol.GroupSpec{MemberLeaseMs: 15000, HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 60000},
		pauseMs: 20_000, drainMs: 120_000,
	}
	if maybe(0.3) {
		sc.spec.RebalanceTimeoutMs = 5000
	}
	if maybe(0.7) { // intensity of the network's faults
		sc.delay, sc.loss, sc.dup = 0.05*rng.Float64(), 0.06*rng.Float64(), 0.05*rng.Float64()
		sc.freeze, sc.lost = 0.03*rng.Float64(), 0.03*rng.Float64()
	}
	if maybe(0.35) { // a storm
		sc.delay, sc.loss, sc.dup = 0.2*rng.Float64(), 0.15*rng.Float64(), 0.3*rng.Float64()
	}
	if maybe(0.3) {
		sc.skew = 3000
	}
	sc.lostConfirmations, sc.betrayal = 0.1, 0.5*float64(rng.IntN(2))
	switch sc.kind {
	case membershipOnly:
		sc.members = pick(2, 4)
		sc.reference = pick(0, 1)
		sc.kills, sc.processFreezes, sc.leaves, sc.cuts = pick(0, 3), pick(0, 2), pick(0, 4), pick(0, 2)
		sc.duplicates = maybe(0.25)
		sc.failovers, sc.clockSteps = pick(0, 2), pick(0, 1)
		sc.replicaFreezes, sc.crashes = pick(0, 2), pick(0, 1)
		sc.slowHandlers = 0.1
	case reshardingOnly:
		sc.members, sc.producers = pick(1, 2), pick(1, 2)
		sc.groups = pick(1, 2)
		sc.reshardings = pick(1, 3)
		sc.replicaFreezes, sc.crashes, sc.failovers = pick(0, 3), pick(0, 1), pick(0, 2)
		sc.blackout, sc.operator, sc.lateGroup = maybe(0.45), maybe(0.2), maybe(0.25)
		sc.online, sc.rollbacks = 0.25, 0.3
		sc.stalls = pick(0, 3)
		sc.plainProducers = pick(0, 4) / 4
		sc.freeze *= 3
	case ownershipOnly:
		sc.shards, sc.producers = pick(1, 2), 1
		sc.kills, sc.processFreezes, sc.leaves = pick(0, 2), pick(0, 3), pick(0, 2)
		sc.failovers, sc.cuts = pick(0, 1), pick(0, 1)
		sc.slowHandlers = 0.05
	case lostHistory:
		sc.replicas, sc.silent = 3, true
		sc.kills, sc.leaves, sc.failovers, sc.members, sc.shards = pick(4, 8), pick(4, 8), 4, 4, 4
		sc.loss = 0.2
	case everything:
		sc.producers, sc.reshardings = pick(1, 3), pick(1, 2)
		sc.kills, sc.processFreezes, sc.leaves = pick(0, 1), pick(0, 1), pick(0, 1)
		sc.replicaFreezes, sc.crashes, sc.failovers = pick(0, 1), pick(0, 1), pick(0, 1)
		sc.operator, sc.lateGroup = maybe(0.1), maybe(0.1)
		sc.online, sc.rollbacks = 0.3, 0.2
		sc.slowHandlers = 0.02
	}
	return sc
}

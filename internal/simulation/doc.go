// Package simulation runs members, producers, replicas of the coordinator and a modeled Redis
// together in virtual time, from one seed, and asserts the invariants of the protocol after every
// step. The decisions are the real ones: server/aggregate with server/group and server/stream
// decides for the replicas, internal/membership for the members, internal/appendflow for the
// producers. What lies between them (the actor's loop, passes, the reader of a shard, the
// network) is modeled here, and so is Redis (redismodel).
//
// A run has no goroutine, reads no clock and iterates no map unsorted: a seed repeats it exactly.
//
//	go test ./internal/simulation -run TestSimulation -seed=N -show
//
// repeats one seed and prints what happened. Seeded bugs (testdata/bugs.json) are faults put into
// the sources by a build overlay, one at a time; the simulation has to catch each.
package simulation

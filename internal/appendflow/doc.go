// Package appendflow is the producer's half of the resharding protocol (section 1.6 of
// docs/protocol/resharding.md) as a state machine: which entry goes to which shard under which
// layout, what a refusal means, and what is done about it. It holds no clock, socket or
// goroutine, so that a simulator can drive it as well as the producer does.
//
// What it keeps:
//
//   - Entries of one key are sent in the order in which they were pushed. A shard has one
//     batch in flight at a time, and what was refused goes back before what came after it.
//   - No batch is sent under a new layout before every batch under the old one was answered.
//   - Nothing that may have landed is sent again: its entries end with ErrOutcomeUnknown.
//   - A pause ends by itself: at its deadline the producer asks shard 0 what is in force and
//     brings it to the shards that it needs, with no coordinator alive.
//
// Duties of the driver: call Step after Push and whenever something happened, at the latest at
// Wake; carry out the actions; answer each Send, Refresh, Look, Resolve and Bring with exactly
// one input. Instants are durations since some start, and never go back.
package appendflow

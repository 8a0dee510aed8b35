package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Turn applies a batch of inputs to one group. The state that it began with is not modified;
// it is copied at the first change. Inputs are applied one after the other, and each answer is
// that of its own application (rule C7). Nothing may be answered before State and Rows have
// been committed, or proven current when nothing changed (rule C6).
type Turn struct {
	base *State
	next *State // nil until something changed
	rows Rows
}

// Begin starts a turn on s.
func Begin(s *State) *Turn { return &Turn{base: s} }

// State is the group as it stands after the inputs so far. Read only.
func (t *Turn) State() *State {
	if t.next != nil {
		return t.next
	}
	return t.base
}

// Changed says whether the state differs from the one that the turn began with.
func (t *Turn) Changed() bool { return t.next != nil }

// Rows is what the turn does to lease rows.
func (t *Turn) Rows() Rows { return t.rows }

// Heartbeat decides one heartbeat that has passed the checks of its form (contract rows 1–3).
// leases may be stale; whatever is decided on an ended or quiet row is put into Rows.Check.
func (t *Turn) Heartbeat(req *protocol.HeartbeatRequest, now protocol.Instant, leases Leases) protocol.HeartbeatResponse {
	panic("not built yet")
}

// Tick expires sessions whose rows have ended, fences at deadlines, frees orphans whose rows
// have ended, writes missing rows of sessions that are not over, and prunes records (S11).
// Members in present have a request in the same batch and are not expired by it (C7).
func (t *Turn) Tick(now protocol.Instant, leases Leases, present map[string]bool) {
	panic("not built yet")
}

// SetAssignable changes how many shards are assigned (a phase of a resharding). Shards that
// leave stay with their holders until these have let go; GE and MV rise.
func (t *Turn) SetAssignable(n int, now protocol.Instant) {
	panic("not built yet")
}

// SetSpec changes the timing of the group.
func (t *Turn) SetSpec(spec protocol.GroupSpec, now protocol.Instant) {
	panic("not built yet")
}

// Recover is rule S12, after Redis lost writes: highest is the highest of GE, MV and ownership
// counter that this replica has ever seen of the group (zero values where unknown).
func (t *Turn) Recover(highest Epochs, now protocol.Instant, leases Leases) {
	panic("not built yet")
}

// Epochs are the numbers of a group that only grow.
type Epochs struct{ GroupEpoch, MetadataVersion, OwnershipCounter int64 }

// Settled says whether the answer to req would equal what req lists (rule 4.8): such a request
// may be held.
func Settled(s *State, req *protocol.HeartbeatRequest) bool {
	panic("not built yet")
}

// Next is the earliest instant at which Tick may have something to do, 0 for none.
func Next(s *State, leases Leases) protocol.Instant {
	panic("not built yet")
}

// ProgressOf tells, for a layout of count shards: whether somebody can read shards, the shards
// ≥ count that are not FREE, and the shards < count that their target does not hold yet.
func ProgressOf(s *State, count int) (liveMember bool, heldAbove, unowned []int) {
	panic("not built yet")
}

// GroupState is the state as views show it.
func GroupState(s *State) protocol.GroupState {
	panic("not built yet")
}

// Members, Assignments and Summaries are views for monitoring; memberEpoch is GE for an ACTIVE
// member. leases gives lease ends. Observations (progress, capacity) are merged by the caller.
func Members(s *State, leases Leases) []protocol.MemberView { panic("not built yet") }

// AssignmentsOf is the target, current and revoking ownership of every member, and the texts of
// violated invariants (none in a correct state).
func AssignmentsOf(s *State) protocol.Assignments { panic("not built yet") }

// Check returns every violated structural invariant of s: a shard with a holder that has no
// such session and is not orphaned, a target that is no member, an imbalance, and so on. The
// simulation and the engine's self-check call it.
func Check(s *State) []string { panic("not built yet") }

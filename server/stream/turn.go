package stream

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// GroupProgress is what a resharding needs to know of one of the stream's groups, for the
// layout that it goes to.
type GroupProgress struct {
	Group      string
	LiveMember bool  // somebody can read shards
	HeldAbove  []int // shards that the new layout does not have and that are not free yet
	Unowned    []int // shards of the new layout that their target does not hold yet
}

// Turn applies a batch of inputs to one stream; see group.Turn for the contract. Refusals are
// *protocol.Error and change nothing.
type Turn struct {
	base *State
	next *State
}

// Begin starts a turn on s.
func Begin(s *State) *Turn { return &Turn{base: s} }

// State is the stream as it stands after the inputs so far. Read only.
func (t *Turn) State() *State {
	if t.next != nil {
		return t.next
	}
	return t.base
}

// Changed says whether the state differs from the one that the turn began with.
func (t *Turn) Changed() bool { return t.next != nil }

// Request says who asks for what; ID is the id that a new resharding takes (made by the shell:
// "reshard-" and a UUID).
type Request struct {
	ID          string
	RequestedBy string
	Reason      string
	IfMatch     int64 // generation, 0: any
}

// New creates a stream: a resharding from 0 shards to spec.ShardCount (1.3), accepted at now.
func New(prefix string, spec protocol.StreamSpec, identity string, req Request, now protocol.Instant) *State {
	panic("not built yet")
}

// Put sets the desired spec. A changed shard count starts a resharding unless one to the same
// count is already running (then that one is returned: the call is idempotent). Returns the
// resharding that is now active because of it, "" for none, and whether this call started it.
func (t *Turn) Put(spec protocol.StreamSpec, req Request, now protocol.Instant) (reshardingID string, started bool, err *protocol.Error) {
	panic("not built yet")
}

// Rollback asks for the end of a resharding before its decision. Idempotent; a finished or
// decided one is refused with ROLLBACK_NOT_ALLOWED.
func (t *Turn) Rollback(id string, req Request, now protocol.Instant) *protocol.Error {
	panic("not built yet")
}

// Pause is the operator's pause until the deadline; Resume ends it.
func (t *Turn) Pause(until protocol.Instant, req Request, now protocol.Instant) *protocol.Error {
	panic("not built yet")
}

// Resume removes only the operator's pause.
func (t *Turn) Resume(req Request, now protocol.Instant) *protocol.Error { panic("not built yet") }

// RegisterGroup adds a group to the registry, not ready yet; a group that exists is left as it is.
func (t *Turn) RegisterGroup(name string, start protocol.StartPosition, now protocol.Instant) {
	panic("not built yet")
}

// ForgetGroup removes a group from the registry. Its Redis consumer groups stay.
func (t *Turn) ForgetGroup(name string, now protocol.Instant) { panic("not built yet") }

// Delete marks the stream for deletion: refused unless the layout is (·, 0) with nothing
// running, or force.
func (t *Turn) Delete(force bool, req Request, now protocol.Instant) *protocol.Error {
	panic("not built yet")
}

// Apply takes the outcome of a pass that was planned from this very state or an older one of
// the same phase: results of another resharding or phase are ignored.
func (t *Turn) Apply(res PassResult, now protocol.Instant) { panic("not built yet") }

// Advance makes the transitions that need no reply of a shard: deadlines that passed, members
// that have converged, an operator's pause that is over.
func (t *Turn) Advance(groups []GroupProgress, now protocol.Instant) { panic("not built yet") }

// Adopt is 1.7.1: shard 0 (or the highest epoch seen) is ahead of the aggregate. seen is the
// reply of LOOK at shard 0 merged with the highest revision that any AHEAD reply carried. It
// returns the revision that the next commit must have at least.
func (t *Turn) Adopt(seen Control, id string, now protocol.Instant) (minRevision int64) {
	panic("not built yet")
}

// ApplySurvey takes the outcome of a sweep at rest (1.7.2) and starts a repair when it found
// something to repair; id is the id that the repair takes. It returns whether one was started.
func (t *Turn) ApplySurvey(res PassResult, id string, now protocol.Instant) bool {
	panic("not built yet")
}

// Plan is the pass that the state calls for now, empty when there is nothing to do. It is
// derived from the state alone, so any replica finds it again after a crash.
func Plan(s *State, now protocol.Instant) Pass { panic("not built yet") }

// PlanSurvey is the sweep: SURVEY of shard 0 first, then of every index below the highest
// count ever.
func PlanSurvey(s *State) Pass { panic("not built yet") }

// Next is the earliest instant at which Advance has something to do by itself, 0 for none.
func Next(s *State) protocol.Instant { panic("not built yet") }

// View, RoutingOf and ReshardingOf show the state as the API does. ReshardingOf returns nil for
// an unknown id.
func View(s *State) protocol.Stream { panic("not built yet") }

// RoutingOf is the routing answer.
func RoutingOf(s *State) protocol.Routing { panic("not built yet") }

// ReshardingOf is one resharding, nil when the id is unknown.
func ReshardingOf(s *State, id string) *protocol.Resharding { panic("not built yet") }

// Reshardings lists all, newest first.
func Reshardings(s *State) []protocol.Resharding { panic("not built yet") }

// Check returns every violated structural invariant of s.
func Check(s *State) []string { panic("not built yet") }

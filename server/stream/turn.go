package stream

import "github.com/redisstream/terraform-provider-redisstream/sdk/protocol"

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
	IfMatch     int64 // generation, 0: any, MustBeNew: there is no such stream
}

// MustBeNew as Request.IfMatch asks for a creation and for nothing else.
const MustBeNew = -1

// edit returns the state to modify. Every input that edits ends with settle.
func (t *Turn) edit(now protocol.Instant) *State {
	if t.next == nil {
		t.next = t.base.clone()
	}
	t.next.UpdatedAt = max(t.next.UpdatedAt, now)
	return t.next
}

// editActive is edit for the active record, which must exist.
func (t *Turn) editActive(now protocol.Instant) *Resharding {
	r := t.edit(now).Active
	r.UpdatedAt = now
	return r
}

// settle derives what follows from the rest of the state. Versions are counted from the base:
// a turn is one commit, however many inputs it took.
func (t *Turn) settle(now protocol.Instant) {
	if t.next == nil {
		return
	}
	s := t.next
	if s.span() == 0 { // no shard has to learn anything
		s.HoldDirty = false
		for _, g := range s.Groups {
			g.Ready = true
		}
		s.Removing = nil
	}
	if !s.HoldDirty && !s.hasUnreadyGroup() && len(s.Removing) == 0 {
		s.RetryAt, s.Retries = 0, 0
	}
	publish := protocol.PublishOpen
	if s.Hold != nil || s.Active.pausing() {
		publish = protocol.PublishPaused
	}
	if publish != s.PublishState {
		s.PublishState, s.PublishSince = publish, now
	}
	if s.RoutingVersion <= t.base.RoutingVersion && shown(s) != shown(t.base) {
		s.RoutingVersion = t.base.RoutingVersion + 1
	}
}

// routed is what a routing answer shows besides names.
type routed struct {
	layout   Layout
	metadata int64
	publish  protocol.PublishState
	until    protocol.Instant
}

func shown(s *State) routed {
	return routed{layout: s.Layout, metadata: s.MetadataVersion, publish: s.PublishState, until: s.pausedUntil()}
}

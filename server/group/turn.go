package group

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Turn applies a batch of inputs to one group. The state that it began with is not modified;
// it is copied at the first change. Inputs are applied one after the other, and each answer is
// that of its own application (rule C7). Nothing may be answered before State and Rows have
// been committed, or proven current when nothing changed (rule C6).
type Turn struct {
	base    *State
	next    *State // nil until something changed
	rows    rowBook
	ignored int
	report  report // scratch of the request in hand
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
func (t *Turn) Rows() Rows { return t.rows.rows() }

// Ignored counts the items of reports that named a shard which is not the member's, and that
// were passed over (S6).
func (t *Turn) Ignored() int { return t.ignored }

// edit gives the state to change: a copy of the one that the turn began with.
func (t *Turn) edit(now protocol.Instant) *State {
	if t.next == nil {
		t.next = t.base.clone()
	}
	t.next.UpdatedAt = now
	return t.next
}

// editMember gives a record to change.
func (t *Turn) editMember(id string, now protocol.Instant) *Member {
	s := t.edit(now)
	m := *s.Members[id]
	s.Members[id] = &m
	return &m
}

// raise moves GE and MV on (C8). A correction round ends with the MV that it was about.
func (t *Turn) raise(now protocol.Instant) {
	s := t.edit(now)
	s.GroupEpoch++
	s.MetadataVersion++
	s.Correction = nil
}

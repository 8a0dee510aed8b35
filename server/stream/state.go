// Package stream is the pure core of a stream: its layout, publish state, registry of groups
// and its reshardings, as docs/protocol/resharding.md states the rules (section numbers in
// comments are of that page). No I/O, no clock, no goroutine, no randomness.
//
// The shell loads a State, begins a Turn on it, applies inputs (Put, Pause, Apply of a pass's
// replies, Advance, …), commits what the turn made of it, and runs the pass that Plan derives
// from the committed state. Whoever loads that state plans the same pass, so nothing is lost
// when a replica dies between commit and effect.
package stream

import (
	"maps"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// SchemaVersion is the version of State as it is stored.
const SchemaVersion = 1

// MaxHistory is how many finished reshardings are kept.
const MaxHistory = 50

// GroupEntry is a consumer group in the stream's registry. It is ready when its Redis consumer
// group exists on every shard of both layouts.
type GroupEntry struct {
	StartPosition protocol.StartPosition `json:"startPosition"`
	Ready         bool                   `json:"ready"`
	Since         protocol.Instant       `json:"since"`
	Entry         int                    `json:"entry,omitempty"` // State.GroupEntries when it was registered
}

// Hold is the operator's pause.
type Hold struct {
	Until       protocol.Instant `json:"until"`
	RequestedBy string           `json:"requestedBy,omitempty"`
	Reason      string           `json:"reason,omitempty"`
}

// State is the aggregate of one stream. It is never modified once built: a Turn copies it.
type State struct {
	SchemaVersion   int                    `json:"schemaVersion"` // 1
	Prefix          string                 `json:"prefix"`
	Generation      int64                  `json:"generation"` // of Spec; rises when Spec changes
	Spec            protocol.StreamSpec    `json:"spec"`
	MetadataVersion int64                  `json:"metadataVersion"`
	RoutingVersion  int64                  `json:"routingVersion"` // rises with anything that a routing answer shows
	Layout          Layout                 `json:"layout"`
	LastEpoch       int64                  `json:"lastEpoch"` // highest layout epoch given out
	HighCount       int                    `json:"highCount"` // highest shard count that the stream ever had, or was to get
	ServerIdentity  string                 `json:"serverIdentity"`
	PublishState    protocol.PublishState  `json:"publishState"` // what resharding and operator together make of it
	PublishSince    protocol.Instant       `json:"publishSince"` // when it last changed
	Hold            *Hold                  `json:"hold,omitempty"`
	HoldDirty       bool                   `json:"holdDirty,omitempty"` // the shards do not all show Hold yet
	HoldEntry       int                    `json:"holdEntry,omitempty"` // counts how often HoldDirty was set: tells a pause from the same one before
	Groups          map[string]*GroupEntry `json:"groups"`
	// GroupEntries counts registrations and removals of groups: it tells a name from itself, when a
	// reply comes late that was about an earlier one.
	GroupEntries int                `json:"groupEntries,omitempty"`
	Removing     map[string]Removal `json:"removing,omitempty"` // deleted groups that are still on some shard
	Active       *Resharding        `json:"active,omitempty"`
	History      []*Resharding      `json:"history,omitempty"`   // newest last, at most MaxHistory
	Orphans      []string           `json:"orphans,omitempty"`   // "key (n entries)", as the sweep reported them
	Deleting     bool               `json:"deleting,omitempty"`  // PURGE of the control hashes is due, then the record goes
	Gone         bool               `json:"-"`                   // PURGE is done: the commit deletes the record
	Exhausted    []int              `json:"exhausted,omitempty"` // shards that cannot be unsealed: their newest entry has the highest id
	Alert        string             `json:"alert,omitempty"`     // e.g. "Redis lost writes"
	AlertSince   protocol.Instant   `json:"alertSince,omitempty"`
	// RetryAt and Retries space the repeats of MKGROUP, RMGROUP and HOLD passes that failed, so that one
	// shard that does not answer never starves the passes of a resharding.
	RetryAt   protocol.Instant `json:"retryAt,omitempty"`
	Retries   int              `json:"retries,omitempty"`
	CreatedAt protocol.Instant `json:"createdAt"`
	UpdatedAt protocol.Instant `json:"updatedAt"`
}

// clone copies s as far as a turn may modify it. Finished records and certificates are never
// modified and are shared.
func (s *State) clone() *State {
	c := *s
	if s.Hold != nil {
		h := *s.Hold
		c.Hold = &h
	}
	c.Groups = make(map[string]*GroupEntry, len(s.Groups))
	for name, g := range s.Groups {
		e := *g
		c.Groups[name] = &e
	}
	c.Removing = maps.Clone(s.Removing)
	c.Active = s.Active.clone()
	c.History = slices.Clone(s.History)
	c.Orphans = slices.Clone(s.Orphans)
	c.Exhausted = slices.Clone(s.Exhausted)
	return &c
}

// GroupNames lists the registry, sorted.
func (s *State) GroupNames() []string { return slices.Sorted(maps.Keys(s.Groups)) }

// readyGroups and unreadyGroups list the groups that (do not yet) exist on every shard, sorted.
func (s *State) readyGroups() []string {
	return slices.DeleteFunc(s.GroupNames(), func(g string) bool { return !s.Groups[g].Ready })
}

func (s *State) unreadyGroups() []string {
	return slices.DeleteFunc(s.GroupNames(), func(g string) bool { return s.Groups[g].Ready })
}

// holdUntil is the deadline of the operator's pause, 0 for none.
func (s *State) holdUntil() protocol.Instant {
	if s.Hold == nil {
		return 0
	}
	return s.Hold.Until
}

// pausedUntil is when publishing opens again at the latest, 0 while it is open.
func (s *State) pausedUntil() protocol.Instant {
	until := s.holdUntil()
	if r := s.Active; r.pausing() {
		until = max(until, r.Deadline)
	}
	return until
}

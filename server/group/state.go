// Package group is the pure core of membership and hand-over: the aggregate of one consumer
// group and every transition of it, as docs/protocol/handover.md states the rules (rule
// numbers in comments are of that page). No I/O, no clock, no goroutine, no randomness.
package group

import (
	"maps"
	"strconv"
	"sync/atomic" //nolint:depguard // readers of one state may share the index that is built on first use
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Config is the timing of one group; see the letters of docs/protocol/handover.md §1.
type Config struct {
	MemberLease       time.Duration `json:"memberLease"`       // L
	HeartbeatInterval time.Duration `json:"heartbeatInterval"` // H
	RebalanceTimeout  time.Duration `json:"rebalanceTimeout"`  // R
}

// MaxHold is W, the longest hold of a heartbeat.
func (c Config) MaxHold() time.Duration { return c.HeartbeatInterval }

// QuietTime is X: an incumbent that was not renewed for this long may be replaced.
func (c Config) QuietTime() time.Duration { return c.MemberLease - 2*c.HeartbeatInterval }

// Margin is δ.
func (c Config) Margin() time.Duration { return protocol.LeaseMargin(c.MemberLease) }

// MemberState is the state of a member record.
type MemberState string

// AWAY said −2: it keeps its targets until its lease row ends.
const (
	Active  MemberState = "ACTIVE"
	Leaving MemberState = "LEAVING"
	Away    MemberState = "AWAY"
	Expired MemberState = "EXPIRED"
	Fenced  MemberState = "FENCED"
)

// SessionOver says whether the record has no running session.
func (s MemberState) SessionOver() bool { return s == Expired || s == Fenced }

// Member is the record of one member id: its newest session. No member epoch is stored.
type Member struct {
	State         MemberState      `json:"state"`
	Incarnation   string           `json:"incarnation,omitempty"`
	JoinEpoch     int64            `json:"joinEpoch"` // GE at the admission
	JoinMV        int64            `json:"joinMv"`
	JoinRequestID string           `json:"joinRequestId,omitempty"`
	Name          string           `json:"name,omitempty"`
	Since         protocol.Instant `json:"since"` // of the state
}

// Holder names the session that holds a shard.
type Holder struct {
	MemberID    string `json:"memberId"`
	JoinEpoch   int64  `json:"joinEpoch"`
	Incarnation string `json:"incarnation,omitempty"`
}

// Row is the name of the holder's lease row.
func (h Holder) Row() string { return Row(h.MemberID, h.JoinEpoch) }

// Row is the name of the lease row of a session: memberId/joinEpoch.
func Row(memberID string, joinEpoch int64) string {
	return memberID + "/" + strconv.FormatInt(joinEpoch, 10)
}

// Shard is one shard of the group. It is FREE (no holder), HELD, REVOKING (RevokedAt ≠ 0) or
// ORPHANED; whatever is not FREE blocks everybody else.
type Shard struct {
	Target         string           `json:"t,omitempty"` // member id
	Holder         *Holder          `json:"h,omitempty"`
	OwnershipEpoch int64            `json:"o,omitempty"`
	RevokedAt      int64            `json:"r,omitempty"` // GE at which the holder was first told
	Acknowledged   bool             `json:"a,omitempty"`
	Deadline       protocol.Instant `json:"d,omitempty"`
	Orphaned       bool             `json:"x,omitempty"`
}

// Correction is an open metadata correction round (docs/protocol/wire.md).
type Correction struct {
	TargetMV     int64           `json:"targetMv"`
	HighestMV    int64           `json:"highestMv"`
	Acknowledged map[string]bool `json:"acknowledged"` // member ids
}

// State is the aggregate of one group. It is never modified once built: a Turn copies it.
type State struct {
	SchemaVersion    int                `json:"schemaVersion"` // 1
	StreamPrefix     string             `json:"streamPrefix"`
	Group            string             `json:"group"`
	Spec             protocol.GroupSpec `json:"spec"`
	Generation       int64              `json:"generation,omitempty"` // of Spec; rises when Spec changes. See SpecGeneration
	GroupEpoch       int64              `json:"groupEpoch"`           // GE; the assignment epoch always equals it
	MetadataVersion  int64              `json:"metadataVersion"`      // MV
	OwnershipCounter int64              `json:"ownershipCounter"`     // last ownership epoch given out
	RecoverUntil     protocol.Instant   `json:"recoverUntil,omitempty"`
	Correction       *Correction        `json:"correction,omitempty"`
	Members          map[string]*Member `json:"members"`
	// Shards[i] is shard i. Indexes below Assignable are assigned to members; beyond it stand
	// shards that the layout no longer has but that somebody still holds.
	Shards     []Shard          `json:"shards"`
	Assignable int              `json:"assignable"`
	CreatedAt  protocol.Instant `json:"createdAt"`
	UpdatedAt  protocol.Instant `json:"updatedAt"`

	// which shards concern a member: built on first use, never changed after, not stored
	index atomic.Pointer[shardIndex]
}

// Config gives the timing of the group.
func (s *State) Config() Config {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return Config{MemberLease: ms(s.Spec.MemberLeaseMs), HeartbeatInterval: ms(s.Spec.HeartbeatIntervalMs), RebalanceTimeout: ms(s.Spec.RebalanceTimeoutMs)}
}

// SpecGeneration is the generation of the desired state, from 1. A state that was stored before
// there were generations has none in it and is the first.
func (s *State) SpecGeneration() int64 { return max(s.Generation, 1) }

// recovering says whether the group waits for leases that lost writes may hide (S12).
func (s *State) recovering(now protocol.Instant) bool { return now < s.RecoverUntil }

// session finds the member record of the session that h names, nil when that session is over.
// A session that is leaving or away is not over before its lease row ends.
func (s *State) session(h *Holder) *Member {
	if h == nil {
		return nil
	}
	m := s.Members[h.MemberID]
	if m == nil || m.State.SessionOver() || m.JoinEpoch != h.JoinEpoch {
		return nil
	}
	return m
}

// clone copies what a turn may change. Members and holders are shared: they are replaced, not
// modified.
func (s *State) clone() *State {
	c := &State{
		SchemaVersion: s.SchemaVersion, StreamPrefix: s.StreamPrefix, Group: s.Group, Spec: s.Spec, Generation: s.Generation,
		GroupEpoch: s.GroupEpoch, MetadataVersion: s.MetadataVersion, OwnershipCounter: s.OwnershipCounter,
		RecoverUntil: s.RecoverUntil, Correction: s.Correction,
		Members: maps.Clone(s.Members), Shards: append([]Shard(nil), s.Shards...), Assignable: s.Assignable,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if c.Members == nil {
		c.Members = map[string]*Member{}
	}
	if s.Correction != nil {
		round := *s.Correction
		round.Acknowledged = maps.Clone(round.Acknowledged)
		c.Correction = &round
	}
	c.index.Store(s.index.Load())
	return c
}

// Leases is what the caller knows of the lease rows: row name → lease end. It may be old; the
// commit script checks what a decision rests on (Rows.Check). A row that is absent is missing.
type Leases map[string]protocol.Instant

// RowCheck makes the commit script refuse unless the row exists and its end is at most
// MaxRemaining after the script's TIME (0: it has ended).
type RowCheck struct {
	Row          string
	MaxRemaining time.Duration
}

// Rows is what a turn does to the lease rows of the group. Checks come first, so that a row may
// be both checked and dropped; a row is never both renewed and checked, or renewed and dropped.
type Rows struct {
	Renew []string // end := TIME + member lease; written when missing
	Drop  []string // removed: the session is over and nothing waits for its row
	Check []RowCheck
}

// New is a group with no members. assignable is the number of shards that may be assigned now
// (0 until the group is ready). lastOwnership seeds the ownership counter (rule D7).
func New(streamPrefix, name string, spec protocol.GroupSpec, assignable int, now protocol.Instant) *State {
	return &State{
		SchemaVersion: 1, StreamPrefix: streamPrefix, Group: name, Spec: spec.WithDefaults(), Generation: 1,
		GroupEpoch: 1, MetadataVersion: 1, OwnershipCounter: int64(now),
		Members: map[string]*Member{}, Shards: make([]Shard, assignable), Assignable: assignable,
		CreatedAt: now, UpdatedAt: now,
	}
}

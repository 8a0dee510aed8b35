// Package stream is the pure core of a stream: its layout, publish state, registry of groups
// and its reshardings, as docs/protocol/resharding.md states the rules (section numbers in
// comments are of that page). No I/O, no clock, no goroutine, no randomness.
package stream

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Layout is (epoch, shard count): what shards, routing and producers carry.
type Layout struct {
	Epoch int64 `json:"epoch"`
	Count int   `json:"count"`
}

// GroupEntry is a consumer group in the stream's registry. It is ready when its Redis consumer
// group exists on every shard of both layouts.
type GroupEntry struct {
	StartPosition protocol.StartPosition `json:"startPosition"`
	Ready         bool                   `json:"ready"`
	Since         protocol.Instant       `json:"since"`
}

// Hold is the operator's pause.
type Hold struct {
	Until       protocol.Instant `json:"until"`
	RequestedBy string           `json:"requestedBy,omitempty"`
	Reason      string           `json:"reason,omitempty"`
}

// PhaseSpan is when a phase was entered and left; Ended 0 while it lasts.
type PhaseSpan struct {
	Phase   protocol.Phase   `json:"phase"`
	Started protocol.Instant `json:"started"`
	Ended   protocol.Instant `json:"ended,omitempty"`
}

// Kind says what a record is: a change that was asked for, or one that the shards forced.
type Kind string

// CREATE is the change from 0 shards when the stream is made, REPAIR is of the sweep, ADOPT
// follows a decision that the aggregate had lost, BACK goes back after a drain timeout.
const (
	KindCreate Kind = "CREATE"
	KindScale  Kind = "SCALE"
	KindRepair Kind = "REPAIR"
	KindAdopt  Kind = "ADOPT"
	KindBack   Kind = "BACK"
)

// Resharding is the record of one change of the layout (1.5).
type Resharding struct {
	ID          string                     `json:"id"`
	Kind        Kind                       `json:"kind"`
	From        Layout                     `json:"from"` // in force when it was accepted
	To          Layout                     `json:"to"`
	Old         int                        `json:"old"` // indexes below are "old": From.Count, or the highest count ever for REPAIR and ADOPT
	Policy      protocol.ReshardingPolicy  `json:"policy"`
	Phase       protocol.Phase             `json:"phase"`
	Phases      []PhaseSpan                `json:"phases"`
	PausedAt    protocol.Instant           `json:"pausedAt,omitempty"`
	ResumedAt   protocol.Instant           `json:"resumedAt,omitempty"`
	Deadline    protocol.Instant           `json:"deadline,omitempty"` // of the pause; set once
	DrainBy     protocol.Instant           `json:"drainBy,omitempty"`  // of DRAINING_REMOVED
	Expected    []string                   `json:"expected"`           // groups whose absence is UNKNOWN
	Ignored     []string                   `json:"ignored,omitempty"`
	EvidenceAt  protocol.Instant           `json:"evidenceAt,omitempty"` // start of the pass that the decision rests on
	Certificate *protocol.DrainCertificate `json:"certificate,omitempty"`
	WaitingFor  []string                   `json:"waitingFor,omitempty"`
	Released0   bool                       `json:"released0,omitempty"` // ROLLING_BACK: RELEASE of shard 0 was OK
	FailInstead bool                       `json:"failInstead,omitempty"`
	RequestedBy string                     `json:"requestedBy,omitempty"`
	Reason      string                     `json:"reason,omitempty"`
	Error       string                     `json:"error,omitempty"`
	Order       string                     `json:"order,omitempty"`
	CreatedAt   protocol.Instant           `json:"createdAt"`
	UpdatedAt   protocol.Instant           `json:"updatedAt"`
}

// Removed says whether the change takes shards away.
func (r *Resharding) Removed() bool { return r.To.Count < r.Old }

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
	HighCount       int                    `json:"highCount"` // highest shard count that the stream ever had
	ServerIdentity  string                 `json:"serverIdentity"`
	PublishState    protocol.PublishState  `json:"publishState"` // what resharding and operator together make of it
	Hold            *Hold                  `json:"hold,omitempty"`
	HoldDirty       bool                   `json:"holdDirty,omitempty"` // the shards do not all show Hold yet
	Groups          map[string]*GroupEntry `json:"groups"`
	Active          *Resharding            `json:"active,omitempty"`
	History         []*Resharding          `json:"history,omitempty"`  // newest last, at most MaxHistory
	Orphans         []string               `json:"orphans,omitempty"`  // keys that the sweep reported
	Deleting        bool                   `json:"deleting,omitempty"` // PURGE of the control hashes is due, then the record goes
	Gone            bool                   `json:"-"`                  // set by Apply when PURGE is done: the commit deletes the record
	Alert           string                 `json:"alert,omitempty"`    // e.g. "Redis lost writes"
	CreatedAt       protocol.Instant       `json:"createdAt"`
	UpdatedAt       protocol.Instant       `json:"updatedAt"`
}

// MaxHistory is how many finished reshardings are kept.
const MaxHistory = 50

// Assignable is how many shards the groups' members are to be assigned in the present phase
// (1.5: old ∪ new from OPENING on, the new layout from CONVERGING on).
func (s *State) Assignable() int {
	r := s.Active
	if r == nil {
		return s.Layout.Count
	}
	switch r.Phase {
	case protocol.PhaseOpening, protocol.PhaseDrainingRemoved:
		return max(r.Old, r.To.Count)
	default:
		return s.Layout.Count
	}
}

// Step is one script on one shard. The engine adds the aggregate's revision and notAfter.
type Step struct {
	Script   shardscript.Name
	Index    int
	ID       string // of the resharding
	Epoch    int64  // (epoch, count) in force, or the layout that is stamped
	Count    int
	ToEpoch  int64 // DECIDE
	ToCount  int
	Until    protocol.Instant
	Hold     protocol.Instant
	High     int
	Groups   []string
	Ignored  []string
	Quiesced bool   // DECIDE
	Drained  bool   // DECIDE: shard 0 is in the scope
	Archive  string // RETIRE: archive id
	Start    string // MKGROUP: id
	// NotAfter narrows the effect lease: DECIDE must not run later than this (0: no narrowing).
	NotAfter protocol.Instant
}

// PassKind says what a pass is for.
type PassKind string

// PHASE is of the active resharding. MKGROUP, HOLD and PURGE are the effects of a group's
// registration, of the operator's pause, of the stream's deletion. SURVEY is the sweep.
const (
	PassPhase  PassKind = "PHASE"
	PassGroup  PassKind = "MKGROUP"
	PassHold   PassKind = "HOLD"
	PassPurge  PassKind = "PURGE"
	PassSurvey PassKind = "SURVEY"
	PassLook   PassKind = "LOOK"
)

// Pass is a set of steps that the engine runs for the state that it was planned from.
type Pass struct {
	Kind         PassKind
	ReshardingID string
	Phase        protocol.Phase
	// Stages run one after the other, each as one pipeline; a stage runs only when every step
	// of the stage before was OK (or DECIDED).
	Stages  [][]Step
	Confirm bool     // WAIT for replicas behind each stage, on the writing connections (1.8)
	Groups  []string // PassGroup: the groups that it makes
	Backoff bool     // repeat with back-off while nothing changes
}

// Empty says whether there is nothing to run.
func (p Pass) Empty() bool { return len(p.Stages) == 0 }

// Control is what a reply shows of a control hash. Zero values mean "missing": no field is
// ever interpreted as zero when it is missing, so Present tells.
type Control struct {
	Present              bool // the control hash exists
	Epoch                int64
	Count                int
	HasEpoch             bool
	Rev                  int64
	By                   string
	Gate                 string
	Until, Hold          protocol.Instant
	Aborted, Retired     string
	High                 int
	StreamExists         bool
	Sealed               bool // as a fact: last-generated-id is the maximum
	Length, EntriesAdded int64
}

// Reply is the outcome of one step. Code is "" when the shard did not answer: that is unknown,
// never done; Err then has the text.
type Reply struct {
	Step     Step
	Code     shardscript.Code
	At       protocol.Instant // TIME of the shard's node
	Control  Control
	Evidence *protocol.ShardEvidence
	Err      string
}

// PassResult is what came of a pass.
type PassResult struct {
	Pass    Pass
	Replies []Reply
	// Confirmed is the lowest number of replicas that confirmed, −1 when no confirmation was
	// asked for or no replica is connected and none is required.
	Confirmed int
	// Unconfirmed: a confirmation was required and did not come in time.
	Unconfirmed bool
	StartedAt   protocol.Instant // Redis time at the start of the pass
	Barrier     string           // XSETID or LEASE
}

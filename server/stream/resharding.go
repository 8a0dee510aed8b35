package stream

import (
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// PhaseSpan is when a phase was entered and left; Ended 0 while it lasts.
type PhaseSpan struct {
	Phase   protocol.Phase   `json:"phase"`
	Started protocol.Instant `json:"started"`
	Ended   protocol.Instant `json:"ended,omitempty"`
}

// maxSpans bounds the list of phases of a record that goes back and forth; the first one and
// the newest are kept.
const maxSpans = 64

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

// What a record says of per-key order (1.1).
const (
	OrderKept             = "kept"
	OrderNotPromised      = "not promised"
	OrderNotPromisedPlain = "not promised for plain producers"
)

// Lifetimes that the rules name.
const (
	// EvidenceLife is how long a pass of evidence may be acted upon, from its start (1.4 DECIDE).
	EvidenceLife = 2 * time.Second
	// PlainCache is how long a producer that does not announce fencing may use a routing table
	// that it has cached (1.1).
	PlainCache = 30 * time.Second
	// stillFor is how long, behind a LEASE barrier, no shard may have grown (1.8): a look right
	// behind another one says nothing of a producer that appends now and then.
	stillFor = time.Second
)

// Resharding is the record of one change of the layout (1.5).
type Resharding struct {
	ID          string                     `json:"id"`
	Kind        Kind                       `json:"kind"`
	From        Layout                     `json:"from"` // in force when it was accepted
	To          Layout                     `json:"to"`
	Old         int                        `json:"old"`            // indexes below are "old": From.Count, for REPAIR and ADOPT as far as shards may exist
	Skip        []int                      `json:"skip,omitempty"` // removed indexes that hold somebody else's stream: never touched
	Policy      protocol.ReshardingPolicy  `json:"policy"`
	Phase       protocol.Phase             `json:"phase"`
	Phases      []PhaseSpan                `json:"phases"`
	Entry       int                        `json:"entry"` // counts phases entered: tells a repeated phase from itself
	PausedAt    protocol.Instant           `json:"pausedAt,omitempty"`
	ResumedAt   protocol.Instant           `json:"resumedAt,omitempty"`
	Deadline    protocol.Instant           `json:"deadline,omitempty"`   // of the pause; set once
	SealedAt    protocol.Instant           `json:"sealedAt,omitempty"`   // when the last seal was known to hold
	PlainSeen   protocol.Instant           `json:"plainSeen,omitempty"`  // when a plain producer was last seen, as far as it matters
	Confirmed   int                        `json:"confirmed,omitempty"`  // replicas that confirmed the seals
	Barrier     string                     `json:"barrier,omitempty"`    // XSETID or LEASE, as the seals said
	DrainBy     protocol.Instant           `json:"drainBy,omitempty"`    // of DRAINING_REMOVED
	Expected    []string                   `json:"expected"`             // groups whose absence is UNKNOWN, sorted
	Ignored     []string                   `json:"ignored,omitempty"`    // sorted
	EvidenceAt  protocol.Instant           `json:"evidenceAt,omitempty"` // start of the pass that the decision rests on
	Certificate *protocol.DrainCertificate `json:"certificate,omitempty"`
	// Snapshot is evidence from SnapshotAt, kept only behind a LEASE barrier: when the shards are
	// still the same stillFor later, bare appends have stopped (1.8).
	Snapshot     []protocol.ShardEvidence `json:"snapshot,omitempty"`
	SnapshotAt   protocol.Instant         `json:"snapshotAt,omitempty"`
	WaitingFor   []string                 `json:"waitingFor,omitempty"`
	Warnings     []Warning                `json:"warnings,omitempty"`     // by shard, at most mostWarnings
	DecidedAt    protocol.Instant         `json:"decidedAt,omitempty"`    // no later than shard 0 decided, on its node's clock
	StampedAt    protocol.Instant         `json:"stampedAt,omitempty"`    // no earlier than the last shard got the new layout, on its node's clock
	UnknownSince protocol.Instant         `json:"unknownSince,omitempty"` // since when evidence has been unknown
	Released0    bool                     `json:"released0,omitempty"`    // ROLLING_BACK: shard 0 has ended the change
	TooLate      bool                     `json:"tooLate,omitempty"`      // ROLLING_BACK: shard 0 says DECIDED; LOOK is due
	Unfenced     []int                    `json:"unfenced,omitempty"`     // ROLLING_BACK: old shards that lost their control hash
	Reopen       []int                    `json:"reopen,omitempty"`       // after OPENING: shards that must be stamped again
	Remake       []int                    `json:"remake,omitempty"`       // DRAINING_REMOVED: shards that lack a group of the registry
	Archives     int                      `json:"archives,omitempty"`     // archive names that were taken
	Bumped       int                      `json:"bumped,omitempty"`       // revisions that shards at the same epoch forced
	FailInstead  bool                     `json:"failInstead,omitempty"`
	RequestedBy  string                   `json:"requestedBy,omitempty"`
	Reason       string                   `json:"reason,omitempty"`
	Error        string                   `json:"error,omitempty"`
	ErrorCode    protocol.Code            `json:"errorCode,omitempty"` // FOREIGN_KEYS_EXIST when streams of others were in the way
	Order        string                   `json:"order,omitempty"`
	CreatedAt    protocol.Instant         `json:"createdAt"`
	UpdatedAt    protocol.Instant         `json:"updatedAt"`
}

// Removed says whether the change takes shards away.
func (r *Resharding) Removed() bool { return len(r.removed()) > 0 }

func (r *Resharding) clone() *Resharding {
	if r == nil {
		return nil
	}
	c := *r
	c.Skip = slices.Clone(r.Skip)
	c.Phases = slices.Clone(r.Phases)
	c.Expected = slices.Clone(r.Expected)
	c.Ignored = slices.Clone(r.Ignored)
	c.Snapshot = slices.Clone(r.Snapshot)
	c.WaitingFor = slices.Clone(r.WaitingFor)
	c.Warnings = slices.Clone(r.Warnings)
	c.Unfenced = slices.Clone(r.Unfenced)
	c.Reopen = slices.Clone(r.Reopen)
	c.Remake = slices.Clone(r.Remake)
	return &c
}

// removed lists the indexes that the change takes away, ascending.
func (r *Resharding) removed() []int {
	var out []int
	for i := r.To.Count; i < r.Old; i++ {
		if !slices.Contains(r.Skip, i) {
			out = append(out, i)
		}
	}
	return out
}

// inside says whether index is a shard of the layout that the change goes to.
func (r *Resharding) inside(index int) bool { return index < r.To.Count }

// decided says whether the layout has changed: from then on the change only goes forward.
func (r *Resharding) decided() bool {
	switch r.Phase {
	case protocol.PhaseOpening, protocol.PhaseDrainingRemoved, protocol.PhaseConverging, protocol.PhaseRetiring, protocol.PhaseCompleted:
		return true
	case protocol.PhaseFailed: // after a drain timeout
		return r.DrainBy != 0
	default:
		return false
	}
}

// cancellable says whether a rollback can still be asked for.
func (r *Resharding) cancellable() bool {
	switch r.Phase {
	case protocol.PhaseProvisioning, protocol.PhaseSealing, protocol.PhaseDraining, protocol.PhaseActivating:
		return true
	default:
		return false
	}
}

// decideBy is until when the change must have been decided: the end of its pause or, while it
// pauses nothing, drainTimeout after it was accepted. 0 when no deadline ends it any more.
func (r *Resharding) decideBy() protocol.Instant {
	switch {
	case !r.cancellable():
		return 0
	case r.Deadline != 0:
		return r.Deadline
	default:
		return r.CreatedAt.Add(r.drainTimeout())
	}
}

// pausing says whether the change pauses publishing at present.
func (r *Resharding) pausing() bool {
	return r != nil && r.PausedAt != 0 && r.ResumedAt == 0
}

// seals says whether the change seals and drains before its decision. From 0 shards there is
// nothing to seal.
func (r *Resharding) seals() bool {
	return r.Policy.Strategy == protocol.StrategyQuiesce && r.Old > 0
}

// keepsOrder says whether per-key order is what the policy asks for.
func (r *Resharding) keepsOrder() bool {
	return r.Policy.Strategy == protocol.StrategyQuiesce && r.Policy.DrainScope == protocol.DrainAll
}

// inScope says whether index must be drained before the decision.
func (r *Resharding) inScope(index int) bool {
	return r.seals() && (r.Policy.DrainScope == protocol.DrainAll || !r.inside(index))
}

// plainUntil is until when plain producers may still use a table from before the seals, 0 when
// none was seen within the lifetime of its cache (1.1).
func (r *Resharding) plainUntil() protocol.Instant {
	if !r.keepsOrder() || r.SealedAt == 0 || r.PlainSeen == 0 || r.PlainSeen.Add(PlainCache) <= r.SealedAt {
		return 0
	}
	return r.SealedAt.Add(PlainCache)
}

// since is when the present phase was entered.
func (r *Resharding) since() protocol.Instant {
	if n := len(r.Phases); n > 0 {
		return r.Phases[n-1].Started
	}
	return r.CreatedAt
}

// firstEntered is when a phase was first entered, 0 for never.
func (r *Resharding) firstEntered(phase protocol.Phase) protocol.Instant {
	for _, span := range r.Phases {
		if span.Phase == phase {
			return span.Started
		}
	}
	return 0
}

// orderWindow is the time around the decision of a change that does not keep the order of keys,
// nil where there is none: nothing was appended before it (from 0 shards), or the shards had the
// layout before the record of it, so that nobody knows when it was decided.
func (r *Resharding) orderWindow() *protocol.TimeWindow {
	if r.keepsOrder() || !r.decided() || r.DecidedAt == 0 || r.Old == 0 {
		return nil
	}
	return &protocol.TimeWindow{From: r.DecidedAt.Time(), To: timeOrNil(r.StampedAt)}
}

// drainTimeout and pauseTimeout convert the policy's milliseconds.
func (r *Resharding) drainTimeout() time.Duration {
	return time.Duration(r.Policy.DrainTimeoutMs) * time.Millisecond
}

func (r *Resharding) pauseTimeout() time.Duration {
	return time.Duration(r.Policy.PauseTimeoutMs) * time.Millisecond
}

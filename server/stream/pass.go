package stream

import (
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

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
	Outbid   int64  // RMGROUP: an ownership epoch that was never granted
	Entry    int    // MKGROUP of a registration, RMGROUP: which one it is for (State.GroupEntries)
	// Retention is what RETAIN carries out.
	Retention protocol.Retention
	Most      int    // EVIDENCE, PROBE: undelivered entries to count for each group; 0: 100. RECHECK: archive names tried
	LastID    string // RECHECK: the certified last id
	// NotAfter narrows the effect lease: DECIDE must not run later than this (0: no narrowing).
	NotAfter protocol.Instant
}

// PassKind says what a pass is for.
type PassKind string

// PHASE is of the active resharding. MKGROUP, RMGROUP, HOLD and PURGE are the effects of a group's
// registration and deletion, of the operator's pause, of the stream's deletion. SURVEY is the
// sweep, RETAIN a slice of retention.
const (
	PassPhase  PassKind = "PHASE"
	PassGroup  PassKind = "MKGROUP"
	PassHold   PassKind = "HOLD"
	PassPurge  PassKind = "PURGE"
	PassSurvey PassKind = "SURVEY"
	PassLook   PassKind = "LOOK"
	PassRemove PassKind = "RMGROUP"
	PassRetain PassKind = "RETAIN" // never applied: its outcome is in Redis alone
	PassProbe  PassKind = "PROBE"  // for a dry run, a re-check, a deletion: read only, and never applied
)

// Pass is a set of steps that the engine runs for the state that it was planned from.
type Pass struct {
	Kind         PassKind
	ReshardingID string
	Phase        protocol.Phase
	Entry        int // which entry into the phase it was planned for (Resharding.Entry); PassHold: State.HoldEntry
	// Stages run one after the other, each as one pipeline; a stage runs only when every step
	// of the stage before was OK (or DECIDED).
	Stages  [][]Step
	Confirm bool // WAIT for replicas behind each stage, on the writing connections (1.8)
	// ConfirmFirst is Confirm of the first stage alone. A stage that was to be confirmed, and was
	// not, is the last one that runs.
	ConfirmFirst bool
	Groups       []string // PassGroup, PassRemove: the groups that it makes or destroys
	Backoff      bool     // repeat with back-off while nothing changes
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
	Purged               bool // the stream was deleted: the hash only waits for its expiry
	High                 int
	StreamExists         bool
	Sealed               bool // as a fact: last-generated-id is the maximum
	Length, EntriesAdded int64
}

// layout is the layout that the hash shows.
func (c Control) layout() Layout { return Layout{Epoch: c.Epoch, Count: c.Count} }

// gone says that the shard was retired: tombstone and no stream (1.2.6).
func (c Control) gone() bool { return c.Retired != "" && !c.StreamExists }

// Reply is the outcome of one step. Code is "" when the shard did not answer: that is unknown,
// never done; Err then has the text.
type Reply struct {
	Step     Step
	Code     shardscript.Code
	At       protocol.Instant // TIME of the shard's node
	Control  Control
	Evidence *protocol.ShardEvidence
	Err      string
	// Of RETAIN: entries that went, acknowledgements that were still due for them (summed over the
	// groups), and whether there is another slice.
	Removed, Unacked int64
	More             bool
}

// Barriers as PassResult and certificates name them.
const (
	BarrierSeal  = "XSETID"
	BarrierLease = "LEASE"
)

// PassResult is what came of a pass.
type PassResult struct {
	Pass    Pass
	Replies []Reply
	// Confirmed is the lowest number of replicas that confirmed, −1 when no confirmation was
	// asked for or no replica is connected and none is required.
	Confirmed int
	// Unconfirmed: a confirmation was required and did not come in time.
	Unconfirmed bool
	// NotConfirmed is the error of a confirmation that was refused, "" where it did not come.
	NotConfirmed string
	StartedAt    protocol.Instant // Redis time at the start of the pass
	Barrier      string           // XSETID or LEASE
}

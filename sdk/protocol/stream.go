package protocol

import "time"

// Strategy is how a resharding treats publishing.
type Strategy string

// QUIESCE pauses publishing and drains first: per-key order is kept. ONLINE does neither.
const (
	StrategyQuiesce Strategy = "QUIESCE"
	StrategyOnline  Strategy = "ONLINE"
)

// DrainScope is which shards a quiesced resharding drains before the layout changes.
type DrainScope string

// ALL keeps the order of each key; REMOVED only empties the shards that go.
const (
	DrainAll     DrainScope = "ALL"
	DrainRemoved DrainScope = "REMOVED"
)

// Retire is what becomes of the key of a removed shard.
type Retire string

// DELETE unlinks it, ARCHIVE renames it to {prefix:index}:archived:<resharding id>.
const (
	RetireDelete  Retire = "DELETE"
	RetireArchive Retire = "ARCHIVE"
)

// OnTimeout is how a resharding ends when a deadline passes before the layout has changed.
type OnTimeout string

// Both undo the change; ROLLBACK ends as ROLLED_BACK, FAIL as FAILED.
const (
	OnTimeoutRollback OnTimeout = "ROLLBACK"
	OnTimeoutFail     OnTimeout = "FAIL"
)

// PublishState says whether appends are accepted.
type PublishState string

// PAUSED while shards are sealed, by a resharding or by an operator.
const (
	PublishOpen   PublishState = "OPEN"
	PublishPaused PublishState = "PAUSED"
)

// Phase is the state of a resharding.
type Phase string

// The phases, in the order in which they are passed; see docs/protocol/resharding.md.
const (
	PhaseProvisioning    Phase = "PROVISIONING"
	PhaseSealing         Phase = "SEALING"
	PhaseDraining        Phase = "DRAINING"
	PhaseActivating      Phase = "ACTIVATING"
	PhaseOpening         Phase = "OPENING"
	PhaseDrainingRemoved Phase = "DRAINING_REMOVED"
	PhaseConverging      Phase = "CONVERGING"
	PhaseRetiring        Phase = "RETIRING"
	PhaseRollingBack     Phase = "ROLLING_BACK"
	PhaseCompleted       Phase = "COMPLETED"
	PhaseRolledBack      Phase = "ROLLED_BACK"
	PhaseFailed          Phase = "FAILED"
)

// Terminal says whether a resharding in this phase has ended.
func (p Phase) Terminal() bool {
	return p == PhaseCompleted || p == PhaseRolledBack || p == PhaseFailed
}

// ReshardingPolicy is how the reshardings of a stream are done. Zero values mean the
// defaults of DefaultPolicy.
type ReshardingPolicy struct {
	Strategy       Strategy   `json:"strategy,omitempty" validate:"omitempty,oneof=QUIESCE ONLINE"`
	DrainScope     DrainScope `json:"drainScope,omitempty" validate:"omitempty,oneof=ALL REMOVED"`
	Retire         Retire     `json:"retire,omitempty" validate:"omitempty,oneof=DELETE ARCHIVE"`
	PauseTimeoutMs int64      `json:"pauseTimeoutMs,omitempty" validate:"omitempty,min=100,max=86400000"`
	DrainTimeoutMs int64      `json:"drainTimeoutMs,omitempty" validate:"omitempty,min=100,max=604800000"`
	OnTimeout      OnTimeout  `json:"onTimeout,omitempty" validate:"omitempty,oneof=ROLLBACK FAIL"`
	IgnoreGroups   []string   `json:"ignoreGroups,omitempty" validate:"max=64"`
}

// DefaultPolicy is what an empty policy means: quiesced, all shards drained, removed shards
// deleted, publishing paused for at most five minutes, removed shards drained within an hour.
func DefaultPolicy() ReshardingPolicy {
	return ReshardingPolicy{
		Strategy: StrategyQuiesce, DrainScope: DrainAll, Retire: RetireDelete,
		PauseTimeoutMs: (5 * time.Minute).Milliseconds(), DrainTimeoutMs: time.Hour.Milliseconds(),
		OnTimeout: OnTimeoutRollback,
	}
}

// WithDefaults returns p with its zero values filled from DefaultPolicy.
func (p ReshardingPolicy) WithDefaults() ReshardingPolicy {
	d := DefaultPolicy()
	if p.Strategy == "" {
		p.Strategy = d.Strategy
	}
	if p.DrainScope == "" {
		p.DrainScope = d.DrainScope
	}
	if p.Retire == "" {
		p.Retire = d.Retire
	}
	if p.PauseTimeoutMs == 0 {
		p.PauseTimeoutMs = d.PauseTimeoutMs
	}
	if p.DrainTimeoutMs == 0 {
		p.DrainTimeoutMs = d.DrainTimeoutMs
	}
	if p.OnTimeout == "" {
		p.OnTimeout = d.OnTimeout
	}
	return p
}

// StreamSpec is the desired state of a stream.
type StreamSpec struct {
	ShardCount int              `json:"shardCount"`
	Resharding ReshardingPolicy `json:"resharding"`
	Retention  Retention        `json:"retention"`
}

// PutStreamRequest is the body of PUT /streams/{p}. ShardCount is a pointer so that a missing
// one is refused rather than read as zero, which would drain the stream.
type PutStreamRequest struct {
	ShardCount  *int64           `json:"shardCount" validate:"required"`
	Resharding  ReshardingPolicy `json:"resharding"`
	Retention   Retention        `json:"retention"`
	RequestedBy string           `json:"requestedBy,omitempty" validate:"max=1024"`
	Reason      string           `json:"reason,omitempty" validate:"max=1024"`
}

// Condition is one aspect of the status of a stream, as Kubernetes has them.
type Condition struct {
	Type    string    `json:"type"`   // Converged, Publishing, Progressing
	Status  string    `json:"status"` // True, False
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// StreamStatus is the observed state of a stream.
type StreamStatus struct {
	ShardCount         int          `json:"shardCount"`
	LayoutEpoch        int64        `json:"layoutEpoch"`
	PublishState       PublishState `json:"publishState"`
	PausedUntil        *time.Time   `json:"pausedUntil,omitempty"`
	ActiveReshardingID string       `json:"activeReshardingId,omitempty"`
	LastReshardingID   string       `json:"lastReshardingId,omitempty"`
	Conditions         []Condition  `json:"conditions"`
}

// StreamShard is one shard of the layout in force, or one that is added or removed.
type StreamShard struct {
	ShardIndex int    `json:"shardIndex"`
	StreamKey  string `json:"streamKey"`
	RedisSlot  int    `json:"redisSlot"`
	State      string `json:"state"` // ACTIVE, ADDING, REMOVING
}

// Stream answers GET and PUT /streams/{p}.
type Stream struct {
	StreamPrefix    string        `json:"streamPrefix"`
	Generation      int64         `json:"generation"` // of the spec; If-Match compares it
	MetadataVersion int64         `json:"metadataVersion"`
	Spec            StreamSpec    `json:"spec"`
	Status          StreamStatus  `json:"status"`
	Shards          []StreamShard `json:"shards"`
	Groups          []string      `json:"groups"`
	CreatedAt       time.Time     `json:"createdAt"`
	UpdatedAt       time.Time     `json:"updatedAt"`
}

// StreamList answers GET /streams.
type StreamList struct {
	Streams []Stream `json:"streams"`
	// Unreadable are the prefixes of streams whose stored state cannot be read (STATE_UNREADABLE).
	Unreadable []string `json:"unreadable"`
}

// DeleteStreamRequest is the optional body of DELETE /streams/{p}. Force drops what is left
// undelivered; Confirm must then repeat the stream prefix.
type DeleteStreamRequest struct {
	Force       bool   `json:"force,omitempty"`
	Confirm     string `json:"confirm,omitempty"`
	RequestedBy string `json:"requestedBy,omitempty" validate:"max=1024"`
	Reason      string `json:"reason,omitempty" validate:"max=1024"`
}

// PauseRequest is the body of POST /streams/{p}/publishing/pause.
type PauseRequest struct {
	TimeoutMs   int64  `json:"timeoutMs" validate:"required,min=100,max=86400000"`
	RequestedBy string `json:"requestedBy,omitempty" validate:"max=1024"`
	Reason      string `json:"reason,omitempty" validate:"max=1024"`
}

// ResumeRequest is the body of POST /streams/{p}/publishing/resume.
type ResumeRequest struct {
	RequestedBy string `json:"requestedBy,omitempty" validate:"max=1024"`
	Reason      string `json:"reason,omitempty" validate:"max=1024"`
}

// PhaseSpan is when a phase was entered and left.
type PhaseSpan struct {
	Phase     Phase      `json:"phase"`
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt"`
}

// Resharding answers GET /streams/{p}/reshardings/{id}.
type Resharding struct {
	ReshardingID   string      `json:"reshardingId"`
	StreamPrefix   string      `json:"streamPrefix"`
	FromShardCount int         `json:"fromShardCount"`
	ToShardCount   int         `json:"toShardCount"`
	FromEpoch      int64       `json:"fromEpoch"`
	ToEpoch        int64       `json:"toEpoch"`
	Strategy       Strategy    `json:"strategy"`
	DrainScope     DrainScope  `json:"drainScope"`
	Retire         Retire      `json:"retire"`
	Phase          Phase       `json:"phase"`
	Phases         []PhaseSpan `json:"phases"`
	PausedMs       int64       `json:"pausedMs"` // up to the moment of the answer while the pause lasts
	PauseDeadline  *time.Time  `json:"pauseDeadline,omitempty"`
	WaitingFor     []string    `json:"waitingFor"`
	IgnoreGroups   []string    `json:"ignoreGroups,omitempty"`
	RequestedBy    string      `json:"requestedBy"`
	Reason         string      `json:"reason"`
	Error          string      `json:"error,omitempty"`
	Order          string      `json:"order,omitempty"` // what was promised of per-key order
	// Warnings are what did not hold the change up and yet matters, in sentences: entries that a
	// group may have lost, since they were removed before it had acknowledged them.
	Warnings []string `json:"warnings,omitempty"`
	// OrderWindow is of a change that promises no order: of two entries of one key that are handled
	// in the wrong order, the older was appended no later than its end and the newer no earlier than
	// its start, by the clocks of their nodes.
	OrderWindow *TimeWindow       `json:"orderWindow,omitempty"`
	Certificate *DrainCertificate `json:"certificate,omitempty"`
	// Recheck is the certificate compared with Redis as it is now; only when it was asked for.
	Recheck *CertificateCheck `json:"recheck,omitempty"`
}

// TimeWindow is a span of time; To is null while it lasts.
type TimeWindow struct {
	From time.Time  `json:"from"`
	To   *time.Time `json:"to"`
}

// CertificateCheck says whether what a certificate states can still be seen in Redis: of each
// shard, that everything up to the certified last id was delivered to every certified group and
// is pending in none, or that the shard was retired by this very resharding.
type CertificateCheck struct {
	CheckedAt time.Time    `json:"checkedAt"`
	Holds     bool         `json:"holds"`
	Shards    []ShardCheck `json:"shards"`
}

// ShardCheck is one shard of a CertificateCheck. Problems is empty exactly when it holds.
type ShardCheck struct {
	ShardIndex int      `json:"shardIndex"`
	State      string   `json:"state"` // KEPT, RETIRED, ARCHIVED, REPLACED (a later change made it anew), UNKNOWN
	Holds      bool     `json:"holds"`
	Problems   []string `json:"problems"`
}

// ReshardingList answers GET /streams/{p}/reshardings, newest first.
type ReshardingList struct {
	Reshardings []Resharding `json:"reshardings"`
}

// RollbackRequest is the body of POST …/rollback of a resharding.
type RollbackRequest struct {
	RequestedBy string `json:"requestedBy" validate:"required,max=1024"`
	Reason      string `json:"reason" validate:"required,max=1024"`
}

// DrainCertificate is the evidence on which a layout change was decided.
type DrainCertificate struct {
	TakenAt           time.Time       `json:"takenAt"`
	Barrier           string          `json:"barrier"` // XSETID, LEASE or NONE
	ConfirmedReplicas int             `json:"confirmedReplicas"`
	Shards            []ShardEvidence `json:"shards"`
}

// ShardEvidence is one atomic look at one shard.
type ShardEvidence struct {
	ShardIndex   int             `json:"shardIndex"`
	Sealed       bool            `json:"sealed"`
	LastID       string          `json:"lastId"` // the kept one while sealed
	EntriesAdded int64           `json:"entriesAdded"`
	Verdict      string          `json:"verdict"` // DRAINED, BUSY, UNKNOWN
	Groups       []GroupEvidence `json:"groups"`
}

// GroupEvidence is one Redis consumer group of a shard. Lag is shown, never trusted; null
// where Redis does not know it.
type GroupEvidence struct {
	Group           string `json:"group"`
	Pending         int64  `json:"pending"`
	LastDeliveredID string `json:"lastDeliveredId"`
	EntryAfter      bool   `json:"entryAfter"`
	// Undelivered is counted up to a limit; UndeliveredMore says that there are more.
	Undelivered     int64  `json:"undelivered"`
	UndeliveredMore bool   `json:"undeliveredMore,omitempty"`
	Lag             *int64 `json:"lag"`
	// PossibleLoss is how many entries went (trimmed or deleted, by whomever) before this group
	// was given them, by Redis's own counters; null where they do not tell.
	PossibleLoss *int64 `json:"possibleLoss"`
	// Trimmed entries were removed by the stream's retention before the group had acknowledged
	// them; Gone ones were pending, and had lost their body when an owner came to them.
	Trimmed int64 `json:"trimmed,omitempty"`
	Gone    int64 `json:"gone,omitempty"`
	Ignored bool  `json:"ignored,omitempty"`
}

// Routing answers GET /streams/{p}/routing.
type Routing struct {
	StreamPrefix     string         `json:"streamPrefix"`
	MetadataVersion  int64          `json:"metadataVersion"`
	LayoutEpoch      int64          `json:"layoutEpoch"`
	ShardCount       int            `json:"shardCount"`
	PublishState     PublishState   `json:"publishState"`
	PausedUntil      *time.Time     `json:"pausedUntil,omitempty"`
	Hash             string         `json:"hash"`
	StreamKeyPattern string         `json:"streamKeyPattern"`
	Shards           []RoutingShard `json:"shards"`
	LeaseMs          int64          `json:"leaseMs"` // how long a producer may use it unasked
	// RoutingVersion changes with anything in this answer; send it back as version.
	RoutingVersion int64 `json:"routingVersion"`
}

// RoutingShard is one shard of a routing table.
type RoutingShard struct {
	ShardIndex int    `json:"shardIndex"`
	StreamKey  string `json:"streamKey"`
	RedisSlot  int    `json:"redisSlot"`
}

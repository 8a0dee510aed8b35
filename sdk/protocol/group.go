package protocol

import "time"

// StartPosition is where the Redis consumer group of a newly registered group starts on the
// shards that exist. On shards that are added later it always starts at 0.
type StartPosition string

// EARLIEST is id 0, LATEST is "$" at registration.
const (
	StartEarliest StartPosition = "EARLIEST"
	StartLatest   StartPosition = "LATEST"
)

// GroupState is the state of a consumer group. The set is closed on the wire.
type GroupState string

// ASSIGNING exists for the reference's clients; it is never sent.
const (
	GroupEmpty       GroupState = "EMPTY"
	GroupAssigning   GroupState = "ASSIGNING"
	GroupReconciling GroupState = "RECONCILING"
	GroupStable      GroupState = "STABLE"
)

// MemberState is the state of a member as views show it. The set is closed on the wire; a
// member that is away is shown as LEAVING.
type MemberState string

// The states of a member.
const (
	MemberActive  MemberState = "ACTIVE"
	MemberLeaving MemberState = "LEAVING"
	MemberExpired MemberState = "EXPIRED"
	MemberFenced  MemberState = "FENCED"
)

// MigrationState is how the reference names the states of a resharding.
type MigrationState string

// The states; MigrationStateOf maps phases onto them.
const (
	MigrationPreparing   MigrationState = "PREPARING"
	MigrationActive      MigrationState = "ACTIVE"
	MigrationDraining    MigrationState = "DRAINING"
	MigrationDeprecated  MigrationState = "DEPRECATED"
	MigrationRollingBack MigrationState = "ROLLING_BACK"
	MigrationRolledBack  MigrationState = "ROLLED_BACK"
)

// MigrationStateOf shows a phase in the reference's words.
func MigrationStateOf(p Phase) MigrationState {
	switch p {
	case PhaseProvisioning:
		return MigrationPreparing
	case PhaseSealing, PhaseDraining, PhaseActivating:
		return MigrationActive
	case PhaseOpening, PhaseDrainingRemoved, PhaseConverging, PhaseRetiring:
		return MigrationDraining
	case PhaseRollingBack:
		return MigrationRollingBack
	case PhaseRolledBack, PhaseFailed:
		return MigrationRolledBack
	case PhaseCompleted:
		return MigrationDeprecated
	}
	return MigrationPreparing
}

// GroupSpec is the desired state of a consumer group. Zero values mean the server's
// defaults: EARLIEST, 15 s, 3 s, 60 s.
type GroupSpec struct {
	StartPosition       StartPosition `json:"startPosition,omitempty" validate:"omitempty,oneof=EARLIEST LATEST"`
	MemberLeaseMs       int64         `json:"memberLeaseMs,omitempty" validate:"omitempty,min=1000,max=600000"`
	HeartbeatIntervalMs int64         `json:"heartbeatIntervalMs,omitempty" validate:"omitempty,min=100,max=120000"`
	RebalanceTimeoutMs  int64         `json:"rebalanceTimeoutMs,omitempty" validate:"omitempty,min=100,max=3600000"`
}

// MinMemberLeaseMs is the shortest lease that a group may have.
const MinMemberLeaseMs = 1000

// DefaultGroupSpec holds the defaults of GroupSpec.
func DefaultGroupSpec() GroupSpec {
	return GroupSpec{StartPosition: StartEarliest, MemberLeaseMs: 15000, HeartbeatIntervalMs: 3000, RebalanceTimeoutMs: 60000}
}

// WithDefaults fills zero values. A lease without an interval takes a fifth of it, an
// interval without a lease takes the shortest that it allows.
func (s GroupSpec) WithDefaults() GroupSpec {
	d := DefaultGroupSpec()
	if s.StartPosition == "" {
		s.StartPosition = d.StartPosition
	}
	switch {
	case s.MemberLeaseMs == 0 && s.HeartbeatIntervalMs == 0:
		s.MemberLeaseMs, s.HeartbeatIntervalMs = d.MemberLeaseMs, d.HeartbeatIntervalMs
	case s.MemberLeaseMs == 0:
		s.MemberLeaseMs = MinLeaseMs(s.HeartbeatIntervalMs)
	case s.HeartbeatIntervalMs == 0:
		s.HeartbeatIntervalMs = s.MemberLeaseMs / 5
	}
	if s.RebalanceTimeoutMs == 0 {
		s.RebalanceTimeoutMs = d.RebalanceTimeoutMs
	}
	return s
}

// LeaseMargin is δ: how much earlier than the coordinator a client ends its own lease. A
// tenth of the lease, at least 500 ms, but never more than a quarter of it.
func LeaseMargin(lease time.Duration) time.Duration {
	return min(max(lease/10, 500*time.Millisecond), lease/4)
}

// RequestTimeout is T: how long a client waits for the answer to a heartbeat that may be
// held for hold. The slack over the hold is 2 s, less where the lease is shorter than 15 s.
func RequestTimeout(hold, lease time.Duration) time.Duration {
	return hold + min(2*time.Second, lease*2/15)
}

// MinLeaseMs is the shortest lease that an interval allows: one lost call must cost nothing
// (rule T1: 2·H + T + one round trip ≤ L − δ).
func MinLeaseMs(intervalMs int64) int64 { return max(5*intervalMs, MinMemberLeaseMs) }

// Check validates a filled spec against the timing rules of the hand-over protocol.
func (s GroupSpec) Check() *Error {
	if s.MemberLeaseMs < MinLeaseMs(s.HeartbeatIntervalMs) {
		return Invalid("memberLeaseMs", "is shorter than 5 × heartbeatIntervalMs: one lost heartbeat would cost the member its shards; raise it or lower heartbeatIntervalMs")
	}
	return nil
}

// PutGroupRequest is the body of PUT …/groups/{g}.
type PutGroupRequest struct {
	GroupSpec
	RequestedBy string `json:"requestedBy,omitempty" validate:"max=1024"`
	Reason      string `json:"reason,omitempty" validate:"max=1024"`
}

// Group answers GET and PUT …/groups/{g}: the reference's GroupResponse with our fields added.
type Group struct {
	StreamPrefix             string         `json:"streamPrefix"`
	ConsumerGroup            string         `json:"consumerGroup"`
	State                    GroupState     `json:"state"`
	GroupEpoch               int64          `json:"groupEpoch"`
	AssignmentEpoch          int64          `json:"assignmentEpoch"`
	MetadataVersion          int64          `json:"metadataVersion"`
	ShardCount               int            `json:"shardCount"`
	ActiveMigration          *Migration     `json:"activeMigration"`
	TargetAssignmentSummary  map[string]int `json:"targetAssignmentSummary"`
	CurrentAssignmentSummary map[string]int `json:"currentAssignmentSummary"`

	Spec       GroupSpec `json:"spec"`
	Generation int64     `json:"generation"` // of Spec: 1 at registration, one more with each change
	Ready      bool      `json:"ready"`      // its Redis consumer group exists on every shard
	CreatedAt  time.Time `json:"createdAt"`  // of its registration: tells it from one of the name that was deleted
}

// GroupList answers GET /monitoring/groups.
type GroupList struct {
	Groups []Group `json:"groups"`
}

// Migration is a resharding in the reference's shape.
type Migration struct {
	ReshardingID   string         `json:"reshardingId"`
	FromShardCount int            `json:"fromShardCount"`
	ToShardCount   int            `json:"toShardCount"`
	State          MigrationState `json:"state"`
	CreatedAt      time.Time      `json:"createdAt"`
	UpdatedAt      time.Time      `json:"updatedAt"`
}

// MigrationList answers GET /monitoring/…/migrations.
type MigrationList struct {
	Migrations         []Migration `json:"migrations"`
	ActiveReshardingID *string     `json:"activeReshardingId"`
}

// CreateRequest is the reference's body of POST /streams/{p} and POST …/groups/{g}.
type CreateRequest struct {
	InitialShardCount *int64 `json:"initialShardCount"`
	RequestedBy       string `json:"requestedBy" validate:"required,max=1024"`
	Reason            string `json:"reason,omitempty" validate:"max=1024"`
}

// StreamCreateResponse answers POST /streams/{p}.
type StreamCreateResponse struct {
	StreamPrefix    string `json:"streamPrefix"`
	ShardCount      int    `json:"shardCount"`
	MetadataVersion int64  `json:"metadataVersion"`
}

// DeleteGroupRequest is the body of DELETE …/groups/{g}.
type DeleteGroupRequest struct {
	RequestedBy string `json:"requestedBy" validate:"required,max=1024"`
	Reason      string `json:"reason" validate:"required,max=1024"`
	Force       bool   `json:"force"`
}

// ScaleRequest is the body of POST /streams/{p}/scale and POST …/groups/{g}/scale.
type ScaleRequest struct {
	TargetShardCount *int64  `json:"targetShardCount" validate:"required"`
	RequestedBy      string  `json:"requestedBy" validate:"required,max=1024"`
	Reason           string  `json:"reason" validate:"required,max=1024"`
	DeprecatedAfter  *string `json:"deprecatedAfter,omitempty"`
}

// StreamScaleResponse answers POST /streams/{p}/scale.
type StreamScaleResponse struct {
	StreamPrefix           string      `json:"streamPrefix"`
	TargetShardCount       int         `json:"targetShardCount"`
	AffectedConsumerGroups []string    `json:"affectedConsumerGroups"`
	Migrations             []Migration `json:"migrations"`
}

// ProducerRouting answers GET …/groups/{g}/producer-routing, for the reference's producers.
type ProducerRouting struct {
	StreamPrefix     string         `json:"streamPrefix"`
	ConsumerGroup    string         `json:"consumerGroup"`
	MetadataVersion  int64          `json:"metadataVersion"`
	ShardCount       int            `json:"shardCount"`
	StreamKeyPattern string         `json:"streamKeyPattern"`
	Shards           []RoutingShard `json:"shards"`
}

// MemberView is one member in monitoring answers.
type MemberView struct {
	MemberID              string          `json:"memberId"`
	MemberName            string          `json:"memberName"`
	State                 MemberState     `json:"state"`
	MemberEpoch           int64           `json:"memberEpoch"`
	MetadataVersion       int64           `json:"metadataVersion"`
	RuntimeMaxConcurrency int             `json:"runtimeMaxConcurrency"`
	ActiveConsumerWorkers int             `json:"activeConsumerWorkers"`
	CurrentAssignment     []Shard         `json:"currentAssignment"`
	GrantedAssignment     []Shard         `json:"grantedAssignment"`
	Revoking              []Shard         `json:"revoking"`
	LastHeartbeatAt       time.Time       `json:"lastHeartbeatAt"`
	MemberLeaseExpiresAt  time.Time       `json:"memberLeaseExpiresAt"`
	RebalanceTimeoutMs    int64           `json:"rebalanceTimeoutMs"`
	RebalanceDeadlineAt   *time.Time      `json:"rebalanceDeadlineAt"`
	ShardProgress         []ShardProgress `json:"shardProgress"`
}

// MemberList answers GET /monitoring/…/members.
type MemberList struct {
	Members []MemberView `json:"members"`
}

// Assignments answers GET /monitoring/…/assignments.
type Assignments struct {
	TargetAssignment    map[string][]Shard `json:"targetAssignment"`
	CurrentAssignments  map[string][]Shard `json:"currentAssignments"`
	RevokeProgress      map[string][]Shard `json:"revokeProgress"`
	InvariantViolations []string           `json:"invariantViolations"`
}

package protocol

import "time"

// HeartbeatVersion is the only coordination version; ReferenceVersions of the wire.
const HeartbeatVersion = 1

// Special member epochs of a heartbeat request.
const (
	EpochJoin  int64 = 0  // open a session
	EpochLeave int64 = -1 // leave for good
	EpochAway  int64 = -2 // "I will be back": targets stay until the lease ends
)

// HeartbeatStatus is the outcome of a heartbeat. The set is closed: clients of the reference
// fail on a name that they do not know.
type HeartbeatStatus string

// Only OK, REVOKE_PENDING and SYNC_METADATA extend the lease of the member.
const (
	StatusOK                  HeartbeatStatus = "OK"
	StatusRetry               HeartbeatStatus = "RETRY"
	StatusSyncMetadata        HeartbeatStatus = "SYNC_METADATA"
	StatusRevokePending       HeartbeatStatus = "REVOKE_PENDING"
	StatusUnknownMemberID     HeartbeatStatus = "UNKNOWN_MEMBER_ID"
	StatusFencedMemberEpoch   HeartbeatStatus = "FENCED_MEMBER_EPOCH"
	StatusUnsupportedProtocol HeartbeatStatus = "UNSUPPORTED_PROTOCOL"
	StatusInvalidRequest      HeartbeatStatus = "INVALID_REQUEST"
)

// ExtendsLease says whether an answer with this status extends the client's lease.
func (s HeartbeatStatus) ExtendsLease() bool {
	return s == StatusOK || s == StatusRevokePending || s == StatusSyncMetadata
}

// Reasons that explain a refusal (additive field "reason").
const (
	ReasonIDInUse     = "ID_IN_USE"    // with INVALID_REQUEST: another live process has this member id
	ReasonSessionOver = "SESSION_OVER" // with FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID: take a new incarnation
)

// Shard is a shard index as it stands on the wire: {"shardIndex": 3}.
type Shard struct {
	ShardIndex int `json:"shardIndex"`
}

// Shards converts indexes to their wire form; never nil.
func Shards(indexes []int) []Shard {
	out := make([]Shard, len(indexes))
	for i, x := range indexes {
		out[i].ShardIndex = x
	}
	return out
}

// Indexes converts back from the wire form.
func Indexes(shards []Shard) []int {
	out := make([]int, len(shards))
	for i, s := range shards {
		out[i] = s.ShardIndex
	}
	return out
}

// RevokingState is how far a member is with letting a shard go.
type RevokingState string

// REVOKED with nothing in flight counts as not listed at all.
const (
	RevokingRevoking RevokingState = "REVOKING"
	RevokingDraining RevokingState = "DRAINING"
	RevokingRevoked  RevokingState = "REVOKED"
)

// RevokingShard is a shard that the member was told to let go and still drains.
type RevokingShard struct {
	Shard    Shard         `json:"shard"`
	State    RevokingState `json:"state"`
	InFlight int           `json:"inFlight"`
	AckedAt  *time.Time    `json:"ackedAt,omitempty"`
}

// Released says whether the item reports a finished revocation.
func (r RevokingShard) Released() bool { return r.State == RevokingRevoked && r.InFlight == 0 }

// Capacity is what a member says of its workers; observation only.
type Capacity struct {
	RuntimeMaxConcurrency int `json:"runtimeMaxConcurrency"`
	AvailableConcurrency  int `json:"availableConcurrency"`
}

// ShardProgress is what a member says of its reading; observation only.
type ShardProgress struct {
	Shard           Shard      `json:"shard"`
	StreamKey       string     `json:"streamKey"`
	LastDeliveredID *string    `json:"lastDeliveredId"`
	LastAckedID     *string    `json:"lastAckedId"`
	PendingCount    int64      `json:"pendingCount"`
	UpdatedAt       *time.Time `json:"updatedAt"`
}

// OwnershipSeen is a higher ownership epoch that a member met in a control hash.
type OwnershipSeen struct {
	Shard Shard `json:"shard"`
	Epoch int64 `json:"epoch"`
}

// HeartbeatRequest joins, stays alive, reports and leaves. The last four fields are ours;
// clients of the reference do not send them.
type HeartbeatRequest struct {
	ProtocolVersion         int             `json:"protocolVersion"`
	RequestID               string          `json:"requestId"`
	MemberID                string          `json:"memberId"`
	MemberName              *string         `json:"memberName,omitempty"`
	MemberEpoch             int64           `json:"memberEpoch"`
	MetadataVersion         int64           `json:"metadataVersion"`
	RuntimeConsumerCapacity Capacity        `json:"runtimeConsumerCapacity"`
	OwnedShards             []Shard         `json:"ownedShards"`
	RevokingShards          []RevokingShard `json:"revokingShards"`
	ShardProgress           []ShardProgress `json:"shardProgress"`

	Incarnation   string          `json:"incarnation,omitempty"`   // this session: random, made by the client
	Replaces      string          `json:"replaces,omitempty"`      // an incarnation that the client knows to be finished
	MaxWaitMs     int64           `json:"maxWaitMs,omitempty"`     // may be held this long until the answer would change
	OwnershipSeen []OwnershipSeen `json:"ownershipSeen,omitempty"` // higher epochs met in Redis
}

// Assignment is what the member may read, and what it is to get later.
type Assignment struct {
	AssignedShards  []Shard `json:"assignedShards"` // ascending
	PendingShards   []Shard `json:"pendingShards"`  // ascending
	MetadataVersion int64   `json:"metadataVersion"`
	// OwnershipEpochs has one epoch for each assigned shard, by decimal shard index.
	OwnershipEpochs map[string]int64 `json:"ownershipEpochs,omitempty"`
}

// HeartbeatResponse answers a HeartbeatRequest. MemberLeaseMs and Reason are ours.
type HeartbeatResponse struct {
	ResponseTo          string          `json:"responseTo"`
	Status              HeartbeatStatus `json:"status"`
	MemberID            string          `json:"memberId"`
	MemberEpoch         int64           `json:"memberEpoch"`
	HeartbeatIntervalMs int64           `json:"heartbeatIntervalMs"`
	RebalanceTimeoutMs  int64           `json:"rebalanceTimeoutMs"`
	GroupEpoch          int64           `json:"groupEpoch"`
	AssignmentEpoch     int64           `json:"assignmentEpoch"`
	MetadataVersion     int64           `json:"metadataVersion"`
	Assignment          Assignment      `json:"assignment"`

	MemberLeaseMs int64  `json:"memberLeaseMs,omitempty"`
	Reason        string `json:"reason,omitempty"`
}

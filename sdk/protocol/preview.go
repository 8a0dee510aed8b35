package protocol

import "time"

// Preview answers PUT /streams/{p}?dryRun=true: what the same call without dryRun would do, as
// far as it can be known now. Nothing is changed by it. A number that is not known is null.
type Preview struct {
	StreamPrefix string    `json:"streamPrefix"`
	TakenAt      time.Time `json:"takenAt"`
	Generation   int64     `json:"generation"` // that was looked at, 0 when there is no such stream
	// Action is CREATE, NONE, UPDATE (settings only), RESHARD, ATTACH (a running resharding goes there
	// already) or CANCEL (it would be rolled back, since its old count is asked for).
	Action         PreviewAction     `json:"action"`
	ReshardingID   string            `json:"reshardingId,omitempty"` // of ATTACH and CANCEL
	FromShardCount int               `json:"fromShardCount"`         // of CANCEL: the one in force, which stays
	ToShardCount   int               `json:"toShardCount"`
	Resharding     ReshardingPolicy  `json:"resharding"` // the policy in effect, defaults filled in; of ATTACH the running one's
	ShardsAdded    []int             `json:"shardsAdded"`
	ShardsRemoved  []int             `json:"shardsRemoved"`
	MovedFraction  float64           `json:"movedFraction"` // share of all keys whose shard changes, 0..1
	Publishing     PreviewPublishing `json:"publishing"`
	Barrier        string            `json:"barrier"` // XSETID, LEASE, NONE (nothing is sealed) or UNKNOWN
	Groups         []PreviewGroup    `json:"groups"`  // every Redis consumer group on the shards, and every registered one
	// Blockers would refuse the call or make the resharding fail; Risks would not, but someone should
	// know; Unknown is what could not be found out, in sentences.
	Blockers []PreviewNote `json:"blockers"`
	Risks    []PreviewNote `json:"risks"`
	Unknown  []string      `json:"unknown"`
}

// PreviewAction is what a PUT would do.
type PreviewAction string

// The actions; see Preview.
const (
	PreviewCreate  PreviewAction = "CREATE"
	PreviewNone    PreviewAction = "NONE"
	PreviewUpdate  PreviewAction = "UPDATE"
	PreviewReshard PreviewAction = "RESHARD"
	PreviewAttach  PreviewAction = "ATTACH"
	PreviewCancel  PreviewAction = "CANCEL"
)

// PreviewPublishing says whether producers are paused and for about how long.
type PreviewPublishing struct {
	Paused     bool     `json:"paused"`
	EstimateMs *int64   `json:"estimateMs"` // null: not known
	LimitMs    int64    `json:"limitMs"`    // pauseTimeout; 0 when nothing is paused
	Basis      string   `json:"basis"`      // what the estimate rests on, or why there is none
	Producers  []string `json:"producers"`  // producer ids seen lately, at most 100, sorted
}

// PreviewGroup is one consumer group, summed over the shards that have to be drained (in the
// drain scope before the layout changes, and removed ones after it).
type PreviewGroup struct {
	Group   string `json:"group"`
	Managed bool   `json:"managed"` // in the stream's registry
	Ignored bool   `json:"ignored"` // by the policy's ignoreGroups
	// Members are those of a managed group that are live, and those that lose or gain a shard.
	LiveMembers     int      `json:"liveMembers"`
	AffectedMembers []string `json:"affectedMembers"` // at most 100, sorted
	AffectedCount   int      `json:"affectedCount"`   // of all of them
	Pending         int64    `json:"pending"`
	Undelivered     int64    `json:"undelivered"`
	UndeliveredMore bool     `json:"undeliveredMore,omitempty"` // there are more than were counted
	// Lag is how many there are by Redis's own counters: never too few, often too many; null
	// where they do not tell.
	Lag             *int64   `json:"lag"`
	RatePerSecond   *float64 `json:"ratePerSecond"`   // acknowledgements observed, null: not known
	DrainEstimateMs *int64   `json:"drainEstimateMs"` // null: not known
	Basis           string   `json:"basis"`           // what the estimate rests on, or why there is none
}

// RemovalPreview answers DELETE …/groups/{g}?dryRun=true: what the same call without dryRun would
// do, as far as it can be known now. Nothing is changed by it.
type RemovalPreview struct {
	StreamPrefix  string    `json:"streamPrefix"`
	ConsumerGroup string    `json:"consumerGroup"`
	TakenAt       time.Time `json:"takenAt"`
	Generation    int64     `json:"generation"`  // of the group, that was looked at
	Force         bool      `json:"force"`       // as asked for
	LiveMembers   int       `json:"liveMembers"` // whose lease has not ended
	// What the group has left, in sum and on each shard that has some of it, ascending.
	Pending         int64          `json:"pending"`
	Undelivered     int64          `json:"undelivered"`
	UndeliveredMore bool           `json:"undeliveredMore,omitempty"` // there are more than were counted
	Shards          []ShardBacklog `json:"shards"`
	// Blockers would refuse the call, the first one as it is refused; Risks are what force gives up,
	// none without it; Unknown is what could not be found out, in sentences.
	Blockers []PreviewNote `json:"blockers"`
	Risks    []PreviewNote `json:"risks"`
	Unknown  []string      `json:"unknown"`
}

// ShardBacklog is what a group has left on one shard.
type ShardBacklog struct {
	ShardIndex      int   `json:"shardIndex"`
	Pending         int64 `json:"pending"`
	Undelivered     int64 `json:"undelivered"`
	UndeliveredMore bool  `json:"undeliveredMore,omitempty"` // there are more than were counted
}

// RemovalPreviewRequest is the body of DELETE …/groups/{g}?dryRun=true, which may be left out. It
// names nobody: what loses the dryRun on its way to the coordinator is refused there.
type RemovalPreviewRequest struct {
	Force bool `json:"force"`
}

// PreviewNote is one blocker or risk. Codes of blockers are those of errors where the call would
// be refused with one.
type PreviewNote struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Codes of notes that are no error codes of a refused call.
const (
	NoteGroupWithoutMembers = "GROUP_WITHOUT_LIVE_MEMBERS" // it has a backlog to drain and nobody who reads
	NoteUnmanagedGroup      = "UNMANAGED_GROUP"            // with a backlog; it counts for the drain
	NoteLeaseBarrier        = "LEASE_BARRIER"              // XSETID is forbidden: plain producers are not held back
	NoteOrderNotPromised    = "ORDER_NOT_PROMISED"
	NoteDrainTooSlow        = "DRAIN_LONGER_THAN_PAUSE"
	NoteEntriesDeleted      = "ENTRIES_DELETED" // what is left on removed shards goes with them
	NotePublishingPaused    = "PUBLISHING_PAUSED"
	NoteShardExhausted      = "SHARD_EXHAUSTED"      // cannot be unsealed: appends to it stay refused
	NoteShardMissing        = "SHARD_MISSING"        // of the present layout, not there or retired
	NoteShardUnreadable     = "SHARD_UNREADABLE"     // it did not answer
	NoteGroupMissing        = "GROUP_MISSING"        // registered, but not on a shard that is to be drained
	NoteIgnoredBacklog      = "IGNORED_BACKLOG"      // of an ignored group, on shards that are removed
	NoteNoShardsLeft        = "NO_SHARDS_LEFT"       // nothing can be appended afterwards
	NotePolicyNotApplied    = "POLICY_NOT_APPLIED"   // a running resharding keeps the policy that it began with
	NoteRetentionRemoves    = "RETENTION_REMOVES"    // the new retention takes entries away, delivered or not
	NotePlainProducers      = "PLAIN_PRODUCERS_SEEN" // producers that do not fence: the pause waits for their caches
	NoteMembersFenced       = "LIVE_MEMBERS_FENCED"  // of a group that is removed by force
	NoteBacklogLost         = "GROUP_BACKLOG_LOST"   // to a group that is removed by force
)

// MovedFraction is the share of all keys whose shard differs between two shard counts: of the
// residues modulo lcm(from, to), min(from, to) stay. 1 when one of them is 0, 0 when both are.
func MovedFraction(from, to int) float64 {
	switch {
	case from == to:
		return 0
	case from <= 0 || to <= 0:
		return 1
	}
	a, b := from, to
	for b != 0 {
		a, b = b, a%b
	}
	lcm := float64(from) / float64(a) * float64(to)
	return 1 - float64(min(from, to))/lcm
}

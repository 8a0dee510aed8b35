// Package shardscript holds what coordinator and clients share of the scripts that run beside
// a shard: their names, their reply codes and their Lua source. docs/protocol/resharding.md
// 1.3 and 1.4 are the rules. It talks to no Redis itself.
package shardscript

// Name of a script.
type Name string

// The scripts of the coordinator and, from Append on, of clients.
const (
	Prepare   Name = "PREPARE"
	Provision Name = "PROVISION"
	Seal      Name = "SEAL"
	Evidence  Name = "EVIDENCE"
	Decide    Name = "DECIDE"
	Look      Name = "LOOK"
	Open      Name = "OPEN"
	Release   Name = "RELEASE"
	Undo      Name = "UNDO"
	RetireOne Name = "RETIRE"
	Hold      Name = "HOLD"
	MkGroup   Name = "MKGROUP"
	Survey    Name = "SURVEY"  // the sweep's read-only look: control hash, existence, length, sealed as a fact
	Purge     Name = "PURGE"   // stream deleted: the tombstone gets its expiry
	Recheck   Name = "RECHECK" // what can still be seen of a certificate
	Probe     Name = "PROBE"   // a dry run's read-only look: all that SURVEY and EVIDENCE see, of any shard

	RmGroup Name = "RMGROUP" // a group was deleted: its consumer group goes
	Retain  Name = "RETAIN"  // a slice of what the stream's retention lets go of

	Append         Name = "APPEND"
	Resolve        Name = "RESOLVE"
	Bring          Name = "BRING"
	Takeover       Name = "TAKEOVER"
	CheckAck       Name = "CHECKACK" // ack of the batch before and check of the read, in one
	DeleteConsumer Name = "DELCONSUMER"
)

// Code is the first element of a script's reply.
type Code string

// The codes, as docs/protocol/resharding.md 1.4 uses them.
const (
	OK        Code = "OK"
	Ahead     Code = "AHEAD"
	Unfenced  Code = "UNFENCED"
	Late      Code = "LATE"
	Unknown   Code = "UNKNOWN"
	Foreign   Code = "FOREIGN"
	Leftover  Code = "LEFTOVER"
	NotHeld   Code = "NOTHELD"
	Aborted   Code = "ABORTED"
	Drained   Code = "DRAINED"
	Busy      Code = "BUSY"
	Decided   Code = "DECIDED"
	Unsealed  Code = "UNSEALED"
	Gone      Code = "GONE"
	NotEmpty  Code = "NOTEMPTY"
	NotFenced Code = "NOTFENCED"
	Exists    Code = "EXISTS"
	Archived  Code = "ARCHIVED" // RECHECK: retired, and its archive is there
	Retired   Code = "RETIRED"
	Exhausted Code = "EXHAUSTED"
	Damaged   Code = "DAMAGED" // the control hash is no hash, or has no number where one belongs; nothing was done
	SealError Code = "SEALERR" // XSETID was refused; the text is in field "error"

	Stale     Code = "STALE"
	Behind    Code = "BEHIND"
	Sealed    Code = "SEALED"
	Overdue   Code = "OVERDUE"
	NoShard   Code = "NOSHARD"
	Failed    Code = "FAILED"
	Wait      Code = "WAIT"
	InForce   Code = "IN_FORCE"
	Nothing   Code = "NOTHING"
	NotOwner  Code = "NOTOWNER"  // field "owner": the higher epoch
	LostOwner Code = "LOSTOWNER" // a lower epoch or none: the node lost writes
	NoGroup   Code = "NOGROUP"   // the consumer group is missing: MKGROUP by the owner re-creates it
)

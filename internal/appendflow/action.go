package appendflow

import (
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Input is something that the driver learnt.
type Input interface{ input() }

// Routing is the coordinator's answer about the layout, asked for by Refresh or held.
type Routing struct {
	Layout Layout
	Open   bool // publish state
	// LeaseEnd is the instant until which bare appends may rely on it, counted from when it
	// was asked for.
	LeaseEnd time.Duration
	// Awaited says that no layout has ever been in force: the stream was just made, and its first
	// shards are on their way.
	Awaited bool
	// Err refuses the routing as a whole, e.g. because its hash is unknown: nothing is appended.
	Err error
}

// RoutingFailed says that no coordinator answered; Permanent that one answered and has no
// routing for this producer (no such stream, bad credentials).
type RoutingFailed struct {
	Err       error
	Permanent bool
}

// Shard0 answers Look: the layout in the control hash of shard 0, if it could be read.
type Shard0 struct {
	Layout Layout
	Found  bool
}

// Replied answers Send.
type Replied struct {
	Batch *Batch
	Reply Reply
}

// Resolved answers Resolve: WAIT, or IN_FORCE and the layout. Any other code is a failure.
type Resolved struct {
	Shard  int
	Code   shardscript.Code
	Layout Layout
}

// Brought answers Bring; whatever the outcome, the append is tried again.
type Brought struct {
	Shard  int
	Failed bool // no answer
}

func (Routing) input()       {}
func (RoutingFailed) input() {}
func (Shard0) input()        {}
func (Replied) input()       {}
func (Resolved) input()      {}
func (Brought) input()       {}

// Reply is what became of a batch.
type Reply struct {
	// Code of the script, "" when none answered: then Err says why.
	Code shardscript.Code
	// Landed entries of a FAILED batch, from its start.
	Landed int
	// InForce, Gate, Until and Hold are what the refusing shard holds; instants in
	// milliseconds of its node's time, 0 if it has none.
	InForce     Layout
	Gate        string
	Until, Hold int64
	// Remaining time to the later of Until and Hold; negative when unknown.
	Remaining time.Duration
	// Sealed says that what did not land of a FAILED batch met a seal.
	Sealed bool
	// Err of a batch that failed. Lost: it may have landed; Retriable: it has not, and may later.
	Err             error
	Lost, Retriable bool
	// Fates of a plain batch, one for each entry, in place of all above.
	Fates []Fate
}

// Fate is what became of one bare append.
type Fate struct {
	Refused bool  // sealed, or no such key: the script will find out which
	Err     error // nil: it landed
	Lost    bool  // Err: it may have landed
}

// Action is something that the driver has to do.
type Action interface{ action() }

// Send appends a batch.
type Send struct{ Batch *Batch }

// Refresh asks the coordinator for the routing, without a hold.
type Refresh struct{}

// Look reads epoch and count in the control hash of shard 0, from its primary.
type Look struct{}

// Resolve runs RESOLVE at shard 0 for a pause whose deadline has passed at Shard, and waits
// for the replicas.
type Resolve struct {
	Shard int
	Gate  string
	Until int64
	Epoch int64
}

// Bring runs BRING at Shard.
type Bring struct {
	Shard  int
	Layout Layout
	Gate   string
}

// Done ends an entry: nil means that it landed.
type Done struct {
	Entry *Entry
	Err   error
}

func (Send) action()    {}
func (Refresh) action() {}
func (Look) action()    {}
func (Resolve) action() {}
func (Bring) action()   {}
func (Done) action()    {}

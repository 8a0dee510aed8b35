package membership

import (
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Input is something that happened to the member.
type Input interface{ input() }

// Answered is the coordinator's answer to a call.
type Answered struct {
	Call     int64
	Response protocol.HeartbeatResponse
}

// Failed is a call without an answer: not reached, 5xx, unreadable. Permanent says that the
// coordinator refuses this client for good (bad credentials, a request that it cannot read).
type Failed struct {
	Call      int64
	Err       error
	Permanent bool
}

// Drained says that nothing of a revoked ownership is in flight any more.
type Drained struct {
	Shard int
	Epoch int64
}

// Seen is an ownership epoch above the member's own that was met in Redis (D6).
type Seen struct {
	Shard int
	Epoch int64
}

// Stop ends the membership: for good, or, when Static, "I will be back" (M10).
type Stop struct{ Static bool }

func (Answered) input() {}
func (Failed) input()   {}
func (Drained) input()  {}
func (Seen) input()     {}
func (Stop) input()     {}

// Action is something that the driver has to do.
type Action interface{ action() }

// Send asks for one call, in place of the one before. The driver may fill in what is observed
// only: available concurrency, progress, and the inFlight of revoking shards (1 or more).
type Send struct {
	Call    int64
	Request protocol.HeartbeatRequest
	Timeout time.Duration // give up after this long; Step counts it as failed then, told or not
}

// Lease tells a new lease end. An End that has passed means that nothing may be read.
type Lease struct{ End time.Duration }

// Own lets the member read a shard from now on, once it has taken it over under this epoch.
type Own struct {
	Shard int
	Epoch int64
}

// Revoke ends the reading of a shard: entries that no handler has begun are dropped, running
// handlers are awaited, then Drained is due (M5).
type Revoke struct {
	Shard int
	Epoch int64
}

// Drop ends an ownership at once: no read, no dispatch, no acknowledgement; contexts of its
// handlers end. Shards that were draining are dropped like those that were read.
type Drop struct {
	Shard int
	Epoch int64
	Cause Cause
}

// Joined tells that the coordinator admitted a session under this incarnation.
type Joined struct {
	Incarnation string
	Epoch       int64
}

// Session tells the incarnation that will be sent from now on. A driver that keeps it over
// restarts (M9) stores it before the Send that follows.
type Session struct{ Incarnation string }

// Stopped is the last action. Err is nil after Stop.
type Stopped struct{ Err error }

func (Send) action()    {}
func (Lease) action()   {}
func (Own) action()     {}
func (Revoke) action()  {}
func (Drop) action()    {}
func (Joined) action()  {}
func (Session) action() {}
func (Stopped) action() {}

// Cause says why an ownership was dropped.
type Cause string

// The causes.
const (
	LeaseEnded Cause = "lease ended"    // M3
	Fenced     Cause = "session over"   // M7
	NewEpoch   Cause = "new ownership"  // D6: the shard comes back under a higher epoch at once
	Refused    Cause = "client refused" // the coordinator refuses this client
	Left       Cause = "member stopped"
)

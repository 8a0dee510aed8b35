package engine

import (
	"sync/atomic"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
)

// command is one request on its way through the actor of its stream.
type command struct {
	// apply decides the command and keeps its result for whoever waits on done. It may run
	// several times: only the last run counts, and only after its turn was committed.
	apply func(t *aggregate.Turn) *protocol.Error
	// audit is appended in the commit when the last apply was not refused; may be nil.
	audit *protocol.AuditEvent

	// member and group are set on heartbeats: a member with a request in a batch is not expired
	// by it (C7).
	group, member string
	// observation is the member's report, stored beside the commit; nil for none.
	observation []byte

	// unchanged, when set, says whether the answer would still be what the client has: the
	// command is then held until it is false or the deadline passes, and decided anew (4.8).
	unchanged func(u aggregate.Unit) bool
	deadline  time.Time
	// steady is set by apply when the command could be held as of its own application. Should
	// another command of the same batch have changed that, its answer is old news already: it is
	// decided anew rather than sent, or its client would wait out its interval unheld.
	steady bool

	// notAfter bounds the commit, for what rests on replies of shards; 0 for none.
	notAfter protocol.Instant

	// inspect, when set, looks at the actor after the command was committed.
	inspect func(a *actor)

	refused *protocol.Error // of the last apply
	done    chan *protocol.Error

	state atomic.Int32 // waiting, taken or abandoned
	left  atomic.Bool  // the caller's context has ended
}

// A command waits in the queue or among the held, is taken by a turn, or is abandoned by its
// caller while it waits. What a turn has taken is never abandoned: its outcome is near, and both
// the caller's variables and the audit log depend on it.
const (
	waiting int32 = iota
	taken
	abandoned
)

func newCommand(apply func(t *aggregate.Turn) *protocol.Error) *command {
	return &command{apply: apply, done: make(chan *protocol.Error, 1)}
}

// take claims the command for a turn; false when nobody waits for it any more.
func (c *command) take() bool { return c.state.CompareAndSwap(waiting, taken) }

// hold puts the command back among those that wait; false when its caller has left meanwhile
// and waits for the end of the turn.
func (c *command) hold() bool {
	c.state.Store(waiting)
	return !c.left.Load() || !c.take()
}

// leave gives the command up; false when a turn has it and will finish it.
func (c *command) leave() bool {
	c.left.Store(true)
	return c.state.CompareAndSwap(waiting, abandoned)
}

func (c *command) abandoned() bool { return c.state.Load() == abandoned }

// finish answers the command; only the first answer counts. err is a failure of the turn; else
// the refusal of apply counts.
func (c *command) finish(err *protocol.Error) {
	if err == nil {
		err = c.refused
	}
	select {
	case c.done <- err:
	default:
	}
}

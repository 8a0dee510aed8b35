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

	// notAfter bounds the commit, for what rests on replies of shards; 0 for none.
	notAfter protocol.Instant

	// inspect, when set, looks at the actor after the command was committed.
	inspect func(a *actor)

	refused   *protocol.Error // of the last apply
	done      chan *protocol.Error
	abandoned atomic.Bool // nobody waits any more
}

func newCommand(apply func(t *aggregate.Turn) *protocol.Error) *command {
	return &command{apply: apply, done: make(chan *protocol.Error, 1)}
}

// finish answers the command. err is a failure of the turn; else the refusal of apply counts.
func (c *command) finish(err *protocol.Error) {
	if err == nil {
		err = c.refused
	}
	c.done <- err
}

package stream

import "github.com/redisstream/terraform-provider-redisstream/sdk/protocol"

// SetIdentity records the identity of the Redis server that the aggregates are on now (S12 of
// the hand-over protocol; the rows and epochs of the groups are recovered in the same commit).
func (t *Turn) SetIdentity(identity string, now protocol.Instant) {
	if t.State().ServerIdentity == identity {
		return
	}
	t.edit(now).ServerIdentity = identity
	t.settle(now)
}

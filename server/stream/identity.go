package stream

import "github.com/redisstream/terraform-provider-redisstream/sdk/protocol"

// lostWritesJump is added to version numbers that clients hold after Redis lost writes: beyond
// any that was told in the lost history.
const lostWritesJump = 1000

// SetIdentity is the stream's part of the recovery after lost writes (S12 of the hand-over
// protocol; the rows and epochs of the groups are recovered in the same commit): the identity of
// the Redis server that the aggregates are on now, and versions above those that were lost, so
// that no client takes an old routing table for the present one.
func (t *Turn) SetIdentity(identity string, now protocol.Instant) {
	s := t.edit(now)
	s.ServerIdentity = identity
	s.MetadataVersion += lostWritesJump
	s.RoutingVersion += lostWritesJump
	t.settle(now)
}

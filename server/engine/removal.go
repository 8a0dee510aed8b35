package engine

import (
	"context"
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// removalLooks is how often the shards are looked at again when the group changed meanwhile.
const removalLooks = 3

// DeleteGroup deletes a group and returns it as it was, when its Redis consumer groups have gone
// from every shard. Without force it is refused while the group has live members, or entries on
// some shard that it has not been given or has not acknowledged. The shards are looked at by the
// caller's goroutine; what was seen counts only for a group that nobody has joined since and, where
// it decides, for an effect lease.
func (e *Engine) DeleteGroup(ctx context.Context, prefix, groupName string, force bool, m Mutation) (protocol.Group, error) {
	var view protocol.Group
	for range removalLooks {
		s, err := e.look(ctx, prefix)
		if err != nil {
			return protocol.Group{}, err
		}
		seen := s.unit.Groups[groupName]
		if seen == nil {
			if err := e.awaitRemoval(ctx, prefix, groupName); err != nil { // of an earlier call
				return protocol.Group{}, err
			}
		}
		var left stream.Backlog
		if seen != nil {
			res, err := e.probeShards(ctx, prefix, s, stream.PlanBacklog(s.unit.Stream, groupName))
			if err != nil {
				return protocol.Group{}, err
			}
			left = stream.BacklogOf(s.unit.Stream, groupName, res)
		}
		changed := false
		err = e.mutate(ctx, prefix, m, func(t *aggregate.Turn, ev *protocol.AuditEvent) (refused *protocol.Error) {
			if view, refused = groupView(t, groupName); refused != nil {
				return refused
			}
			g := t.Group(groupName)
			old := !force && t.Now().Sub(s.now) > redisstore.EffectLease
			if changed = !sameGroup(seen, g) || old; changed {
				return protocol.NewError(protocol.CodeStateVersionConflict, fmt.Sprintf("group %q changed while its shards were looked at; repeat the request", groupName))
			}
			ev.Summary = joined(ev.Summary, left.Summary())
			return t.DeleteGroup(groupName, force, left.Refusal(groupName))
		})
		if err == nil {
			return view, e.awaitRemoval(ctx, prefix, groupName)
		}
		if !changed {
			return protocol.Group{}, err
		}
		if ctx.Err() != nil {
			return protocol.Group{}, notInTime(ctx)
		}
	}
	return protocol.Group{}, protocol.NewError(protocol.CodeStateVersionConflict, fmt.Sprintf("group %q changed each time that its shards had been looked at: its members join or leave, or the shards took longer than %s to answer; repeat the request", groupName, redisstore.EffectLease))
}

// sameGroup says that nobody can have read anything between two looks at a group.
func sameGroup(a, b *group.State) bool {
	return a != nil && b != nil && a.CreatedAt == b.CreatedAt && a.GroupEpoch == b.GroupEpoch
}

// awaitRemoval waits until no shard has the consumer group of a deleted group any more; at once
// when none is being removed.
func (e *Engine) awaitRemoval(ctx context.Context, prefix, groupName string) error {
	goes := func(s *stream.State) bool {
		if s == nil {
			return false
		}
		_, ok := s.Removing[groupName]
		return ok
	}
	return e.await(ctx, prefix, func(u aggregate.Unit) bool { return !goes(u.Stream) }, func(t *aggregate.Turn) *protocol.Error {
		if goes(t.Stream()) {
			return protocol.NewError(protocol.CodeRedisUnavailable, fmt.Sprintf("group %q is deleted, but its Redis consumer groups have not gone from every shard yet; the coordinator goes on", groupName))
		}
		return nil
	})
}

// joined is two parts of a summary.
func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}

package engine

import (
	"context"
	"fmt"
	"time"

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
// it decides, for an effect lease. MustBeNew deletes nothing: it waits for the removal of an earlier
// call, and is refused when the group is there.
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
		left, err := e.backlog(ctx, prefix, s, groupName)
		if err != nil {
			return protocol.Group{}, err
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
			return t.DeleteGroup(groupName, force, m.IfMatch, left.Refusal(groupName))
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

// PreviewGroupRemoval is what DeleteGroup would do, as far as it can be known; it changes nothing,
// and runs beside the actor of the stream, which it asks once for what is stored. A group that
// there is not is GROUP_NOT_FOUND here as there.
func (e *Engine) PreviewGroupRemoval(ctx context.Context, prefix, groupName string, force bool, ifMatch int64) (protocol.RemovalPreview, error) {
	s, err := e.look(ctx, prefix)
	if err != nil {
		return protocol.RemovalPreview{}, err
	}
	view, refused := groupView(aggregate.Begin(s.unit, s.now, nil), groupName)
	if refused != nil {
		return protocol.RemovalPreview{}, refused
	}
	f := stream.RemovalFacts{At: s.now, Generation: view.Generation}
	started := time.Now()
	if f.Left, err = e.backlog(ctx, prefix, s, groupName); err != nil {
		return protocol.RemovalPreview{}, err
	}
	if took := time.Since(started); took > redisstore.EffectLease && !force {
		f.Refused = append(f.Refused, protocol.NewError(protocol.CodeStateVersionConflict, fmt.Sprintf(
			"the shards took %s to answer; what they say of group %q counts for %s", took.Round(time.Millisecond), groupName, redisstore.EffectLease)))
	}
	f.Refused = append(f.Refused, s.refusesRemoval(groupName, force, ifMatch, f.Left)...)
	rows, now, err := e.leases(ctx, prefix, groupName, s, &f.Unknown)
	if err != nil {
		return protocol.RemovalPreview{}, err
	}
	f.Live = group.Live(s.unit.Groups[groupName], rows, now)
	return stream.RemovalPreview(prefix, groupName, force, f), nil
}

// refusesRemoval is why DeleteGroup would be refused, found out by the very call on a turn that is
// thrown away. Behind a wrong generation and a live member, the rest is told as well.
func (s stored) refusesRemoval(groupName string, force bool, ifMatch int64, left stream.Backlog) (all []*protocol.Error) {
	unfinished := left.Refusal(groupName)
	for {
		refused := aggregate.Begin(s.unit, s.now, nil).DeleteGroup(groupName, force, ifMatch, unfinished)
		if refused == nil {
			return all
		}
		all = append(all, refused)
		switch {
		case refused.Code == protocol.CodeGenerationMismatch && ifMatch != 0:
			ifMatch = 0
			continue
		case refused.Code == protocol.CodeGroupHasMembers && unfinished != nil:
			all = append(all, unfinished)
		}
		return all
	}
}

// backlog looks at every shard for what a group has left there, nothing when there is no such group.
func (e *Engine) backlog(ctx context.Context, prefix string, s stored, groupName string) (stream.Backlog, error) {
	if s.unit.Groups[groupName] == nil {
		return stream.Backlog{}, nil
	}
	res, err := e.probeShards(ctx, prefix, s, stream.PlanBacklog(s.unit.Stream, groupName))
	if err != nil {
		return stream.Backlog{}, err
	}
	return stream.BacklogOf(s.unit.Stream, groupName, res), nil
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

package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// readyWait is how long a call waits for what it registered to be ready on every shard before
// it is answered that it goes on in the background.
const readyWait = 15 * time.Second

// request is who asks, with the id that a resharding takes if this call starts one.
func (m Mutation) request() stream.Request {
	return stream.Request{ID: newReshardingID(), RequestedBy: m.Audit.RequestedBy, Reason: m.Audit.Reason, IfMatch: m.IfMatch}
}

// mutate runs apply as an audited command. apply sets the status in the event that it is given.
func (e *Engine) mutate(ctx context.Context, prefix string, m Mutation, apply func(t *aggregate.Turn, ev *protocol.AuditEvent) *protocol.Error) error {
	start := m.Audit
	start.CoordinatorID = e.cfg.CoordinatorID
	start.Outcome = "SUCCESS"
	start.Status = http.StatusOK
	var ev protocol.AuditEvent
	c := newCommand(func(t *aggregate.Turn) *protocol.Error {
		ev = start // nothing of an apply that lost the compare-and-set
		return apply(t, &ev)
	})
	c.audit = &ev
	c.inspect = func(*actor) {
		if m.Audited != nil && c.refused == nil {
			m.Audited.Store(true)
		}
	}
	return asError(e.do(ctx, prefix, c))
}

// asError keeps a nil *protocol.Error from becoming a non-nil error.
func asError(err *protocol.Error) error {
	if err == nil {
		return nil
	}
	return err
}

// PutStream declares the desired state of a stream.
func (e *Engine) PutStream(ctx context.Context, prefix string, spec protocol.StreamSpec, m Mutation) (PutStreamResult, error) {
	var res PutStreamResult
	req := m.request()
	identity, err := e.identity(ctx, prefix)
	if err != nil {
		return res, err
	}
	err = e.mutate(ctx, prefix, m, func(t *aggregate.Turn, ev *protocol.AuditEvent) *protocol.Error {
		created, id, refused := t.PutStream(prefix, spec, identity, req)
		if refused != nil {
			return refused
		}
		res = PutStreamResult{Stream: stream.View(t.Stream()), Created: created, ReshardingID: id}
		ev.ReshardingID = id
		switch {
		case created:
			ev.Status = http.StatusCreated
		case id != "":
			ev.Status = http.StatusAccepted
		}
		return nil
	})
	return res, err
}

// identity is that of the Redis server that holds the stream's state; a new stream is made on it.
func (e *Engine) identity(ctx context.Context, prefix string) (string, error) {
	var identity string
	c := newCommand(func(t *aggregate.Turn) *protocol.Error { return nil })
	c.inspect = func(a *actor) { identity = a.cache.identity }
	return identity, asError(e.do(ctx, prefix, c))
}

// DeleteStream deletes an empty stream, or with force any; it waits until the record is gone.
func (e *Engine) DeleteStream(ctx context.Context, prefix string, force bool, m Mutation) error {
	req := m.request()
	err := e.mutate(ctx, prefix, m, func(t *aggregate.Turn, _ *protocol.AuditEvent) *protocol.Error {
		return t.ChangeStream(func(s *stream.Turn) *protocol.Error { return s.Delete(force, req, t.Now()) })
	})
	if err != nil {
		return err
	}
	return e.await(ctx, prefix, func(u aggregate.Unit) bool { return u.Stream == nil }, func(t *aggregate.Turn) *protocol.Error {
		if t.Stream() != nil {
			return protocol.NewError(protocol.CodeRedisUnavailable, fmt.Sprintf("stream %q is marked as deleted, but not all of its shards have answered yet; the coordinator goes on", prefix))
		}
		return nil
	})
}

// await waits until done holds, for at most readyWait, and then reads with a proven state.
func (e *Engine) await(ctx context.Context, prefix string, done func(u aggregate.Unit) bool, read func(t *aggregate.Turn) *protocol.Error) error {
	c := newCommand(read)
	c.unchanged = func(u aggregate.Unit) bool { return !done(u) }
	c.deadline = time.Now().Add(readyWait)
	return asError(e.do(ctx, prefix, c))
}

// CreateStream is the reference's POST /streams/{p}: one stream and one group of the same name,
// both usable when it returns.
func (e *Engine) CreateStream(ctx context.Context, prefix string, shardCount int, m Mutation) (protocol.Stream, error) {
	return e.create(ctx, prefix, prefix, shardCount, m, true)
}

// create makes the stream if there is none, and the group.
func (e *Engine) create(ctx context.Context, prefix, groupName string, shardCount int, m Mutation, streamMustBeNew bool) (protocol.Stream, error) {
	req := m.request()
	identity, err := e.identity(ctx, prefix)
	if err != nil {
		return protocol.Stream{}, err
	}
	err = e.mutate(ctx, prefix, m, func(t *aggregate.Turn, ev *protocol.AuditEvent) *protocol.Error {
		s := t.Stream()
		switch {
		case s != nil && streamMustBeNew:
			return protocol.NewError(protocol.CodeStreamExists, fmt.Sprintf("stream %q exists, with %s", prefix, stream.Counted(s.Layout.Count, "shard")))
		case t.Group(groupName) != nil:
			return protocol.NewError(protocol.CodeGroupExists, fmt.Sprintf("group %q of stream %q exists", groupName, prefix))
		case s != nil && shardCount > 0 && s.Spec.ShardCount != shardCount:
			return protocol.Invalid("initialShardCount", fmt.Sprintf("is %d, but stream %q has %s for all of its groups: leave it out, or change the stream", shardCount, prefix, stream.Counted(s.Spec.ShardCount, "shard")))
		}
		if s == nil {
			spec := protocol.StreamSpec{ShardCount: shardCount, Resharding: protocol.DefaultPolicy()}
			if _, _, refused := t.PutStream(prefix, spec, identity, req); refused != nil {
				return refused
			}
		}
		ev.Status = http.StatusCreated
		_, refused := t.PutGroup(groupName, protocol.DefaultGroupSpec(), 0)
		return refused
	})
	if err != nil {
		return protocol.Stream{}, err
	}
	var view protocol.Stream
	err = e.await(ctx, prefix, func(u aggregate.Unit) bool {
		s := u.Stream
		return s == nil || s.Active == nil && s.Groups[groupName] != nil && s.Groups[groupName].Ready
	}, func(t *aggregate.Turn) *protocol.Error {
		s := t.Stream()
		switch {
		case s == nil:
			return protocol.NewError(protocol.CodeProvisioningFailed, "the stream was deleted while it was created")
		case s.Layout.Count == 0 && s.Active == nil:
			return protocol.NewError(protocol.CodeForeignKeys, "the layout could not be provisioned: "+lastError(s))
		case s.Layout.Count == 0:
			return protocol.NewError(protocol.CodeProvisioningFailed, "the shards are not provisioned yet; the coordinator goes on")
		}
		view = stream.View(s)
		return nil
	})
	return view, err
}

func lastError(s *stream.State) string {
	if len(s.History) == 0 {
		return "no reason was recorded"
	}
	return s.History[len(s.History)-1].Error
}

// PutGroup declares the desired state of a group and waits until it is ready. The desired state that
// it returns, and its generation, are those that it stored, whatever others have made of it meanwhile.
func (e *Engine) PutGroup(ctx context.Context, prefix, groupName string, spec protocol.GroupSpec, m Mutation) (protocol.Group, bool, error) {
	var (
		created bool
		stored  protocol.Group
	)
	err := e.mutate(ctx, prefix, m, func(t *aggregate.Turn, ev *protocol.AuditEvent) (refused *protocol.Error) {
		if created, refused = t.PutGroup(groupName, spec, m.IfMatch); refused != nil {
			return refused
		}
		if created {
			ev.Status = http.StatusCreated
		}
		stored, refused = groupView(t, groupName)
		return refused
	})
	if err != nil {
		return protocol.Group{}, false, err
	}
	g, err := e.readyGroup(ctx, prefix, groupName)
	g.Spec, g.Generation = stored.Spec, stored.Generation
	return g, created, err
}

// readyGroup waits until the group's Redis consumer groups exist on every shard.
func (e *Engine) readyGroup(ctx context.Context, prefix, groupName string) (protocol.Group, error) {
	var view protocol.Group
	err := e.await(ctx, prefix, func(u aggregate.Unit) bool {
		return u.Stream == nil || u.Stream.Groups[groupName] == nil || u.Stream.Groups[groupName].Ready
	}, func(t *aggregate.Turn) (refused *protocol.Error) {
		view, refused = groupView(t, groupName)
		if refused == nil && !view.Ready {
			return protocol.NewError(protocol.CodeProvisioningFailed, "the group is registered, but its Redis consumer groups do not exist on every shard yet; the coordinator goes on")
		}
		return refused
	})
	return view, err
}

// CreateGroup is the reference's POST …/groups/{g}.
func (e *Engine) CreateGroup(ctx context.Context, prefix, groupName string, shardCount int, m Mutation) (protocol.Group, error) {
	if _, err := e.create(ctx, prefix, groupName, shardCount, m, false); err != nil {
		return protocol.Group{}, err
	}
	return e.readyGroup(ctx, prefix, groupName)
}

// Scale is the reference's POST …/scale.
func (e *Engine) Scale(ctx context.Context, prefix string, shardCount int, m Mutation) (protocol.Resharding, error) {
	var view protocol.Resharding
	req := m.request()
	err := e.mutate(ctx, prefix, m, func(t *aggregate.Turn, ev *protocol.AuditEvent) *protocol.Error {
		s := t.Stream()
		switch {
		case s == nil:
			return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
		case s.Active != nil:
			return protocol.NewError(protocol.CodeActiveMigration, fmt.Sprintf("resharding %s from %d to %s is in phase %s", s.Active.ID, s.Active.From.Count, stream.Counted(s.Active.To.Count, "shard"), s.Active.Phase))
		}
		for _, name := range t.GroupNames() {
			if t.Group(name).Correction != nil {
				return protocol.NewError(protocol.CodeMetadataSync, fmt.Sprintf("group %q corrects its members' metadata; repeat the request", name))
			}
		}
		ev.Status = http.StatusAccepted
		spec := s.Spec
		spec.ShardCount = shardCount
		_, id, refused := t.PutStream(prefix, spec, s.ServerIdentity, req)
		if refused != nil {
			return refused
		}
		if id == "" {
			now := t.Now().Time()
			view = protocol.Resharding{ReshardingID: "noop", StreamPrefix: prefix, FromShardCount: s.Layout.Count, ToShardCount: shardCount,
				Phase: protocol.PhaseCompleted, Phases: []protocol.PhaseSpan{{Phase: protocol.PhaseCompleted, StartedAt: now, EndedAt: &now}}}
			return nil
		}
		ev.ReshardingID = id
		view = *stream.ReshardingOf(t.Stream(), id, t.Now())
		return nil
	})
	return view, err
}

// Rollback asks for the end of a resharding before its decision.
func (e *Engine) Rollback(ctx context.Context, prefix, id string, m Mutation) (protocol.Resharding, error) {
	var view protocol.Resharding
	req := m.request()
	err := e.mutate(ctx, prefix, m, func(t *aggregate.Turn, ev *protocol.AuditEvent) *protocol.Error {
		refused := t.ChangeStream(func(s *stream.Turn) *protocol.Error { return s.Rollback(id, req, t.Now()) })
		if refused != nil {
			return refused
		}
		ev.Status, ev.ReshardingID = http.StatusAccepted, id
		view = *stream.ReshardingOf(t.Stream(), id, t.Now())
		return nil
	})
	return view, err
}

// Pause is the operator's pause; it returns when every shard shows it.
func (e *Engine) Pause(ctx context.Context, prefix string, timeout time.Duration, m Mutation) (protocol.Stream, error) {
	req := m.request()
	return e.switchPublishing(ctx, prefix, m, func(t *aggregate.Turn, s *stream.Turn) *protocol.Error {
		return s.Pause(t.Now().Add(timeout), req, t.Now())
	})
}

// Resume removes the operator's pause; it returns when no shard shows it any more.
func (e *Engine) Resume(ctx context.Context, prefix string, m Mutation) (protocol.Stream, error) {
	req := m.request()
	return e.switchPublishing(ctx, prefix, m, func(t *aggregate.Turn, s *stream.Turn) *protocol.Error {
		return s.Resume(req, t.Now())
	})
}

func (e *Engine) switchPublishing(ctx context.Context, prefix string, m Mutation, change func(t *aggregate.Turn, s *stream.Turn) *protocol.Error) (protocol.Stream, error) {
	err := e.mutate(ctx, prefix, m, func(t *aggregate.Turn, _ *protocol.AuditEvent) *protocol.Error {
		return t.ChangeStream(func(s *stream.Turn) *protocol.Error { return change(t, s) })
	})
	if err != nil {
		return protocol.Stream{}, err
	}
	var view protocol.Stream
	err = e.await(ctx, prefix, func(u aggregate.Unit) bool { return u.Stream == nil || !u.Stream.HoldDirty }, func(t *aggregate.Turn) *protocol.Error {
		return streamView(t, prefix, &view)
	})
	return view, err
}

// Audit records a request that did not commit.
func (e *Engine) Audit(ctx context.Context, prefix string, ev protocol.AuditEvent) error {
	ev.CoordinatorID = e.cfg.CoordinatorID
	if err := e.cfg.Store.AppendAudit(ctx, prefix, ev); err != nil {
		return fmt.Errorf("record request %s in the audit log: %w", ev.RequestID, err)
	}
	return nil
}

// groupView shows a group as it stands in the turn.
func groupView(t *aggregate.Turn, name string) (protocol.Group, *protocol.Error) {
	s := t.Stream()
	if s == nil {
		return protocol.Group{}, protocol.NewError(protocol.CodeGroupNotFound, fmt.Sprintf("no group %q: the stream does not exist", name))
	}
	g := t.Group(name)
	if g == nil {
		return protocol.Group{}, protocol.NewError(protocol.CodeGroupNotFound, fmt.Sprintf("no group %q on stream %q", name, s.Prefix))
	}
	view := protocol.Group{
		StreamPrefix: s.Prefix, ConsumerGroup: name, State: group.GroupState(g),
		GroupEpoch: g.GroupEpoch, AssignmentEpoch: g.GroupEpoch, MetadataVersion: g.MetadataVersion,
		ShardCount: s.Layout.Count, Spec: g.Spec, Generation: g.SpecGeneration(),
		CreatedAt: g.CreatedAt.Time(),
	}
	if e := s.Groups[name]; e != nil {
		view.Ready = e.Ready
	}
	if s.Active != nil {
		m := migrationOf(stream.ReshardingOf(s, s.Active.ID, t.Now()))
		view.ActiveMigration = &m
	}
	view.TargetAssignmentSummary, view.CurrentAssignmentSummary = group.Summaries(g)
	return view, nil
}

// migrationOf shows a resharding in the reference's shape.
func migrationOf(r *protocol.Resharding) protocol.Migration {
	m := protocol.Migration{ReshardingID: r.ReshardingID, FromShardCount: r.FromShardCount, ToShardCount: r.ToShardCount, State: protocol.MigrationStateOf(r.Phase)}
	if n := len(r.Phases); n > 0 {
		m.CreatedAt, m.UpdatedAt = r.Phases[0].StartedAt, r.Phases[n-1].StartedAt
	}
	return m
}

func streamView(t *aggregate.Turn, prefix string, view *protocol.Stream) *protocol.Error {
	s := t.Stream()
	if s == nil {
		return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
	}
	*view = stream.View(s)
	return nil
}

// asProtocol makes any error one that can stand on the wire.
func asProtocol(err error) *protocol.Error {
	if p, ok := errors.AsType[*protocol.Error](err); ok {
		return p
	}
	return protocol.NewError(protocol.CodeInternal, err.Error())
}

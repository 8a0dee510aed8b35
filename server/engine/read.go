package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// read runs f on a state that is proven current.
func (e *Engine) read(ctx context.Context, prefix string, f func(t *aggregate.Turn) *protocol.Error) error {
	return asError(e.do(ctx, prefix, newCommand(f)))
}

// Stream reads one stream.
func (e *Engine) Stream(ctx context.Context, prefix string) (protocol.Stream, error) {
	var view protocol.Stream
	err := e.read(ctx, prefix, func(t *aggregate.Turn) *protocol.Error { return streamView(t, prefix, &view) })
	return view, err
}

// Streams reads all streams of the index. One that is gone since is left out.
func (e *Engine) Streams(ctx context.Context) (protocol.StreamList, error) {
	prefixes, err := e.index(ctx)
	if err != nil {
		return protocol.StreamList{}, err
	}
	list := protocol.StreamList{Streams: make([]protocol.Stream, 0, len(prefixes)), Unreadable: []string{}}
	for _, prefix := range prefixes {
		view, err := e.Stream(ctx, prefix)
		switch {
		case err == nil:
			list.Streams = append(list.Streams, view)
		case asProtocol(err).Code == protocol.CodeStateUnreadable:
			list.Unreadable = append(list.Unreadable, prefix)
		case asProtocol(err).Code != protocol.CodeStreamNotFound:
			return protocol.StreamList{}, err
		}
	}
	return list, nil
}

func (e *Engine) index(ctx context.Context) ([]string, error) {
	prefixes, err := e.cfg.Store.Streams(ctx)
	if err != nil {
		e.log.Warn("reading the index of streams", zap.Error(err))
		return nil, protocol.NewError(protocol.CodeRedisUnavailable, "redis cannot be reached")
	}
	return prefixes, nil
}

// Routing is a producer's routing, held while version is current.
func (e *Engine) Routing(ctx context.Context, prefix string, version int64, maxWait time.Duration, producerID string, fenced bool) (protocol.Routing, error) {
	var view protocol.Routing
	c := newCommand(func(t *aggregate.Turn) *protocol.Error {
		s := t.Stream()
		if s == nil {
			return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
		}
		view = stream.RoutingOf(s)
		view.LeaseMs = e.cfg.RoutingLease.Milliseconds()
		return nil
	})
	if maxWait > 0 && version != 0 {
		c.deadline = time.Now().Add(maxWait)
		c.unchanged = func(u aggregate.Unit) bool { return u.Stream != nil && u.Stream.RoutingVersion == version }
	}
	if err := e.seeProducer(ctx, prefix, producerID, fenced); err != nil {
		return view, err
	}
	err := asError(e.do(ctx, prefix, c))
	return view, err
}

// seeProducer records the producer before it gets a table. For one that does not fence this is
// no mere observation: a resharding that promises order waits for it, so that a table must not
// be handed out unnoticed (protocol/resharding.md 1.1).
func (e *Engine) seeProducer(ctx context.Context, prefix, producerID string, fenced bool) error {
	if fenced && producerID == "" {
		return nil
	}
	err := e.cfg.Store.SeeProducer(ctx, prefix, producerID, fenced)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redisstore.ErrNotFound): // also of a stream that is made just now: it was not noted
		return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
	case fenced:
		e.log.Debug("recording a producer", zap.String("stream", prefix), zap.Error(err))
		return nil
	}
	e.log.Warn("recording a producer", zap.String("stream", prefix), zap.Error(err))
	return protocol.NewError(protocol.CodeRedisUnavailable, "redis cannot be reached: no routing can be handed out")
}

// ProducerRouting answers the reference's producers, which do not fence.
func (e *Engine) ProducerRouting(ctx context.Context, prefix, groupName string) (protocol.ProducerRouting, error) {
	var view protocol.ProducerRouting
	noGroup := protocol.NewError(protocol.CodeGroupNotFound, fmt.Sprintf("no group %q on stream %q", groupName, prefix))
	if err := e.seeProducer(ctx, prefix, "", false); err != nil {
		if asProtocol(err).Code == protocol.CodeStreamNotFound {
			err = noGroup // the one answer that these clients know
		}
		return view, err
	}
	err := e.read(ctx, prefix, func(t *aggregate.Turn) *protocol.Error {
		s, g := t.Stream(), t.Group(groupName)
		if s == nil || g == nil {
			return noGroup
		}
		if s.PublishState == protocol.PublishPaused {
			return protocol.NewError(protocol.CodePublishingPaused, fmt.Sprintf("publishing to stream %q is paused; ask again", prefix))
		}
		r := stream.RoutingOf(s)
		view = protocol.ProducerRouting{StreamPrefix: prefix, ConsumerGroup: groupName, MetadataVersion: g.MetadataVersion, ShardCount: r.ShardCount, StreamKeyPattern: r.StreamKeyPattern, Shards: r.Shards}
		return nil
	})
	return view, err
}

// Group reads one group.
func (e *Engine) Group(ctx context.Context, prefix, groupName string) (protocol.Group, error) {
	var view protocol.Group
	err := e.read(ctx, prefix, func(t *aggregate.Turn) (refused *protocol.Error) {
		view, refused = groupView(t, groupName)
		return refused
	})
	return view, err
}

// Groups reads all groups of all streams.
func (e *Engine) Groups(ctx context.Context) ([]protocol.Group, error) {
	prefixes, err := e.index(ctx)
	if err != nil {
		return nil, err
	}
	views := []protocol.Group{}
	for _, prefix := range prefixes {
		err := e.read(ctx, prefix, func(t *aggregate.Turn) *protocol.Error {
			if t.Stream() == nil {
				return nil
			}
			for _, name := range t.GroupNames() {
				view, refused := groupView(t, name)
				if refused != nil {
					return refused
				}
				views = append(views, view)
			}
			return nil
		})
		if err != nil && asProtocol(err).Code != protocol.CodeStateUnreadable { // Streams names those
			return nil, err
		}
	}
	return views, nil
}

// Members lists the members of a group with what they last reported.
func (e *Engine) Members(ctx context.Context, prefix, groupName string) ([]protocol.MemberView, error) {
	var g *group.State
	err := e.read(ctx, prefix, func(t *aggregate.Turn) *protocol.Error {
		if g = t.Group(groupName); g == nil {
			return protocol.NewError(protocol.CodeGroupNotFound, fmt.Sprintf("no group %q on stream %q", groupName, prefix))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	// What this replica knows of the rows may be old: renewals by others are no news to it.
	rows, _, err := e.cfg.Store.Leases(ctx, prefix, groupName, 0)
	if err != nil {
		e.log.Warn("reading lease rows", zap.String("stream", prefix), zap.String("group", groupName), zap.Error(err))
		return nil, protocol.NewError(protocol.CodeRedisUnavailable, "redis cannot be reached")
	}
	views := group.Members(g, rows)
	reports, err := e.cfg.Store.Observations(ctx, prefix, groupName)
	if err != nil {
		e.log.Debug("reading members' reports", zap.Error(err))
	}
	for i := range views {
		v := &views[i]
		v.ShardProgress = []protocol.ShardProgress{}
		var o Observation
		if raw, ok := reports[v.MemberID]; !ok || json.Unmarshal(raw, &o) != nil {
			continue
		}
		if o.Name != "" {
			v.MemberName = o.Name
		}
		v.RuntimeMaxConcurrency = o.Capacity.RuntimeMaxConcurrency
		v.ActiveConsumerWorkers = max(o.Capacity.RuntimeMaxConcurrency-o.Capacity.AvailableConcurrency, 0)
		v.ShardProgress = append(v.ShardProgress, o.Progress...)
	}
	return views, nil
}

// Assignments shows wanted, current and draining ownership.
func (e *Engine) Assignments(ctx context.Context, prefix, groupName string) (protocol.Assignments, error) {
	var view protocol.Assignments
	err := e.read(ctx, prefix, func(t *aggregate.Turn) *protocol.Error {
		g := t.Group(groupName)
		if g == nil {
			return protocol.NewError(protocol.CodeGroupNotFound, fmt.Sprintf("no group %q on stream %q", groupName, prefix))
		}
		view = group.AssignmentsOf(g)
		return nil
	})
	return view, err
}

// Reshardings lists the reshardings of a stream, newest first.
func (e *Engine) Reshardings(ctx context.Context, prefix string) ([]protocol.Resharding, error) {
	var views []protocol.Resharding
	err := e.read(ctx, prefix, func(t *aggregate.Turn) *protocol.Error {
		s := t.Stream()
		if s == nil {
			return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
		}
		views = stream.Reshardings(s, t.Now())
		return nil
	})
	return views, err
}

// Resharding reads one, held while its phase is seen.
func (e *Engine) Resharding(ctx context.Context, prefix, id string, seen protocol.Phase, maxWait time.Duration) (protocol.Resharding, error) {
	var view protocol.Resharding
	c := newCommand(func(t *aggregate.Turn) *protocol.Error {
		s := t.Stream()
		if s == nil {
			return protocol.NewError(protocol.CodeStreamNotFound, fmt.Sprintf("no stream %q", prefix))
		}
		r := stream.ReshardingOf(s, id, t.Now())
		if r == nil {
			return protocol.NewError(protocol.CodeMigrationNotFound, fmt.Sprintf("no resharding %q of stream %q", id, prefix))
		}
		view = *r
		return nil
	})
	if maxWait > 0 && seen != "" && !seen.Terminal() {
		c.deadline = time.Now().Add(maxWait)
		c.unchanged = func(u aggregate.Unit) bool {
			return u.Stream != nil && u.Stream.Active != nil && u.Stream.Active.ID == id && u.Stream.Active.Phase == seen
		}
	}
	err := asError(e.do(ctx, prefix, c))
	return view, err
}

// AuditEvents lists audit events, newest first.
func (e *Engine) AuditEvents(ctx context.Context, q redisstore.AuditQuery) (protocol.AuditList, error) {
	list, err := e.cfg.Store.AuditEvents(ctx, q)
	if refused, ok := errors.AsType[*protocol.Error](err); ok {
		return list, refused
	}
	if err != nil {
		e.log.Warn("reading the audit log", zap.Error(err))
		return list, protocol.NewError(protocol.CodeRedisUnavailable, "the audit log cannot be read: redis cannot be reached")
	}
	return list, nil
}

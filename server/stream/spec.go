package stream

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// New creates a stream: a resharding from 0 shards to spec.ShardCount (1.3), accepted at now.
// Its metadata version is 0 until its first layout is in force, which is version 1.
func New(prefix string, spec protocol.StreamSpec, identity string, req Request, now protocol.Instant) *State {
	spec = normal(spec)
	s := &State{
		SchemaVersion: SchemaVersion, Prefix: prefix, Generation: 1, Spec: spec, RoutingVersion: 1,
		ServerIdentity: identity, PublishState: protocol.PublishOpen, PublishSince: now,
		Groups: map[string]*GroupEntry{}, CreatedAt: now, UpdatedAt: now,
	}
	if spec.ShardCount == 0 {
		s.MetadataVersion = 1
		return s
	}
	s.accept(KindCreate, spec.ShardCount, spec.Resharding, req, now)
	return s
}

// normal fills defaults and sorts the names, so that equal specs compare equal.
func normal(spec protocol.StreamSpec) protocol.StreamSpec {
	spec.Resharding = spec.Resharding.WithDefaults()
	spec.Retention = spec.Retention.WithDefaults()
	ignored := slices.Clone(spec.Resharding.IgnoreGroups)
	slices.Sort(ignored)
	spec.Resharding.IgnoreGroups = slices.Compact(ignored)
	if len(ignored) == 0 {
		spec.Resharding.IgnoreGroups = nil
	}
	return spec
}

// Put sets the desired spec. A changed shard count starts a resharding unless one to the same
// count is already running (then that one is returned: the call is idempotent). Asking for the
// count of the old layout while the running change can still be cancelled asks for its
// rollback, and returns its id. Returns the resharding that is now active because of it, ""
// for none, and whether this call started it.
//
// INVALID_REQUEST, GENERATION_MISMATCH, ACTIVE_MIGRATION_EXISTS (a change to another count
// runs), FOREIGN_KEYS_EXIST (the sweep knows of streams in the way), STATE_VERSION_CONFLICT
// (the stream is being deleted).
func (t *Turn) Put(spec protocol.StreamSpec, req Request, now protocol.Instant) (reshardingID string, started bool, err *protocol.Error) {
	s := t.State()
	if err := protocol.CheckShardCount("shardCount", int64(spec.ShardCount), 0); err != nil {
		return "", false, err
	}
	if err := spec.Retention.Check("retention"); err != nil {
		return "", false, err
	}
	if err := s.admits(req); err != nil {
		return "", false, err
	}
	spec = normal(spec)
	r := s.Active
	switch {
	case r == nil && spec.ShardCount == s.Layout.Count:
		t.setSpec(spec, now)
		return "", false, nil
	case r == nil:
		if err := s.orphanInTheWay(spec.ShardCount); err != nil {
			return "", false, err
		}
		t.setSpec(spec, now)
		t.edit(now).accept(KindScale, spec.ShardCount, spec.Resharding, req, now)
		t.settle(now)
		return req.ID, true, nil
	case spec.ShardCount == r.To.Count && r.Phase != protocol.PhaseRollingBack:
		t.setSpec(spec, now)
		return r.ID, false, nil
	case spec.ShardCount == r.From.Count && (r.cancellable() || r.Phase == protocol.PhaseRollingBack):
		if r.cancellable() {
			t.editActive(now).rollBack(askedBy("the old shard count was asked for", req), false, now)
		}
		t.setSpec(spec, now)
		return r.ID, false, nil
	default:
		return "", false, r.conflict()
	}
}

// setSpec stores spec as a new generation if it differs.
func (t *Turn) setSpec(spec protocol.StreamSpec, now protocol.Instant) {
	if !reflect.DeepEqual(normal(t.State().Spec), spec) { // stored without the fields of a later release
		s := t.edit(now)
		s.Spec = spec
		s.Generation++
	}
	t.settle(now)
}

// admits refuses what no mutation may do: touch a stream that goes, or another generation.
func (s *State) admits(req Request) *protocol.Error {
	if s.Deleting {
		return protocol.NewError(protocol.CodeStateVersionConflict, fmt.Sprintf("stream %q is being deleted; ask again when it is gone", s.Prefix))
	}
	return s.matches(req)
}

func (s *State) matches(req Request) *protocol.Error {
	return CheckGeneration(fmt.Sprintf("stream %q", s.Prefix), s.Generation, req.IfMatch)
}

// CheckGeneration refuses a request that presupposes, by ifMatch, another generation of the stream
// or group called label than now, which is 0 where there is none. ifMatch is 0 for any.
func CheckGeneration(label string, now, ifMatch int64) *protocol.Error {
	mismatch := func(format string, args ...any) *protocol.Error {
		return protocol.NewError(protocol.CodeGenerationMismatch, label+" "+fmt.Sprintf(format, args...))
	}
	switch {
	case ifMatch == 0, ifMatch == MustBeNew && now == 0, ifMatch == now:
		return nil
	case now == 0:
		return mismatch("does not exist, so it has no generation %d", ifMatch)
	case ifMatch == MustBeNew:
		return mismatch("exists already, at generation %d", now)
	}
	return mismatch("is at generation %d, not %d; read it again", now, ifMatch)
}

// conflict is the refusal of a second change.
func (r *Resharding) conflict() *protocol.Error {
	return protocol.NewError(protocol.CodeActiveMigration, fmt.Sprintf(
		"resharding %s from %d to %s is running (phase %s); wait for its end or roll it back first",
		r.ID, r.From.Count, Counted(r.To.Count, "shard"), r.Phase))
}

// orphanInTheWay refuses a count whose new shards would meet streams that are not ours.
func (s *State) orphanInTheWay(count int) *protocol.Error {
	var keys []string
	for i := s.Layout.Count; i < count; i++ {
		key := protocol.ShardKey(s.Prefix, i)
		for _, o := range s.Orphans {
			if strings.HasPrefix(o, key+" ") {
				keys = append(keys, o)
			}
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return protocol.NewError(protocol.CodeForeignKeys, fmt.Sprintf(
		"streams that do not belong to the coordinator are in the way: %s; move or delete them first", joinTexts(keys)))
}

// askedBy adds who asked, and why, to a reason.
func askedBy(what string, req Request) string {
	if req.RequestedBy != "" {
		what += " by " + req.RequestedBy
	}
	if req.Reason != "" {
		what += ": " + req.Reason
	}
	return what
}

// Rollback asks for the end of a resharding before its decision. Idempotent, also when it has
// been rolled back already; a finished or decided one is refused with ROLLBACK_NOT_ALLOWED, an
// unknown one with MIGRATION_NOT_FOUND. The change may still end COMPLETED: when shard 0 had
// decided before it heard of the rollback.
func (t *Turn) Rollback(id string, req Request, now protocol.Instant) *protocol.Error {
	s := t.State()
	if r := s.Active; r != nil && r.ID == id {
		switch {
		case r.Phase == protocol.PhaseRollingBack:
			return nil
		case !r.cancellable():
			return protocol.NewError(protocol.CodeRollbackNotAllowed, fmt.Sprintf(
				"resharding %s has been decided (phase %s): the layout has %s now; ask for %d to go back",
				id, r.Phase, Counted(r.To.Count, "shard"), r.From.Count))
		}
		t.editActive(now).rollBack(askedBy("rollback was asked for", req), false, now)
		t.settle(now)
		return nil
	}
	for _, r := range s.History {
		if r.ID != id {
			continue
		}
		if r.Phase == protocol.PhaseRolledBack {
			return nil
		}
		return protocol.NewError(protocol.CodeRollbackNotAllowed, fmt.Sprintf("resharding %s has ended as %s", id, r.Phase))
	}
	return protocol.NewError(protocol.CodeMigrationNotFound, fmt.Sprintf("stream %q has no resharding %q", s.Prefix, id))
}

// Delete marks the stream for deletion: refused unless the layout is (·, 0) with nothing
// running, or force. Idempotent. The record goes when State.Gone says so.
//
// ACTIVE_MIGRATION_EXISTS, STREAM_NOT_EMPTY, GENERATION_MISMATCH.
func (t *Turn) Delete(force bool, req Request, now protocol.Instant) *protocol.Error {
	s := t.State()
	if s.Deleting {
		return nil
	}
	if err := s.matches(req); err != nil {
		return err
	}
	if !force {
		if s.Active != nil {
			return s.Active.conflict()
		}
		if s.Layout.Count > 0 {
			return protocol.NewError(protocol.CodeStreamNotEmpty, fmt.Sprintf(
				"stream %q has %s; ask for 0 shards first, which drains and retires what there is", s.Prefix, Counted(s.Layout.Count, "shard")))
		}
	}
	s = t.edit(now)
	if r := s.Active; r != nil {
		r.Error = askedBy("the stream was deleted", req)
		s.finish(protocol.PhaseFailed, now)
	}
	s.Deleting = true
	s.Gone = s.highest() == 0 // then no shard ever had a control hash
	t.settle(now)
	return nil
}

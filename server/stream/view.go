package stream

import (
	"fmt"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// defaultRoutingLease is LeaseMs of a routing answer; the shell may set another.
const defaultRoutingLease = 30 * time.Second

// States of a shard in a view.
const (
	shardActive   = "ACTIVE"
	shardAdding   = "ADDING"
	shardRemoving = "REMOVING"
)

// View shows the state as GET /streams/{p} does.
func View(s *State) protocol.Stream {
	v := protocol.Stream{
		StreamPrefix: s.Prefix, Generation: s.Generation, MetadataVersion: s.MetadataVersion, Spec: normal(s.Spec),
		Status: protocol.StreamStatus{
			ShardCount: s.Layout.Count, LayoutEpoch: s.Layout.Epoch, PublishState: s.PublishState,
			PausedUntil: timeOrNil(s.pausedUntil()),
			Conditions:  []protocol.Condition{converged(s), publishing(s), progressing(s)},
		},
		Shards: shards(s), Groups: s.GroupNames(), CreatedAt: s.CreatedAt.Time(), UpdatedAt: s.UpdatedAt.Time(),
	}
	if v.Groups == nil {
		v.Groups = []string{}
	}
	if s.Active != nil {
		v.Status.ActiveReshardingID = s.Active.ID
	}
	if last := s.last(); last != nil {
		v.Status.LastReshardingID = last.ID
	}
	return v
}

// last is the newest finished record, nil for none.
func (s *State) last() *Resharding {
	if len(s.History) == 0 {
		return nil
	}
	return s.History[len(s.History)-1]
}

func timeOrNil(i protocol.Instant) *time.Time {
	if i == 0 {
		return nil
	}
	at := i.Time()
	return &at
}

// shards lists the shards of the layout in force, those that a running change adds before it is
// decided, and those that it takes away after that.
func shards(s *State) []protocol.StreamShard {
	count := s.Layout.Count
	if r := s.Active; r != nil && (r.cancellable() || r.decided()) {
		count = s.span()
	}
	list := make([]protocol.StreamShard, 0, count)
	for i := range count {
		state := shardActive
		if i >= s.Layout.Count {
			state = shardRemoving
			if s.Active.cancellable() {
				state = shardAdding
			}
		}
		if s.Active != nil && slices.Contains(s.Active.Skip, i) {
			continue
		}
		key := protocol.ShardKey(s.Prefix, i)
		list = append(list, protocol.StreamShard{ShardIndex: i, StreamKey: key, RedisSlot: protocol.RedisSlot(key), State: state})
	}
	return list
}

// condition fills one condition.
func condition(kind string, is bool, reason, message string, since protocol.Instant) protocol.Condition {
	status := "False"
	if is {
		status = "True"
	}
	return protocol.Condition{Type: kind, Status: status, Reason: reason, Message: message, Since: since.Time()}
}

// converged: what the spec asks for is so on every shard.
func converged(s *State) protocol.Condition {
	const kind = "Converged"
	since := s.CreatedAt
	if last := s.last(); last != nil {
		since = last.since()
	}
	switch r := s.Active; {
	case s.Deleting:
		return condition(kind, false, "Deleting", "the stream is being deleted", s.UpdatedAt)
	case r != nil:
		return condition(kind, false, "Resharding", changeText(r), r.CreatedAt)
	case len(s.unreadyGroups()) > 0:
		names := s.unreadyGroups()
		return condition(kind, false, "GroupsPending", "consumer groups are not on every shard yet: "+joinTexts(names), s.Groups[names[0]].Since)
	case len(s.Removing) > 0:
		names := s.Removals()
		return condition(kind, false, "GroupsLeaving", "consumer groups that were deleted are not gone from every shard yet: "+joinTexts(names), s.Removing[names[0]].Since)
	case s.HoldDirty:
		return condition(kind, false, "PausePending", "not every shard shows the operator's switch yet", s.UpdatedAt)
	}
	text := fmt.Sprintf("%s at layout epoch %d", Counted(s.Layout.Count, "shard"), s.Layout.Epoch)
	if s.Alert != "" {
		text += "; alert: " + s.Alert
	}
	if len(s.Orphans) > 0 {
		text += "; not ours, never touched: " + joinTexts(s.Orphans)
	}
	return condition(kind, true, "AsSpecified", text, since)
}

// publishing: appends are accepted.
func publishing(s *State) protocol.Condition {
	const kind = "Publishing"
	r := s.Active
	switch {
	case s.Hold != nil && r.pausing():
		return condition(kind, false, "PausedByOperatorAndResharding", s.holdText()+"; and "+pauseText(r), s.PublishSince)
	case s.Hold != nil:
		return condition(kind, false, "PausedByOperator", s.holdText(), s.PublishSince)
	case r.pausing():
		return condition(kind, false, "PausedByResharding", pauseText(r), s.PublishSince)
	case s.Layout.Count == 0:
		return condition(kind, false, "NoShards", "the stream has no shard to append to", s.PublishSince)
	}
	return condition(kind, true, "Open", "appends are accepted", s.PublishSince)
}

func pauseText(r *Resharding) string {
	return fmt.Sprintf("paused by resharding %s until %s at the latest", r.ID, clock(r.Deadline))
}

// progressing: a change is running.
func progressing(s *State) protocol.Condition {
	const kind = "Progressing"
	if r := s.Active; r != nil {
		return condition(kind, true, "Resharding", changeText(r), r.since())
	}
	last := s.last()
	if last == nil {
		return condition(kind, false, "Idle", "no resharding has been asked for", s.CreatedAt)
	}
	text := fmt.Sprintf("resharding %s from %d to %s ended as %s", last.ID, last.From.Count, Counted(last.To.Count, "shard"), last.Phase)
	if last.Error != "" {
		text += ": " + last.Error
	}
	reason := map[protocol.Phase]string{
		protocol.PhaseCompleted: "Completed", protocol.PhaseRolledBack: "RolledBack", protocol.PhaseFailed: "Failed",
	}[last.Phase]
	return condition(kind, false, reason, text, last.since())
}

// changeText says what the running change does and waits for.
func changeText(r *Resharding) string {
	text := fmt.Sprintf("resharding %s from %d to %s is in phase %s", r.ID, r.From.Count, Counted(r.To.Count, "shard"), r.Phase)
	if w := waiting(r); len(w) > 0 {
		text += ", waiting for: " + joinTexts(w)
	}
	return text
}

// RoutingOf is the routing answer. Every shard of the layout in force is listed, ascending.
func RoutingOf(s *State) protocol.Routing {
	v := protocol.Routing{
		StreamPrefix: s.Prefix, MetadataVersion: s.MetadataVersion, LayoutEpoch: s.Layout.Epoch, ShardCount: s.Layout.Count,
		PublishState: s.PublishState, PausedUntil: timeOrNil(s.pausedUntil()),
		Hash: protocol.HashName, StreamKeyPattern: protocol.StreamKeyPattern(s.Prefix),
		Shards:  make([]protocol.RoutingShard, s.Layout.Count),
		LeaseMs: defaultRoutingLease.Milliseconds(), RoutingVersion: s.RoutingVersion,
	}
	for i := range v.Shards {
		key := protocol.ShardKey(s.Prefix, i)
		v.Shards[i] = protocol.RoutingShard{ShardIndex: i, StreamKey: key, RedisSlot: protocol.RedisSlot(key)}
	}
	return v
}

// find is a record by its id, nil when it is unknown.
func (s *State) find(id string) *Resharding {
	if s.Active != nil && s.Active.ID == id {
		return s.Active
	}
	for _, r := range slices.Backward(s.History) {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// ReshardingOf is one resharding, nil when the id is unknown.
func ReshardingOf(s *State, id string, now protocol.Instant) *protocol.Resharding {
	r := s.find(id)
	if r == nil {
		return nil
	}
	v := reshardingView(s, r, now)
	return &v
}

// Reshardings lists all, newest first.
func Reshardings(s *State, now protocol.Instant) []protocol.Resharding {
	list := []protocol.Resharding{}
	if s.Active != nil {
		list = append(list, reshardingView(s, s.Active, now))
	}
	for _, r := range slices.Backward(s.History) {
		list = append(list, reshardingView(s, r, now))
	}
	return list
}

// reshardingView shows a record of s. A pause that lasts is counted up to now, or to the latest
// instant that the state knows of: the state may not change for as long as nothing happens but
// waiting.
func reshardingView(s *State, r *Resharding, now protocol.Instant) protocol.Resharding {
	v := protocol.Resharding{
		ReshardingID: r.ID, StreamPrefix: s.Prefix,
		FromShardCount: r.From.Count, ToShardCount: r.To.Count, FromEpoch: r.From.Epoch, ToEpoch: r.To.Epoch,
		Strategy: r.Policy.Strategy, DrainScope: r.Policy.DrainScope, Retire: r.Policy.Retire,
		Phase: r.Phase, Phases: make([]protocol.PhaseSpan, len(r.Phases)),
		WaitingFor: waiting(r), IgnoreGroups: r.Ignored,
		RequestedBy: r.RequestedBy, Reason: r.Reason, Error: r.Error, Order: r.Order, OrderWindow: r.orderWindow(), Certificate: r.Certificate,
		Warnings: warningTexts(r),
	}
	for i, span := range r.Phases {
		v.Phases[i] = protocol.PhaseSpan{Phase: span.Phase, StartedAt: span.Started.Time(), EndedAt: timeOrNil(span.Ended)}
	}
	if r.PausedAt != 0 {
		end := r.ResumedAt
		if end == 0 {
			end = max(now, s.UpdatedAt, r.PausedAt)
			v.PauseDeadline = timeOrNil(r.Deadline)
		}
		v.PausedMs = end.Sub(r.PausedAt).Milliseconds()
	}
	return v
}

// waiting is what a record waits for, in sentences: what the last pass found or, before there is
// one, what the phase is about.
func waiting(r *Resharding) []string {
	if r.Phase.Terminal() {
		return []string{}
	}
	if len(r.WaitingFor) > 0 {
		list := slices.Clone(r.WaitingFor)
		if r.UnknownSince != 0 {
			list = append(list, "blocked by what is unknown since "+clock(r.UnknownSince))
		}
		return list
	}
	switch r.Phase {
	case protocol.PhaseProvisioning:
		return []string{"PROVISIONING: new shards and their groups are made"}
	case protocol.PhaseSealing:
		return []string{"SEALING: every shard is to refuse appends"}
	case protocol.PhaseDraining:
		return []string{"DRAINING: the groups are to acknowledge everything"}
	case protocol.PhaseActivating:
		return []string{"ACTIVATING: shard 0 is to decide"}
	case protocol.PhaseOpening:
		return []string{"OPENING: every shard is to get the new layout"}
	case protocol.PhaseDrainingRemoved:
		return []string{"DRAINING_REMOVED: " + shardList(r.removed()) + " to be drained"}
	case protocol.PhaseConverging:
		return []string{"CONVERGING: the members are to own the shards of the new layout"}
	case protocol.PhaseRetiring:
		return []string{"RETIRING: " + shardList(r.removed()) + " to be removed"}
	case protocol.PhaseRollingBack:
		return []string{"ROLLING_BACK: every shard is to be released"}
	default: // it has ended
		return []string{}
	}
}

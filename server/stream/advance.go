package stream

import (
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Advance makes the transitions that need no reply of a shard: deadlines that passed, members
// that have converged, an operator's pause that is over. groups has one entry for each group of
// the registry.
func (t *Turn) Advance(groups []GroupProgress, now protocol.Instant) {
	s := t.State()
	if s.Deleting {
		return
	}
	if s.Hold != nil && now >= s.Hold.Until {
		t.lift(now)
	}
	if s.RetryAt != 0 && now >= s.RetryAt {
		t.edit(now).RetryAt = 0
	}
	r := t.State().Active
	switch {
	case r == nil:
	case r.decideBy() != 0 && now >= r.decideBy():
		t.editActive(now).rollBack(r.timeoutReason(), r.failsOnTimeout(), now)
	case r.Phase == protocol.PhaseDrainingRemoved && r.DrainBy != 0 && now >= r.DrainBy:
		t.goBack(now)
	case r.Phase == protocol.PhaseConverging:
		t.converge(groups, now)
	}
	t.settle(now)
}

// goBack: the removed shards were not drained in time. The layout has changed, so going back is
// a change of its own, with the same policy; the shards keep their entries and join again.
func (t *Turn) goBack(now protocol.Instant) {
	s := t.edit(now)
	r := s.Active
	r.Error = fmt.Sprintf("drain timeout of %s passed in %s", r.drainTimeout(), r.Phase)
	if len(r.WaitingFor) > 0 {
		r.Error += ": " + joinTexts(r.WaitingFor)
	}
	back := Request{ID: r.ID + "-back", RequestedBy: r.RequestedBy, Reason: "back from " + r.ID + ": " + r.Error}
	count, policy := r.From.Count, r.Policy
	s.finish(protocol.PhaseFailed, now)
	s.want(count)
	s.accept(KindBack, count, policy, back, now)
}

// converge ends CONVERGING when no member holds a removed shard and, where a member lives, every
// shard of the layout has its owner. The targets without the removed shards are committed
// together with the phase, so replies of members count from the next turn on: before it, a
// removed shard that is free could still have been given away.
func (t *Turn) converge(groups []GroupProgress, now protocol.Instant) {
	s := t.State()
	r := s.Active
	if before := t.base.Active; before == nil || before.ID != r.ID || before.Entry != r.Entry {
		return
	}
	reported := map[string]bool{}
	var texts []string
	for _, g := range groups {
		reported[g.Group] = true
		if len(g.HeldAbove) > 0 {
			texts = append(texts, fmt.Sprintf("CONVERGING: group %s: %s %s still held", g.Group, shardList(g.HeldAbove), are(g.HeldAbove)))
		}
		if g.LiveMember && len(g.Unowned) > 0 {
			texts = append(texts, fmt.Sprintf("CONVERGING: group %s: %s %s no owner yet", g.Group, shardList(g.Unowned), have(g.Unowned)))
		}
	}
	for _, name := range s.readyGroups() {
		if !reported[name] {
			texts = append(texts, fmt.Sprintf("CONVERGING: group %s: nothing is known of its members", name))
		}
	}
	if len(r.Reopen) > 0 {
		texts = append(texts, fmt.Sprintf("CONVERGING: %s is stamped again", shardList(r.Reopen)))
	}
	switch {
	case len(texts) > 0:
		t.wait(texts, false, now)
	case r.Removed():
		t.editActive(now).enter(protocol.PhaseRetiring, now)
	default:
		t.edit(now).finish(protocol.PhaseCompleted, now)
	}
}

func are(indexes []int) string {
	if len(indexes) == 1 {
		return "is"
	}
	return "are"
}

func have(indexes []int) string {
	if len(indexes) == 1 {
		return "has"
	}
	return "have"
}

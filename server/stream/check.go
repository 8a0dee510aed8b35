package stream

import (
	"fmt"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Check returns every violated structural invariant of s.
func Check(s *State) []string {
	var c checker
	c.that(s.SchemaVersion == SchemaVersion, "schema version is %d", s.SchemaVersion)
	c.that(s.Groups != nil, "registry of groups is missing")
	c.that(s.Layout.Epoch >= 0 && s.Layout.Epoch <= s.LastEpoch, "layout epoch %d was never given out (last is %d)", s.Layout.Epoch, s.LastEpoch)
	c.that(s.Layout.Count >= 0 && s.Layout.Count <= s.HighCount, "layout has %d shards, but the highest count is %d", s.Layout.Count, s.HighCount)
	for name := range s.Removing {
		c.that(s.Groups[name] == nil, "group %s is registered and being removed", name)
	}
	c.that(s.Spec.Retention.Check("retention") == nil, "retention is %+v", s.Spec.Retention)
	c.that(len(s.History) <= MaxHistory, "history has %d records", len(s.History))
	c.that(slices.IsSorted(s.Orphans), "orphans are not sorted: %v", s.Orphans)
	c.that(!s.Deleting || s.Active == nil, "a resharding runs on a stream that is being deleted")

	want := protocol.PublishOpen
	if s.Hold != nil || s.Active.pausing() {
		want = protocol.PublishPaused
	}
	c.that(s.PublishState == want, "publish state is %s, not %s", s.PublishState, want)
	ids := map[string]bool{}
	for _, r := range s.History {
		c.that(r.Phase.Terminal(), "resharding %s of the history is in phase %s", r.ID, r.Phase)
		c.that(!r.pausing(), "resharding %s has ended and still pauses", r.ID)
		c.that(!ids[r.ID], "resharding id %s stands twice", r.ID)
		ids[r.ID] = true
		c.record(s, r)
	}
	if r := s.Active; r != nil {
		c.that(!ids[r.ID], "resharding id %s stands twice", r.ID)
		c.active(s, r)
	} else if !s.Deleting {
		c.that(s.Spec.ShardCount == s.Layout.Count, "nothing runs, but %d shards are wanted and %d in force", s.Spec.ShardCount, s.Layout.Count)
	}
	return c.violations
}

type checker struct{ violations []string }

func (c *checker) that(ok bool, format string, args ...any) {
	if !ok {
		c.violations = append(c.violations, fmt.Sprintf(format, args...))
	}
}

// active checks what must hold between the running record and the rest.
func (c *checker) active(s *State, r *Resharding) {
	c.record(s, r)
	c.that(!r.Phase.Terminal(), "resharding %s is active in phase %s", r.ID, r.Phase)
	if r.decided() {
		c.that(s.Layout == r.To, "resharding %s is decided, but the layout is %v and not %v", r.ID, s.Layout, r.To)
		c.that(!r.pausing(), "resharding %s is decided and still pauses", r.ID)
		return
	}
	c.that(s.Layout == r.From, "resharding %s is not decided, but the layout is %v and not %v", r.ID, s.Layout, r.From)
	c.that(r.To.Epoch > r.From.Epoch, "resharding %s goes from epoch %d to %d", r.ID, r.From.Epoch, r.To.Epoch)
	c.that(r.To.Count <= s.HighCount, "resharding %s goes beyond the highest count %d", r.ID, s.HighCount)
	switch r.Phase {
	case protocol.PhaseSealing, protocol.PhaseDraining:
		c.that(r.pausing(), "resharding %s is in %s and does not pause", r.ID, r.Phase)
	case protocol.PhaseActivating:
		c.that(r.pausing() == r.seals(), "resharding %s decides with the pause %v", r.ID, r.pausing())
		c.that(!r.seals() || r.Certificate != nil && r.EvidenceAt != 0, "resharding %s decides without evidence", r.ID)
	default: // nothing more to be said
	}
}

// record checks one record by itself.
func (c *checker) record(s *State, r *Resharding) {
	c.that(r.ID != "", "a resharding has no id")
	c.that(r.To.Epoch <= s.LastEpoch, "resharding %s has epoch %d, which was never given out", r.ID, r.To.Epoch)
	c.that(r.PausedAt == 0 == (r.Deadline == 0), "resharding %s pauses from %s until %s", r.ID, r.PausedAt, r.Deadline)
	c.that(slices.IsSorted(r.Expected) && slices.IsSorted(r.Ignored), "groups of resharding %s are not sorted", r.ID)
	n := len(r.Phases)
	c.that(n > 0 && r.Phases[max(n, 1)-1].Phase == r.Phase, "phases of resharding %s do not end with %s", r.ID, r.Phase)
	for i, span := range r.Phases {
		open := span.Ended == 0
		c.that(open == (i == n-1 && !r.Phase.Terminal()), "phase %s of resharding %s ended at %s", span.Phase, r.ID, span.Ended)
	}
}

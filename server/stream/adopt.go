package stream

import (
	"fmt"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// alertLost is the alert after the shards turned out to be ahead of the aggregate.
const alertLost = "Redis lost writes"

// mostBumps is how often a change that has not been decided yet may find shards ahead of it at
// the same layout. Beyond that something else is wrong, and it is rolled back: it must end.
const mostBumps = 5

// Adopt is 1.7.1: shard 0 (or the highest epoch seen) is ahead of the aggregate. seen is the
// reply of LOOK at shard 0 merged with the highest revision that any AHEAD reply carried. It
// returns the revision that the next commit must have at least. id is the id of the record that
// follows a layout which no record of the aggregate knows.
func (t *Turn) Adopt(seen Control, id string, now protocol.Instant) (minRevision int64) {
	s := t.edit(now)
	defer t.settle(now)
	if s.Deleting {
		return seen.Rev + 1
	}
	s.alert(alertLost, now)
	s.HighCount = max(s.HighCount, seen.High, seen.Count)
	r := s.Active
	found := seen.layout()
	switch {
	case !seen.HasEpoch || found.Epoch < s.Layout.Epoch || found == s.Layout:
		s.bump(now)
	case r != nil && r.Kind == KindCreate && r.Phase == protocol.PhaseProvisioning && seen.gone():
		// Tombstones of a stream that had this name before: its numbers go on.
		s.Layout = Layout{Epoch: seen.Epoch}
		s.LastEpoch = max(s.LastEpoch, seen.Epoch) + 1
		r.From, r.To.Epoch = s.Layout, s.LastEpoch
		r.enter(protocol.PhaseProvisioning, now)
		s.Alert, s.AlertSince = "", 0 // nothing was lost
	case r != nil && !r.decided() && found == r.To:
		// The decision of the running change: it goes forward, with every shard that may exist.
		r.Old = max(r.Old, s.HighCount)
		r.Skip = s.orphanIndexes(r.To.Count)
		t.goForward(reasonFollowed, now)
	default:
		if r != nil {
			r.Error = fmt.Sprintf("%s: the shards are at layout epoch %d with %s", alertLost, seen.Epoch, Counted(seen.Count, "shard"))
			s.finish(protocol.PhaseFailed, now)
		}
		s.force(KindAdopt, found, max(s.HighCount, s.Layout.Count), s.orphanIndexes(found.Count), id,
			fmt.Sprintf("%s: shard 0 shows layout epoch %d with %s", alertLost, seen.Epoch, Counted(seen.Count, "shard")), now)
		s.want(found.Count) // what was wanted is lost; nothing may start from what is left of it
	}
	return seen.Rev + 1
}

// bump goes on in the same phase with a higher revision. Replies from before do not count.
func (s *State) bump(now protocol.Instant) {
	r := s.Active
	if r == nil {
		return
	}
	r.Entry++
	r.UpdatedAt = now
	if !r.cancellable() {
		return
	}
	if r.Bumped++; r.Bumped > mostBumps {
		r.rollBack("shards stay ahead of the coordinator's state", false, now)
	}
}

// Behind says whether the aggregate, reloaded at that revision, is older than what a refusing
// shard has seen: then shard 0 is looked at and Adopt follows. The layout in force counts, not
// the last epoch given out: a shard that shows the layout of a change which the aggregate still
// holds for undecided proves a decision that was lost.
func Behind(s *State, revision int64, seen Control) bool {
	return revision < seen.Rev || seen.HasEpoch && seen.Epoch > s.Layout.Epoch
}

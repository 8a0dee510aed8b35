package group

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/assign"
)

// targeted says whether a member in this state is given shards. One that is away keeps its
// targets until its lease row ends (4.5).
func (s MemberState) targeted() bool { return s == Active || s == Away }

// retarget computes the targets anew and starts or stops the deadlines of the shards whose
// target has left, or come back to, their holder. The caller raises the epochs (C8).
func (t *Turn) retarget(now protocol.Instant) {
	s := t.edit(now)
	var ids []string
	for id, m := range s.Members {
		if m.State.targeted() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)

	// Who reads a shard and was not told to let go keeps it before anybody whose target it only
	// is: to move what nobody reads interrupts nobody.
	prev, inUse := make([]string, s.Assignable), make([]bool, s.Assignable)
	for i := range prev {
		sh := &s.Shards[i]
		prev[i] = sh.Target
		if sh.RevokedAt == 0 && !sh.Orphaned && sh.Holder != nil && targetedIn(s, sh.Holder.MemberID) {
			prev[i], inUse[i] = sh.Holder.MemberID, true
		}
	}
	target := assign.BalanceInUse(ids, s.Assignable, prev, inUse)

	deadline := now.Add(s.Config().RebalanceTimeout)
	for i := range s.Shards {
		sh := &s.Shards[i]
		sh.Target = ""
		if i < len(target) {
			sh.Target = target[i]
		}
		if sh.Holder == nil || sh.Orphaned {
			continue
		}
		if m := s.session(sh.Holder); m == nil || m.State != Active {
			continue
		}
		switch {
		case sh.Target != sh.Holder.MemberID:
			if sh.Deadline == 0 {
				sh.Deadline = deadline
			}
		case sh.RevokedAt == 0:
			sh.Deadline = 0 // back before the holder was told (S10)
		}
	}
	s.index.Store(nil)
}

func targetedIn(s *State, id string) bool {
	m := s.Members[id]
	return m != nil && m.State.targeted()
}

// SetAssignable changes how many shards are assigned (a phase of a resharding). Shards that
// leave stay with their holders until these have let go; GE and MV rise.
func (t *Turn) SetAssignable(n int, now protocol.Instant) {
	if n < 0 || n == t.State().Assignable {
		return
	}
	s := t.edit(now)
	s.Assignable = n
	for len(s.Shards) < n {
		s.Shards = append(s.Shards, Shard{})
	}
	t.raise(now)
	t.retarget(now)
	t.trim()
}

// SetSpec changes the timing of the group, which makes another generation of it, unless it is the
// same. The rows of all sessions are renewed, so that a row
// of the old length is not taken for a quiet member's. A row never becomes shorter.
func (t *Turn) SetSpec(spec protocol.GroupSpec, now protocol.Instant) {
	spec = spec.WithDefaults()
	if spec == t.State().Spec {
		return
	}
	s := t.edit(now)
	s.Spec, s.Generation = spec, s.SpecGeneration()+1
	for _, id := range sortedMembers(s) {
		if m := s.Members[id]; !m.State.SessionOver() {
			t.rows.Renew(Row(id, m.JoinEpoch))
		}
	}
}

// sortedMembers lists the member ids, so that equal input gives equal output.
func sortedMembers(s *State) []string {
	ids := make([]string, 0, len(s.Members))
	for id := range s.Members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

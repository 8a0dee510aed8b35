package group

import "fmt"

// Check returns every violated structural invariant of s: a shard with a holder that has no
// such session and is not orphaned, a target that is no member, an imbalance, and so on. The
// simulation and the engine's self-check call it.
func Check(s *State) []string {
	var bad []string
	report := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }

	if s.Assignable < 0 || s.Assignable > len(s.Shards) {
		report("%d shards are assignable, of %d", s.Assignable, len(s.Shards))
		return bad
	}
	if n := len(s.Shards); n > s.Assignable && s.Shards[n-1].Holder == nil {
		report("shard %d is free and no longer in the layout", n-1)
	}
	if c := s.Correction; c != nil && c.TargetMV != s.MetadataVersion {
		report("correction round is for metadata version %d, the group is at %d", c.TargetMV, s.MetadataVersion)
	}
	checkMembers(s, report)
	checkTargets(s, report)
	checkHolders(s, report)
	return bad
}

func checkMembers(s *State, report func(string, ...any)) {
	joins := map[int64]string{}
	for _, id := range sortedMembers(s) {
		m := s.Members[id]
		switch m.State {
		case Active, Leaving, Away, Expired, Fenced:
		default:
			report("member %s is in unknown state %q", id, m.State)
		}
		if m.JoinEpoch < 1 || m.JoinEpoch > s.GroupEpoch {
			report("member %s joined at epoch %d, the group is at %d", id, m.JoinEpoch, s.GroupEpoch)
		}
		if m.JoinMV > s.MetadataVersion {
			report("member %s joined at metadata version %d, the group is at %d", id, m.JoinMV, s.MetadataVersion)
		}
		if other, taken := joins[m.JoinEpoch]; taken {
			report("members %s and %s joined at the same epoch %d", other, id, m.JoinEpoch)
		}
		joins[m.JoinEpoch] = id
	}
}

func checkTargets(s *State, report func(string, ...any)) {
	load := map[string]int{}
	for id, m := range s.Members {
		if m.State.targeted() {
			load[id] = 0
		}
	}
	for i := range s.Shards {
		target := s.Shards[i].Target
		if i >= s.Assignable {
			if target != "" {
				report("shard %d has target %s but is not in the layout", i, target)
			}
			continue
		}
		if target == "" {
			if len(load) > 0 {
				report("shard %d has no target", i)
			}
			continue
		}
		if _, ok := load[target]; !ok {
			report("target %s of shard %d is no live member", target, i)
			continue
		}
		load[target]++
	}
	if len(load) == 0 {
		return
	}
	least, most := s.Assignable+1, -1
	for _, n := range load {
		least, most = min(least, n), max(most, n)
	}
	if most-least > 1 {
		report("targets are unbalanced: between %d and %d shards for one member", least, most)
	}
}

func checkHolders(s *State, report func(string, ...any)) {
	epochs := map[int64]int{}
	for i := range s.Shards {
		sh := &s.Shards[i]
		if sh.OwnershipEpoch > s.OwnershipCounter {
			report("shard %d has ownership epoch %d, the counter is at %d", i, sh.OwnershipEpoch, s.OwnershipCounter)
		}
		if sh.RevokedAt > s.GroupEpoch {
			report("shard %d was revoked at epoch %d, the group is at %d", i, sh.RevokedAt, s.GroupEpoch)
		}
		if sh.Acknowledged && sh.RevokedAt == 0 {
			report("shard %d is acknowledged but was not revoked", i)
		}
		if sh.Holder == nil {
			if sh.RevokedAt != 0 || sh.Orphaned || sh.Deadline != 0 {
				report("shard %d is free but carries marks of a holder", i)
			}
			continue
		}
		if other, taken := epochs[sh.OwnershipEpoch]; taken {
			report("shards %d and %d have the same ownership epoch %d", other, i, sh.OwnershipEpoch)
		}
		epochs[sh.OwnershipEpoch] = i
		m := s.session(sh.Holder)
		switch {
		case sh.Orphaned:
			if m != nil {
				report("shard %d is orphaned but its session %s is not over", i, sh.Holder.Row())
			}
		case m == nil:
			report("shard %d is held by session %s, which is over", i, sh.Holder.Row())
		case m.Incarnation != sh.Holder.Incarnation:
			report("shard %d is held by session %s under another incarnation", i, sh.Holder.Row())
		case m.State != Active && sh.RevokedAt == 0:
			report("shard %d is held by session %s, which has left, and is not marked as draining", i, sh.Holder.Row())
		case m.State == Active && sh.Deadline == 0 && (sh.RevokedAt != 0 || sh.Target != sh.Holder.MemberID):
			report("shard %d is to leave session %s and has no deadline", i, sh.Holder.Row())
		}
	}
}

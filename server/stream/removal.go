package stream

import (
	"maps"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Removal is a group that has left the registry while its Redis consumer groups have not gone
// from every shard yet.
type Removal struct {
	Since protocol.Instant `json:"since"`
	// Outbid is an ownership epoch that no member of the group was ever granted: who still takes
	// himself for the owner of a shard finds it taken.
	Outbid int64 `json:"outbid"`
	Entry  int   `json:"entry,omitempty"` // State.GroupEntries when it left the registry
}

// Why no shard keeps a consumer group of a deleted registration. Whatever makes groups carries the
// names of the registry, so that nothing planned after the deletion makes this one. What was
// planned before it carries a lower revision; RMGROUP leaves its own on every shard that has a
// control hash, tombstones too, and a shard inside the span that has none yet is waited for: what
// makes it comes first. Until then the name cannot be registered again, since MKGROUP and RMGROUP
// would meet.

// RemoveGroup takes a group out of the registry; its Redis consumer groups are destroyed, with
// whatever they have not acknowledged. granted is the highest ownership epoch that any of its
// members may have.
func (t *Turn) RemoveGroup(name string, granted int64, now protocol.Instant) {
	if _, ok := t.State().Groups[name]; !ok {
		return
	}
	s := t.edit(now)
	delete(s.Groups, name)
	if r := s.Active; r != nil {
		r.Expected = slices.DeleteFunc(r.Expected, func(g string) bool { return g == name })
	}
	if s.Removing == nil {
		s.Removing = map[string]Removal{}
	}
	s.GroupEntries++
	s.Removing[name] = Removal{Since: now, Outbid: granted + 1, Entry: s.GroupEntries}
	s.RetryAt, s.Retries = 0, 0
	t.settle(now)
}

// Removals lists the groups that are being removed, sorted.
func (s *State) Removals() []string { return slices.Sorted(maps.Keys(s.Removing)) }

// planRemoval destroys the groups on every shard that there ever was: one that should be gone may
// not be.
func planRemoval(s *State) Pass {
	names := atOnce(s.Removals(), s.highest())
	steps := make([]Step, 0, len(names)*s.highest())
	for i := range s.highest() {
		for _, name := range names {
			steps = append(steps, Step{
				Script: shardscript.RmGroup, Index: i, ID: "group", Epoch: s.Layout.Epoch, Count: s.Layout.Count,
				Groups: []string{name}, Outbid: s.Removing[name].Outbid, Entry: s.Removing[name].Entry,
			})
		}
	}
	return Pass{Kind: PassRemove, Stages: stages(steps), Groups: names, Backoff: true}
}

// applyRemoval forgets the groups that no shard has any more.
func (t *Turn) applyRemoval(o outcome, now protocol.Instant) {
	missed := false
	for _, name := range t.State().Removals() {
		if !slices.Contains(o.res.Pass.Groups, name) {
			continue
		}
		if !t.goneEverywhere(o, name) {
			missed = true
			continue
		}
		s := t.edit(now)
		delete(s.Removing, name)
		if len(s.Removing) == 0 {
			s.Removing = nil
		}
	}
	if missed {
		t.retryLater(now)
	}
	t.settle(now)
}

func (t *Turn) goneEverywhere(o outcome, name string) bool {
	s := t.State()
	for i := range s.highest() {
		rep, ok := o.find(stepKey{script: shardscript.RmGroup, index: i, group: name})
		switch {
		case !ok || rep.Step.Entry != s.Removing[name].Entry: // of a removal before this one
			return false
		case o.done(rep) || rep.Code == shardscript.Retired:
		case i >= s.span() && rep.Code == shardscript.Unfenced: // nothing of ours
		default:
			return false
		}
	}
	return true
}

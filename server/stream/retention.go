package stream

import (
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Retention is carried out at rest alone: while a change runs, its evidence must stay what it is,
// and a shard that is on its way in or out is nobody's to trim. RETAIN carries the layout in force
// and refuses a shard that shows another one, or the gate of a change, so that a pass which was
// planned before the change began does nothing behind its back.

// PlanRetention is one slice of RETAIN on each of the shards, or on all of them for nil: empty
// unless the stream is at rest and its spec lets anything go. Nothing of it is ever applied to the
// state; what is left to do is in the replies (Reply.More).
func PlanRetention(s *State, shards []int) Pass {
	if s.Deleting || s.Active != nil || !s.Retains() {
		return Pass{Kind: PassRetain}
	}
	// What nobody has acknowledged must not go by ACKED, so every group of the registry must be
	// there. The other policies only count what a group has not been given: that is nothing while
	// it is being registered.
	groups := s.readyGroups()
	if s.Spec.Retention.Policy == protocol.RetentionAcked {
		groups = s.GroupNames()
	}
	var steps []Step
	for i := range s.Layout.Count {
		if shards == nil || slices.Contains(shards, i) {
			steps = append(steps, Step{
				Script: shardscript.Retain, Index: i, ID: "retention", Epoch: s.Layout.Epoch, Count: s.Layout.Count,
				Groups: groups, Retention: s.Spec.Retention,
			})
		}
	}
	return Pass{Kind: PassRetain, Stages: stages(steps)}
}

// Retains says whether the stream's retention removes anything at all.
func (s *State) Retains() bool {
	return s.Spec.Retention.WithDefaults().Policy != protocol.RetentionNone
}

// Unfinished lists the shards of a retention pass that have another slice to give up, ascending.
func Unfinished(res PassResult) []int {
	var more []int
	for _, rep := range res.Replies {
		if rep.Step.Script == shardscript.Retain && rep.More {
			more = append(more, rep.Step.Index)
		}
	}
	slices.Sort(more)
	return more
}

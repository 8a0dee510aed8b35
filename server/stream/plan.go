package stream

import (
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// provisioningFirst is how long a change that has just been accepted goes before registrations:
// PROVISION makes the new groups as well, and MKGROUP would only find shards missing.
const provisioningFirst = time.Second

// Plan is the pass that the state calls for now, empty when there is nothing to do. It is
// derived from the state alone, so any replica finds it again after a crash. One pass at a
// time: deletion before all else; then the operator's pause and the registration and deletion of
// groups, which are short and must get through while a change runs; then the active resharding.
func Plan(s *State, now protocol.Instant) Pass {
	if s.Deleting {
		return planPurge(s)
	}
	if pass := planSide(s, now); !pass.Empty() {
		return pass
	}
	if s.Active != nil {
		return planPhase(s)
	}
	return Pass{}
}

// planSide is HOLD, MKGROUP or RMGROUP, when one is due. After a failure they take turns.
func planSide(s *State, now protocol.Instant) Pass {
	var due []func(*State) Pass
	if s.HoldDirty {
		due = append(due, planHold)
	}
	if s.makesGroups() {
		due = append(due, planGroups)
	}
	if len(s.Removing) > 0 {
		due = append(due, planRemoval)
	}
	if len(due) == 0 || now < s.RetryAt {
		return Pass{}
	}
	if r := s.Active; r != nil && r.Phase == protocol.PhaseProvisioning && now < r.since().Add(provisioningFirst) {
		return Pass{}
	}
	return due[s.Retries%len(due)](s)
}

// planPurge lets the tombstones of a deleted stream expire, and removes what a forced deletion
// left: for every index that ever was.
func planPurge(s *State) Pass {
	steps := make([]Step, s.highest())
	for i := range steps {
		steps[i] = Step{Script: shardscript.Purge, Index: i, ID: "delete", Epoch: s.LastEpoch}
	}
	return Pass{Kind: PassPurge, Stages: stages(steps), Backoff: true}
}

// planPhase is the pass of the active resharding's phase.
func planPhase(s *State) Pass {
	r := s.Active
	pass := Pass{Kind: PassPhase, ReshardingID: r.ID, Phase: r.Phase, Entry: r.Entry}
	switch r.Phase {
	case protocol.PhaseProvisioning:
		pass.Stages = stages(provisionSteps(s))
		pass.ConfirmFirst, pass.Backoff = true, true
	case protocol.PhaseSealing:
		pass.Stages = stages(r.oldSteps(shardscript.Seal, 0, func(st *Step) { st.Until = r.Deadline }))
		pass.Confirm, pass.Backoff = true, true
	case protocol.PhaseDraining:
		expected := s.expected(false)
		pass.Stages = stages(r.oldSteps(shardscript.Evidence, 0, func(st *Step) { st.Groups, st.Ignored = expected, r.Ignored }))
		pass.Backoff = true
	case protocol.PhaseActivating:
		pass.Stages = stages([]Step{decideStep(s)})
		pass.Confirm, pass.Backoff = true, true
	case protocol.PhaseOpening:
		pass.Stages = stages(openSteps(s, r.touched()))
		pass.Backoff = true
	case protocol.PhaseDrainingRemoved:
		pass.Stages = stages(append(openSteps(s, r.Reopen), remakeSteps(s)...), append(removedSteps(s, shardscript.Evidence), surveySteps(s, r.To.Count)...))
		pass.Backoff = true
	case protocol.PhaseConverging:
		pass.Stages = stages(openSteps(s, r.Reopen), surveySteps(s, max(r.Old, r.To.Count)))
		pass.Backoff = true
	case protocol.PhaseRetiring:
		pass.Stages = stages(removedSteps(s, shardscript.RetireOne))
		pass.Backoff = true
	case protocol.PhaseRollingBack:
		planRollback(s, &pass)
	default: // a resharding that has ended is not active
	}
	return pass
}

// stages drops empty stages.
func stages(all ...[]Step) [][]Step {
	return slices.DeleteFunc(all, func(steps []Step) bool { return len(steps) == 0 })
}

// step is a step of r on index that carries the layout that was in force before.
func (r *Resharding) step(script shardscript.Name, index int) Step {
	return Step{Script: script, Index: index, ID: r.ID, Epoch: r.From.Epoch, Count: r.From.Count}
}

// oldSteps is one step for each old shard from index first on.
func (r *Resharding) oldSteps(script shardscript.Name, first int, fill func(*Step)) []Step {
	var steps []Step
	for i := first; i < r.Old; i++ {
		st := r.step(script, i)
		if fill != nil {
			fill(&st)
		}
		steps = append(steps, st)
	}
	return steps
}

// provisionSteps: shard 0 first, since it keeps the highest count that ever was; only then may
// anything else come to exist.
func provisionSteps(s *State) (first, rest []Step) {
	r := s.Active
	groups := s.GroupNames()
	for i := range max(r.Old, r.To.Count) {
		st := r.step(shardscript.Prepare, i)
		if i >= r.Old {
			st = r.step(shardscript.Provision, i)
			st.Groups = groups
			st.Until = r.Deadline // known when the phase is entered again; the shard is born sealed either way
		}
		if i == 0 {
			st.High = s.highest()
			first = append(first, st)
			continue
		}
		rest = append(rest, st)
	}
	return first, rest
}

// decideStep is the one write that changes the layout.
func decideStep(s *State) Step {
	r := s.Active
	st := r.step(shardscript.Decide, 0)
	st.ToEpoch, st.ToCount = r.To.Epoch, r.To.Count
	st.Quiesced = r.seals()
	st.Drained = r.inScope(0)
	st.Groups, st.Ignored = s.expected(false), r.Ignored
	if r.seals() {
		st.NotAfter = r.EvidenceAt.Add(EvidenceLife)
	}
	return st
}

// touched lists every index of both layouts, the shards that go on first.
func (r *Resharding) touched() []int {
	all := make([]int, 0, max(r.Old, r.To.Count))
	for i := range r.To.Count {
		all = append(all, i)
	}
	return append(all, r.removed()...)
}

// openSteps stamps the layout in force on the shards at indexes (1.2.5).
func openSteps(s *State, indexes []int) []Step {
	groups := s.GroupNames()
	steps := make([]Step, 0, len(indexes))
	for _, i := range indexes {
		st := Step{Script: shardscript.Open, Index: i, ID: s.Active.ID, Epoch: s.Layout.Epoch, Count: s.Layout.Count, Groups: groups}
		if i < s.Layout.Count {
			st.Hold = s.holdUntil()
		}
		steps = append(steps, st)
	}
	return steps
}

// removedSteps is EVIDENCE or RETIRE of the removed shards.
func removedSteps(s *State, script shardscript.Name) []Step {
	r := s.Active
	expected := s.expected(true)
	var steps []Step
	for _, i := range r.removed() {
		st := Step{Script: script, Index: i, ID: r.ID, Epoch: s.Layout.Epoch, Count: s.Layout.Count, Groups: expected, Ignored: r.Ignored}
		if script == shardscript.RetireOne && r.Policy.Retire == protocol.RetireArchive {
			st.Archive = r.archiveID()
		}
		steps = append(steps, st)
	}
	return steps
}

// remakeSteps makes the groups of the registry on removed shards that lack one: a shard that the
// layout did not have when a group was registered, or a group that was destroyed. It starts at
// 0: an entry may be delivered twice to it, but none is passed over.
func remakeSteps(s *State) []Step {
	r := s.Active
	var steps []Step
	for _, i := range r.Remake {
		for _, name := range s.GroupNames() {
			steps = append(steps, Step{
				Script: shardscript.MkGroup, Index: i, ID: r.ID, Epoch: s.Layout.Epoch, Count: s.Layout.Count,
				Groups: []string{name}, Start: "0",
			})
		}
	}
	return steps
}

// surveySteps looks at the shards below count, but for those that are not ours.
func surveySteps(s *State, count int) []Step {
	steps := make([]Step, 0, count)
	for i := range count {
		if r := s.Active; r != nil && slices.Contains(r.Skip, i) {
			continue
		}
		st := Step{Script: shardscript.Survey, Index: i, ID: "survey", Epoch: s.Layout.Epoch, Count: s.Layout.Count, ToEpoch: s.LastEpoch}
		steps = append(steps, st)
	}
	return steps
}

// planRollback: shard 0 must have ended the change, in a commit of its own, before any other
// shard hears of it: if shard 0 had decided, releasing another one would open it under a layout
// that is no longer in force, and undoing a new one would lose entries (1.5).
func planRollback(s *State, pass *Pass) {
	r := s.Active
	pass.Backoff = true
	switch {
	case r.TooLate:
		pass.Stages = stages([]Step{r.step(shardscript.Look, 0)})
		pass.Confirm = true
	case !r.Released0 && r.Old == 0:
		pass.Stages = stages([]Step{r.step(shardscript.Undo, 0)})
	case !r.Released0:
		pass.Stages = stages(stampLost(s, 0, 1), []Step{r.step(shardscript.Release, 0)})
	default:
		ends := r.oldSteps(shardscript.Release, 1, nil)
		for i := max(r.Old, 1); i < r.To.Count; i++ {
			ends = append(ends, r.step(shardscript.Undo, i))
		}
		pass.Stages = stages(stampLost(s, 1, r.Old), ends)
	}
}

// stampLost gives old shards that have lost their control hash the layout in force again: RELEASE
// finds nothing to end on them, and producers could not append.
func stampLost(s *State, from, below int) []Step {
	lost := slices.DeleteFunc(slices.Clone(s.Active.Unfenced), func(i int) bool { return i < from || i >= below })
	return openSteps(s, lost)
}

// PlanLook asks shard 0 what is in force, and waits for the replicas: what Adopt needs (1.7.1).
func PlanLook(s *State) Pass {
	return Pass{Kind: PassLook, Stages: stages([]Step{{Script: shardscript.Look, ID: "look"}}), Confirm: true}
}

// PlanSurvey is the sweep: SURVEY of shard 0 first, then of every index below the highest
// count ever. Empty for a stream that never had a shard.
func PlanSurvey(s *State) Pass {
	steps := surveySteps(s, s.highest())
	if len(steps) == 0 {
		return Pass{Kind: PassSurvey}
	}
	return Pass{Kind: PassSurvey, Stages: stages(steps[:1], steps[1:])}
}

// Next is the earliest instant at which Advance has something to do by itself, 0 for none: the
// end of a pause, a deadline, the next try of a pass that failed. Advance at or after that
// instant always changes the state.
func Next(s *State) protocol.Instant {
	var next protocol.Instant
	at := func(i protocol.Instant) {
		if i != 0 && (next == 0 || i < next) {
			next = i
		}
	}
	if s.Deleting {
		return 0
	}
	at(s.holdUntil())
	at(s.RetryAt)
	if r := s.Active; r != nil {
		at(r.decideBy())
		if r.Phase == protocol.PhaseDrainingRemoved {
			at(r.DrainBy)
		}
	}
	return next
}

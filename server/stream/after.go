package stream

import (
	"fmt"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// The phases after the decision (1.5): they only go forward.

// applyOpening: every shard of both layouts has the stamp of the layout. A pause that the operator
// has set since the pass was planned is stamped by HOLD, which goes on until every shard has it.
func (t *Turn) applyOpening(o outcome, now protocol.Instant) {
	t.noteExhausted(o, now)
	if len(o.undone()) > 0 {
		t.waitForAnswers(o, now)
		return
	}
	r := t.editActive(now)
	r.StampedAt = max(o.latest(), r.DecidedAt)
	r.afterOpening(now)
}

// noteExhausted records shards that cannot be unsealed any more, for alerts and for the sweep,
// which would repair them for ever.
func (t *Turn) noteExhausted(o outcome, now protocol.Instant) {
	indexes := o.with(shardscript.Exhausted)
	if covers(texts(t.State().Exhausted), texts(indexes)) {
		return
	}
	s := t.edit(now)
	s.Exhausted = append(s.Exhausted, indexes...)
	slices.Sort(s.Exhausted)
	s.Exhausted = slices.Compact(s.Exhausted)
	s.alert(fmt.Sprintf("%s cannot be opened: its newest entry has the highest possible id", shardList(s.Exhausted)), now)
}

func texts(indexes []int) []string {
	out := make([]string, len(indexes))
	for i, x := range indexes {
		out[i] = fmt.Sprint(x)
	}
	return out
}

// reopened drops the indexes that OPEN has stamped, and adds those that need it.
func (t *Turn) reopened(o outcome, needed []int, now protocol.Instant) {
	r := t.State().Active
	var left []int
	for _, i := range r.Reopen {
		if rep, ok := o.reply(shardscript.Open, i); !ok || !o.done(rep) {
			left = append(left, i)
		}
	}
	left = append(left, needed...)
	slices.Sort(left)
	left = slices.Compact(left)
	if !slices.Equal(left, r.Reopen) {
		t.editActive(now).Reopen = left
	}
}

// remade drops the indexes where MKGROUP was answered for every group of the registry, whatever
// the answer (evidence tells what else is wrong there), and adds those that lack a group.
func (t *Turn) remade(o outcome, lacking []int, now protocol.Instant) {
	s := t.State()
	left := slices.Clone(lacking)
	for _, i := range s.Active.Remake {
		if slices.ContainsFunc(s.GroupNames(), func(name string) bool {
			rep, ok := o.group(i, name)
			return !ok || rep.Code == "" || rep.Code == shardscript.Late
		}) {
			left = append(left, i)
		}
	}
	slices.Sort(left)
	if left = slices.Compact(left); !slices.Equal(left, s.Active.Remake) {
		t.editActive(now).Remake = left
	}
}

// strayed lists the shards that the replies of SURVEY show to differ from what OPEN leaves.
func (t *Turn) strayed(o outcome, now protocol.Instant) []int {
	s := t.State()
	r := s.Active
	var needed []int
	for _, rep := range o.res.Replies {
		if rep.Step.Script != shardscript.Survey || rep.Code != shardscript.OK {
			continue
		}
		i, c := rep.Step.Index, rep.Control
		switch {
		case slices.Contains(r.Reopen, i): // the survey ran behind its OPEN
		case r.inside(i):
			if s.differs(i, c) {
				needed = append(needed, i)
			} else if c.Hold != s.holdUntil() && !s.HoldDirty {
				t.edit(now).dirtyHold()
			}
		case c.Retired == "" && removedDiffers(s, c, o.res.Barrier):
			needed = append(needed, i)
		}
	}
	return needed
}

// removedDiffers says that a shard outside the layout is not fenced and sealed as OPEN leaves it.
// A stream that is missing beside a control hash that is not: no OPEN would bring it back, and
// what is missing must not count as drained.
func removedDiffers(s *State, c Control, barrier string) bool {
	if !c.HasEpoch || c.layout() != s.Layout || c.Gate != "" {
		return true
	}
	return c.StreamExists && !c.Sealed && barrier != BarrierLease
}

// applyDrainingRemoved: members read the removed shards until nothing is left on them.
func (t *Turn) applyDrainingRemoved(o outcome, now protocol.Instant) {
	s := t.State()
	r := s.Active
	if len(o.res.Pass.Stages) > 1 && !o.ran(shardscript.Evidence) {
		t.reopened(o, nil, now) // only the stage of repairs was run
		t.remade(o, nil, now)
		t.waitForAnswers(o, now)
		return
	}
	needed := t.strayed(o, now)
	var texts []string
	var lacking []int
	unknown := false
	for _, i := range r.removed() {
		rep, ok := o.reply(shardscript.Evidence, i)
		switch {
		case ok && (rep.Code == shardscript.Retired || rep.Control.Retired != ""):
			continue // what lies beside a tombstone is not ours
		case ok && (rep.Code == shardscript.Unfenced || rep.Code != "" && rep.Code != shardscript.Late && removedDiffers(s, rep.Control, o.res.Barrier)):
			if rep.Code == shardscript.Unfenced && !rep.Control.StreamExists {
				t.edit(now).alert(fmt.Sprintf("shard %d of the layout before has vanished with its control hash, drained or not", i), now)
			}
			needed = append(needed, i)
			texts = append(texts, fmt.Sprintf("shard %d: has lost its seal or its layout and is stamped again", i))
			continue
		}
		v := judge(i, rep, ok)
		if v.drained {
			continue
		}
		if v.unknown && ok && rep.Evidence != nil && len(missingGroups(rep)) > 0 {
			lacking = append(lacking, i)
		}
		unknown = unknown || v.unknown
		texts = append(texts, v.texts...)
	}
	t.reopened(o, needed, now)
	t.remade(o, lacking, now)
	t.warn(o, len(texts) == 0, now)
	if len(t.State().Active.Reopen) == 0 && len(texts) == 0 {
		t.editActive(now).enter(protocol.PhaseConverging, now)
		return
	}
	if len(texts) > 0 {
		t.wait(texts, unknown, now)
	}
}

// applyConverging only repairs; members end the phase (Advance).
func (t *Turn) applyConverging(o outcome, now protocol.Instant) {
	t.reopened(o, t.strayed(o, now), now)
}

// archiveID names the archive of this change's shards. A name that is taken is never used.
func (r *Resharding) archiveID() string {
	if r.Archives == 0 {
		return r.ID
	}
	return fmt.Sprintf("%s-%d", r.ID, r.Archives+1)
}

// applyRetiring: the removed shards are gone. One that has got something to deliver again is
// assigned again.
func (t *Turn) applyRetiring(o outcome, now protocol.Instant) {
	r := t.State().Active
	var texts []string
	taken, back := false, false
	for _, i := range r.removed() {
		rep, ok := o.reply(shardscript.RetireOne, i)
		switch {
		case ok && (rep.Code == shardscript.OK || rep.Code == shardscript.Retired || rep.Control.Retired != ""):
		case !ok || rep.Code == "":
			texts = append(texts, noAnswer(i, "RETIRE", rep.Err))
		case rep.Code == shardscript.Exists:
			taken = taken || rep.Step.Archive == r.archiveID()
			texts = append(texts, fmt.Sprintf("shard %d: archive %s is taken", i, rep.Step.Archive))
		case rep.Code == shardscript.Late:
			texts = append(texts, refused(i, "RETIRE", rep))
		default: // BUSY, UNSEALED, NOTFENCED, UNFENCED, UNKNOWN
			back = true
		}
	}
	t.warn(o, true, now)
	switch {
	case back:
		t.editActive(now).enterDrainingRemoved(now)
	case taken:
		t.editActive(now).Archives++
	case len(texts) > 0:
		t.wait(texts, false, now)
	default:
		t.edit(now).finish(protocol.PhaseCompleted, now)
	}
}

package stream

import (
	"fmt"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// reasonDecided is what a record says whose rollback came too late.
const reasonDecided = "decided: shard 0 had changed the layout before the rollback reached it"

// reasonFollowed is the same where nobody asked for a rollback.
const reasonFollowed = "decided: shard 0 shows the new layout"

// applyRollingBack: shard 0 ends the change, then all others hear of it. If shard 0 had decided
// before, the change goes forward after all.
func (t *Turn) applyRollingBack(o outcome, now protocol.Instant) {
	r := t.State().Active
	if rep, ok := o.reply(shardscript.Look, 0); ok {
		t.applyLook(rep, o.res.Unconfirmed, now)
		return
	}
	for _, rep := range o.res.Replies {
		if rep.Code != shardscript.Decided {
			continue
		}
		switch {
		case rep.Step.Index == 0:
			r = t.editActive(now)
			r.TooLate = true
			r.Entry++
		case rep.Control.layout() == r.To:
			// Another shard has the new layout, which only a decision can have given to it: shard
			// 0 has lost it. OPEN brings it back.
			t.goForward(reasonDecided, now)
		default: // a layout that both the aggregate and shard 0 have lost
			t.Adopt(rep.Control, r.ID+"-adopt", now)
		}
		return
	}
	t.noteExhausted(o, now)
	t.noteNotEmpty(o, now)
	t.noteUnfenced(o, now)
	if left := t.unreleased(o); len(left) > 0 {
		t.waitForAnswers(o, now)
		return
	}
	r = t.editActive(now)
	if !r.Released0 {
		r.Released0 = true
		r.Unfenced = nil
		r.Entry++ // a late repeat of RELEASE 0 says nothing of the other shards
		if max(r.Old, r.To.Count) > 1 {
			return
		}
	}
	end := protocol.PhaseRolledBack
	if r.FailInstead {
		end = protocol.PhaseFailed
	}
	t.edit(now).finish(end, now)
}

// unreleased lists the shards on which the change has not ended.
func (t *Turn) unreleased(o outcome) []int {
	var left []int
	for _, stage := range o.res.Pass.Stages {
		for _, st := range stage {
			rep, ok := o.find(keyOf(st))
			ended := ok && (o.done(rep) || rep.Code == shardscript.NotEmpty || rep.Code == shardscript.Retired)
			if !ended {
				left = append(left, st.Index)
			}
		}
	}
	return left
}

// noteUnfenced remembers the old shards on which RELEASE found no layout.
func (t *Turn) noteUnfenced(o outcome, now protocol.Instant) {
	r := t.State().Active
	lost := slices.Clone(r.Unfenced)
	for _, rep := range o.res.Replies {
		if rep.Step.Script == shardscript.Release && rep.Code == shardscript.Unfenced {
			lost = append(lost, rep.Step.Index)
		}
	}
	slices.Sort(lost)
	if lost = slices.Compact(lost); !slices.Equal(lost, r.Unfenced) {
		t.editActive(now).Unfenced = lost
	}
}

// noteNotEmpty reports entries on a shard that was never open. It is left to the sweep, which
// has it drained.
func (t *Turn) noteNotEmpty(o outcome, now protocol.Instant) {
	if t.State().Active.ErrorCode == protocol.CodeForeignKeys {
		return // the leftovers for which the change is rolled back, as its reason says
	}
	if left := o.with(shardscript.NotEmpty); len(left) > 0 {
		t.edit(now).alert(fmt.Sprintf("%s got entries before it was open; it stays until it is drained", shardList(left)), now)
	}
}

// applyLook: what shard 0 shows is what is in force.
func (t *Turn) applyLook(rep Reply, unconfirmed bool, now protocol.Instant) {
	r := t.State().Active
	switch {
	case rep.Code == "" || unconfirmed:
		t.wait([]string{noAnswer(0, "LOOK", rep.Err)}, true, now)
	case !rep.Control.HasEpoch, rep.Control.layout() == r.To:
		// It said DECIDED, and only a decision is the reason; a hash that it lost since then is
		// made again by OPEN.
		t.goForward(reasonDecided, now)
	case rep.Control.Epoch <= r.From.Epoch:
		// The decision was lost before a replica had confirmed it, so nobody built on it.
		r = t.editActive(now)
		r.TooLate = false
		r.Entry++
	default: // neither layout of this change: one that the aggregate has lost
		t.Adopt(rep.Control, r.ID+"-adopt", now)
	}
}

// goForward is the OPENING commit of a change that had been decided behind our back.
func (t *Turn) goForward(note string, now protocol.Instant) {
	s := t.edit(now)
	if s.Active.Reason != "" {
		note = s.Active.Reason + "; " + note
	}
	s.Active.Reason = note
	s.Active.Error, s.Active.ErrorCode, s.Active.FailInstead = "", "", false
	s.open(now)
}

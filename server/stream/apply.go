package stream

import (
	"fmt"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Apply takes the outcome of a pass that was planned from this very state or an older one of
// the same entry into the phase: results of another resharding or phase are ignored, and so is
// a pass in which a shard was AHEAD: what that means is decided by whoever reloads (1.7.1).
// Unless that is a tombstone of the layout in force or an older one where a shard should be:
// then nothing is ahead, and a change that has only begun is rolled back, so that the sweep can
// make the shard again.
func (t *Turn) Apply(res PassResult, now protocol.Instant) {
	s := t.State()
	o := newOutcome(res)
	switch res.Pass.Kind {
	case PassGroup, PassRemove, PassHold, PassPurge:
		switch {
		case o.ahead():
		case res.Pass.Kind == PassPurge:
			t.applyPurge(o, now)
		case s.Deleting:
		case res.Pass.Kind == PassGroup:
			t.applyGroups(o, now)
		case res.Pass.Kind == PassRemove:
			t.applyRemoval(o, now)
		default:
			t.applyHold(o, now)
		}
	case PassPhase:
		r := s.Active
		if r == nil || r.ID != res.Pass.ReshardingID || r.Phase != res.Pass.Phase || r.Entry != res.Pass.Entry {
			return
		}
		if o.ahead() {
			t.applyTombstone(o, now)
			return
		}
		t.applyPhase(o, now)
		t.settle(now)
	case PassSurvey, PassLook, PassRetain, PassProbe: // what a survey found is for ApplySurvey, what the others found for the engine
	}
}

func (t *Turn) applyPhase(o outcome, now protocol.Instant) {
	switch t.State().Active.Phase {
	case protocol.PhaseProvisioning:
		t.applyProvisioning(o, now)
	case protocol.PhaseSealing:
		t.applySealing(o, now)
	case protocol.PhaseDraining:
		t.applyDraining(o, now)
	case protocol.PhaseActivating:
		t.applyActivating(o, now)
	case protocol.PhaseOpening:
		t.applyOpening(o, now)
	case protocol.PhaseDrainingRemoved:
		t.applyDrainingRemoved(o, now)
	case protocol.PhaseConverging:
		t.applyConverging(o, now)
	case protocol.PhaseRetiring:
		t.applyRetiring(o, now)
	case protocol.PhaseRollingBack:
		t.applyRollingBack(o, now)
	default: // a resharding that has ended is not active
	}
}

// applyPurge: every control hash has its expiry, so the record may go.
func (t *Turn) applyPurge(o outcome, now protocol.Instant) {
	s := t.State()
	if !s.Deleting || s.Gone {
		return
	}
	for i := range s.highest() {
		rep, ok := o.reply(shardscript.Purge, i)
		if !ok || (!o.done(rep) && rep.Code != shardscript.Unfenced) {
			return
		}
	}
	t.edit(now).Gone = true
}

// outcome finds the replies of a pass.
type outcome struct {
	res    PassResult
	byStep map[stepKey]int
}

type stepKey struct {
	script shardscript.Name
	index  int
	group  string // MKGROUP, RMGROUP
}

func keyOf(st Step) stepKey {
	k := stepKey{script: st.Script, index: st.Index}
	if (st.Script == shardscript.MkGroup || st.Script == shardscript.RmGroup) && len(st.Groups) == 1 {
		k.group = st.Groups[0]
	}
	return k
}

func newOutcome(res PassResult) outcome {
	o := outcome{res: res, byStep: make(map[stepKey]int, len(res.Replies))}
	for i := range res.Replies {
		o.byStep[keyOf(res.Replies[i].Step)] = i
	}
	return o
}

// reply is the reply of a script on a shard; false when the step was not run.
func (o outcome) reply(script shardscript.Name, index int) (Reply, bool) {
	return o.find(stepKey{script: script, index: index})
}

// group is the reply of MKGROUP for a group on a shard.
func (o outcome) group(index int, name string) (Reply, bool) {
	return o.find(stepKey{script: shardscript.MkGroup, index: index, group: name})
}

func (o outcome) find(k stepKey) (Reply, bool) {
	i, ok := o.byStep[k]
	if !ok {
		return Reply{}, false
	}
	return o.res.Replies[i], true
}

// ahead says whether a shard has seen a newer revision or layout.
func (o outcome) ahead() bool { return o.any(shardscript.Ahead) }

// indexes lists the shards that were asked, ascending.
func (o outcome) indexes() []int {
	all := make([]int, 0, len(o.res.Replies))
	for _, r := range o.res.Replies {
		all = append(all, r.Step.Index)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// any says whether some reply has the code.
func (o outcome) any(code shardscript.Code) bool {
	return slices.ContainsFunc(o.res.Replies, func(r Reply) bool { return r.Code == code })
}

// ran says whether the stage with that script was reached.
func (o outcome) ran(script shardscript.Name) bool {
	return slices.ContainsFunc(o.res.Replies, func(r Reply) bool { return r.Step.Script == script })
}

// with lists the indexes of the replies with one of the codes, ascending.
func (o outcome) with(codes ...shardscript.Code) []int {
	var indexes []int
	for _, r := range o.res.Replies {
		if slices.Contains(codes, r.Code) {
			indexes = append(indexes, r.Step.Index)
		}
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// done says that the script has had its effect. A shard that cannot be unsealed any more is
// done as well: nothing that we could repeat would change it.
func (o outcome) done(rep Reply) bool {
	switch rep.Code {
	case shardscript.OK:
		return true
	case shardscript.Exhausted:
		return rep.Step.Script != shardscript.Seal
	case shardscript.Gone:
		return rep.Step.Script == shardscript.Open
	default:
		return false
	}
}

// undone lists the indexes of planned steps that have not had their effect, ascending.
func (o outcome) undone() []int {
	var indexes []int
	for _, stage := range o.res.Pass.Stages {
		for _, st := range stage {
			if rep, ok := o.find(keyOf(st)); !ok || !o.done(rep) {
				indexes = append(indexes, st.Index)
			}
		}
	}
	slices.Sort(indexes)
	return slices.Compact(indexes)
}

// waitEvery is how often a text of what a record waits for may be written.
const waitEvery = time.Second

// wait keeps what the active record says it is waiting for up to date. It writes only what
// differs, and not more often than waitEvery: passes of evidence must not cost a commit each.
func (t *Turn) wait(texts []string, unknown bool, now protocol.Instant) {
	r := t.State().Active
	texts = bounded(texts)
	since := r.UnknownSince
	switch {
	case !unknown:
		since = 0
	case since == 0:
		since = now
	}
	if slices.Equal(texts, r.WaitingFor) && since == r.UnknownSince {
		return
	}
	if len(r.WaitingFor) > 0 && now < r.UpdatedAt.Add(waitEvery) {
		return
	}
	r = t.editActive(now)
	r.WaitingFor, r.UnknownSince = texts, since
}

// latest is the latest time of a shard's node in a reply, 0 for none.
func (o outcome) latest() protocol.Instant {
	var at protocol.Instant
	for _, r := range o.res.Replies {
		at = max(at, r.At)
	}
	return at
}

// whatOf names the script of a step, as texts for people do.
func whatOf(st Step) string {
	what := string(st.Script)
	if st.Script == shardscript.MkGroup && len(st.Groups) == 1 {
		what += " of group " + st.Groups[0]
	}
	return what
}

// waitForAnswers is wait for the steps that have not had their effect, with the reason.
func (t *Turn) waitForAnswers(o outcome, now protocol.Instant) {
	var texts []string
	unknown := false
	for _, stage := range o.res.Pass.Stages {
		for _, st := range stage {
			rep, ok := o.find(keyOf(st))
			switch {
			case ok && o.done(rep):
			case !ok: // its stage has not been run
			case rep.Code == "":
				unknown = true
				texts = append(texts, noAnswer(st.Index, whatOf(st), rep.Err))
			default:
				texts = append(texts, refused(st.Index, whatOf(st), rep))
			}
		}
	}
	if len(texts) == 0 && o.res.Unconfirmed {
		texts = []string{o.unconfirmedText(string(o.res.Pass.Stages[0][0].Script), shardList(o.indexes()))}
	}
	if len(texts) > 0 {
		t.wait(texts, unknown, now)
	}
}

// unconfirmedText says that the replicas have not confirmed a script, and why if Redis said so.
func (o outcome) unconfirmedText(what, where string) string {
	text := fmt.Sprintf("%s of %s: no replica has confirmed it yet", what, where)
	if o.res.NotConfirmed != "" {
		text += " (WAIT was refused: " + o.res.NotConfirmed + ")"
	}
	return text
}

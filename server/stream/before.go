package stream

import (
	"fmt"
	"slices"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// The phases before the decision (1.5): everything in them can be undone.

// applyProvisioning: every old shard is held and every new one is there, with the groups of the
// registry as it is now.
func (t *Turn) applyProvisioning(o outcome, now protocol.Instant) {
	s := t.State()
	if taken := o.with(shardscript.Foreign, shardscript.Leftover); len(taken) > 0 {
		var texts []string
		for _, i := range taken {
			rep, _ := o.reply(shardscript.Provision, i)
			text := foreignText(protocol.ShardKey(s.Prefix, i), rep.Control)
			if rep.Code == shardscript.Leftover {
				text = fmt.Sprintf("%s still has %s of an earlier layout", protocol.ShardKey(s.Prefix, i), Counted(rep.Control.Length, "entry"))
			}
			texts = append(texts, text)
		}
		r := t.editActive(now)
		r.ErrorCode = protocol.CodeForeignKeys
		r.rollBack(joinTexts(texts), false, now)
		return
	}
	if lost := o.with(shardscript.Unknown); len(lost) > 0 {
		// Nothing but the sweep makes a shard of the layout in force again, and it runs at rest.
		t.editActive(now).rollBack(fmt.Sprintf("%s of the present layout cannot be found; the sweep makes it again", shardList(lost)), false, now)
		return
	}
	groups := s.GroupNames()
	for _, rep := range o.res.Replies {
		if rep.Step.Script == shardscript.Provision && !covers(rep.Step.Groups, groups) {
			return // planned before a group was registered: the new shard lacks it
		}
	}
	if len(o.undone()) > 0 || o.res.Unconfirmed { // the highest count ever is to outlive shard 0's node
		t.waitForAnswers(o, now)
		return
	}
	t.editActive(now).afterProvisioning(now)
}

// foreignText names a key that is in the way of a new shard. A key of another type has no entries.
func foreignText(key string, c Control) string {
	text := key + " exists and does not belong to the coordinator"
	if c.StreamExists {
		text += fmt.Sprintf(" (%s)", Counted(c.Length, "entry"))
	}
	return text
}

func covers(have, want []string) bool {
	return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(have, name) })
}

// applyTombstone: PREPARE found a tombstone where the layout in force has a shard, and it is not
// the mark of a newer layout.
func (t *Turn) applyTombstone(o outcome, now protocol.Instant) {
	s := t.State()
	if s.Active.Phase != protocol.PhaseProvisioning {
		return
	}
	var lost []int
	for _, rep := range o.res.Replies {
		if rep.Code != shardscript.Ahead {
			continue
		}
		if rep.Step.Script != shardscript.Prepare || !rep.Control.gone() || rep.Control.Epoch > s.Layout.Epoch {
			return
		}
		lost = append(lost, rep.Step.Index)
	}
	t.editActive(now).rollBack(fmt.Sprintf("%s of the present layout has been retired; the sweep makes it again", shardList(lost)), false, now)
	t.settle(now)
}

// overdue says that a reply of LATE is about the deadline of the pause and not about the effect
// lease of one script.
func (r *Resharding) overdue(rep Reply) bool {
	return r.Deadline != 0 && rep.Code == shardscript.Late && rep.At >= r.Deadline
}

// endedOutside finds a reply that shows the change ended by somebody else: by the deadline, or
// by producers that resolved it (1.4 RESOLVE). The text says which.
func (r *Resharding) endedOutside(o outcome) (string, bool) {
	for _, rep := range o.res.Replies {
		switch {
		case rep.Code == shardscript.Aborted || rep.Control.Aborted == r.ID:
			return fmt.Sprintf("%s; producers ended the pause at shard %d", r.timeoutReason(), rep.Step.Index), true
		case r.overdue(rep):
			return r.timeoutReason(), true
		}
	}
	return "", false
}

// applySealing: every old shard refuses appends, and the replicas know (1.8).
func (t *Turn) applySealing(o outcome, now protocol.Instant) {
	r := t.State().Active
	if reason, ok := r.endedOutside(o); ok {
		t.editActive(now).rollBack(reason, r.failsOnTimeout(), now)
		return
	}
	if len(o.with(shardscript.Unfenced, shardscript.NotHeld)) > 0 || slices.ContainsFunc(o.res.Replies, func(rep Reply) bool { return rep.Control.gone() }) {
		t.editActive(now).enter(protocol.PhaseProvisioning, now)
		return
	}
	if len(o.undone()) > 0 || o.res.Unconfirmed {
		t.waitForAnswers(o, now)
		return
	}
	r = t.editActive(now)
	r.Confirmed = max(o.res.Confirmed, 0)
	r.Barrier = o.res.Barrier
	r.SealedAt = now
	r.enter(protocol.PhaseDraining, now)
}

// applyDraining: one pass in which every old shard is sealed and held by this change and those
// in the scope are drained. It may be acted upon for EvidenceLife from its start, no longer.
func (t *Turn) applyDraining(o outcome, now protocol.Instant) {
	r := t.State().Active
	if reason, ok := r.endedOutside(o); ok {
		t.editActive(now).rollBack(reason, r.failsOnTimeout(), now)
		return
	}
	var texts []string
	unknown := false
	for i := range r.Old {
		rep, ok := o.reply(shardscript.Evidence, i)
		if ok && rep.Code != "" && rep.Code != shardscript.Late && !r.holds(rep, o.res.Barrier) {
			// A seal that Redis lost before the decision: what was appended since has to be drained
			// too, so the seals come first again, with the same deadline (1.7.3).
			t.editActive(now).enterSealing(now)
			return
		}
		if !r.inScope(i) && ok && rep.Code != "" && rep.Code != shardscript.Late {
			continue // sealed and held is all that it has to be
		}
		v := judge(i, rep, ok)
		if v.drained {
			continue
		}
		unknown = unknown || v.unknown
		texts = append(texts, v.texts...)
	}
	t.warn(o, len(texts) == 0, now)
	if len(texts) > 0 {
		t.wait(texts, unknown, now)
		return
	}
	if now > o.res.StartedAt.Add(EvidenceLife) {
		return
	}
	t.drained(o, now)
}

// holds says whether a shard is sealed, as a fact, and held by this change. Without the right to
// XSETID the fact is the deadline in the control hash, which fenced appends obey (1.8).
func (r *Resharding) holds(rep Reply, barrier string) bool {
	c := rep.Control
	if !c.HasEpoch || c.Gate != r.ID || c.Until == 0 || rep.Code == shardscript.Retired {
		return false
	}
	return c.Sealed || !c.StreamExists || barrier == BarrierLease
}

// drained takes a pass in which everything was drained, unless there is still somebody to wait
// for: plain producers with a cached table, and behind a LEASE barrier the proof that appends
// have stopped.
func (t *Turn) drained(o outcome, now protocol.Instant) {
	r := t.State().Active
	order := r.Order
	if until := r.plainUntil(); now < until {
		if until.Add(EvidenceLife) < r.Deadline {
			t.wait([]string{fmt.Sprintf("plain producers may use their cached routing until %s", clock(until))}, false, now)
			return
		}
		order = OrderNotPromisedPlain // it does not fit into the pause
	}
	shards := o.snapshots(r.Old)
	if o.res.Barrier == BarrierLease && !t.stand(shards, now) {
		return
	}
	r = t.editActive(now)
	r.Order = order
	r.EvidenceAt = o.res.StartedAt
	r.Barrier = o.res.Barrier
	r.Certificate = &protocol.DrainCertificate{
		TakenAt: o.res.StartedAt.Time(), Barrier: o.res.Barrier, ConfirmedReplicas: r.Confirmed, Shards: shards,
	}
	r.enter(protocol.PhaseActivating, now)
}

// stand says whether nothing has been appended for stillFor, which is all that tells, behind a
// LEASE barrier, that bare appends have stopped.
func (t *Turn) stand(shards []protocol.ShardEvidence, now protocol.Instant) bool {
	r := t.State().Active
	texts := moving(r.Snapshot, shards)
	if len(texts) > 0 {
		r = t.editActive(now)
		r.Snapshot, r.SnapshotAt = shards, now
		r.WaitingFor, r.UnknownSince = bounded(texts), 0 // with a commit that is due anyway
		return false
	}
	return now >= r.SnapshotAt.Add(stillFor)
}

// PlainProducersSeen tells when a producer that does not announce fencing last asked for the
// routing (0: never). The shell calls it before it applies the replies of SEALING and DRAINING
// passes; the state changes only when that can still make a difference (1.1).
func (t *Turn) PlainProducersSeen(at, now protocol.Instant) {
	r := t.State().Active
	if at == 0 || r == nil || !r.keepsOrder() {
		return
	}
	if r.Phase != protocol.PhaseSealing && r.Phase != protocol.PhaseDraining {
		return
	}
	sealed := r.SealedAt
	if r.Phase == protocol.PhaseSealing {
		sealed = now // at the earliest
	}
	if at.Add(PlainCache) <= sealed || r.plainUntil() != 0 || at < r.PlainSeen.Add(waitEvery) {
		return
	}
	t.editActive(now).PlainSeen = at
	t.settle(now)
}

// applyActivating: shard 0 has decided, and the replicas know.
func (t *Turn) applyActivating(o outcome, now protocol.Instant) {
	r := t.State().Active
	rep, ok := o.reply(shardscript.Decide, 0)
	if !ok {
		return
	}
	if (rep.Code == shardscript.SealError || rep.Code == shardscript.Exhausted) && rep.Control.layout() == r.To {
		rep.Code = shardscript.OK // of settle, behind the decision: OPEN settles again
	}
	switch rep.Code {
	case shardscript.OK, shardscript.Decided:
		if rep.Code == shardscript.OK {
			t.editActive(now).DecidedAt = rep.At
		}
		if o.res.Unconfirmed {
			t.wait([]string{o.unconfirmedText("DECIDE", "shard 0")}, false, now)
			return
		}
		t.edit(now).open(now)
	case shardscript.Aborted:
		t.editActive(now).rollBack(r.timeoutReason()+"; producers ended the pause at shard 0", r.failsOnTimeout(), now)
	case shardscript.Late:
		switch {
		case r.overdue(rep):
			t.editActive(now).rollBack(r.timeoutReason(), r.failsOnTimeout(), now)
		case r.seals(): // by the age of the evidence
			r = t.editActive(now)
			r.EvidenceAt = 0
			r.enter(protocol.PhaseDraining, now)
		}
	case shardscript.NotHeld, shardscript.Unsealed, shardscript.Busy, shardscript.Unfenced, shardscript.Unknown:
		t.editActive(now).reseal(now)
	default:
		t.waitForAnswers(o, now)
	}
}

package stream

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// risks lists what does not hinder the call, but somebody should know.
func (v *previewer) risks() {
	if h := v.d.Before; h != nil && h.Hold != nil {
		v.risk(protocol.NotePublishingPaused, "publishing is %s; no change ends that pause", h.holdText())
	}
	v.retentionRisk()
	r := v.r
	if r == nil || v.p.Action == protocol.PreviewCancel || r.Old == 0 {
		return
	}
	v.orderRisk()
	for i, b := range v.left {
		v.groupRisks(b, v.p.Groups[i])
	}
	if v.plainWait() {
		v.risk(protocol.NotePlainProducers, "producers that do not fence were seen within the last %s: publishing stays paused at least that long, so that none of them appends by a cached routing", PlainCache)
	}
	if !r.decided() && r.To.Count == 0 {
		v.risk(protocol.NoteNoShardsLeft, "the stream is left without a shard: nothing can be appended to it afterwards")
	}
	if r.Policy.Retire == protocol.RetireDelete {
		var entries int64
		least := ""
		for _, i := range r.removed() {
			entries += v.looks[i].Control.Length
			if v.looks[i].Code != shardscript.OK {
				least = "at least "
			}
		}
		if entries > 0 {
			v.risk(protocol.NoteEntriesDeleted, "%s%s on %s: deleted together with the shards, once every group that counts has acknowledged them; a change that archives removed shards keeps them", least, Counted(entries, "entry"), shardList(r.removed()))
		}
	}
}

// retentionRisk says what a new retention takes away, whoever has not read it.
func (v *previewer) retentionRisk() {
	if v.d.creates() {
		return
	}
	want := normal(v.d.Spec).Retention
	if want == v.d.Before.Spec.Retention.WithDefaults() {
		return
	}
	switch want.Policy {
	case protocol.RetentionMaxAge:
		v.risk(protocol.NoteRetentionRemoves, "the new retention removes entries older than %s, delivered or not; those that a group has not acknowledged are counted as lost to it", time.Duration(want.MaxAgeMs)*time.Millisecond)
	case protocol.RetentionMaxLen:
		v.tooLong(want.MaxLen)
	case protocol.RetentionAcked, protocol.RetentionNone: // nothing that a group still needs
	}
}

// tooLong compares shards and groups with the length that a retention leaves.
func (v *previewer) tooLong(most int64) {
	var over int64
	behind := map[string]bool{}
	for i := range v.d.inForce().Count {
		rep := v.looks[i]
		if rep.Code != shardscript.OK || rep.Control.Length <= most {
			continue
		}
		over += rep.Control.Length - most
		if rep.Evidence == nil {
			continue
		}
		for _, g := range rep.Evidence.Groups {
			// What is pending may be the oldest, and more than was counted may be more than stays.
			if g.Pending > 0 || g.Undelivered > most || g.UndeliveredMore {
				behind[g.Group] = true
			}
		}
	}
	if over == 0 {
		return
	}
	text := fmt.Sprintf("the new retention leaves at most %s on each shard, and removes %s of those there now", Counted(most, "entry"), Counted(over, "entry"))
	if names := slices.Sorted(maps.Keys(behind)); len(names) > 0 {
		text += fmt.Sprintf(", some of which %s may still have to acknowledge", joinTexts(names))
	}
	v.risk(protocol.NoteRetentionRemoves, "%s", text)
}

// orderRisk says when the order of entries with the same key is not kept.
func (v *previewer) orderRisk() {
	r := v.r
	switch {
	case !v.undecided() || v.p.MovedFraction == 0:
	case r.Policy.Strategy == protocol.StrategyOnline:
		v.risk(protocol.NoteOrderNotPromised, "an online change does not keep the order of entries with the same key: what was appended before the change may be handled after what is appended then")
	case r.Policy.DrainScope == protocol.DrainRemoved && min(r.Old, r.To.Count) > 0:
		v.risk(protocol.NoteOrderNotPromised, "draining the removed shards alone does not keep the order of entries with the same key: the shards that stay are not drained first")
	case v.plainSeen() && !v.plainWait():
		v.risk(protocol.NoteOrderNotPromised, "producers that do not fence were seen within the last %s, and the pause timeout of %s is too short to wait for their caches: their order is not promised", PlainCache, r.pauseTimeout())
	}
}

// groupRisks lists what may keep the change waiting for one group.
func (v *previewer) groupRisks(b *arrears, g protocol.PreviewGroup) {
	limit := v.p.Publishing.LimitMs // what is left of it, when the change runs already
	if !v.p.Publishing.Paused {
		limit = v.r.drainTimeout().Milliseconds()
	}
	switch {
	case b.ignored:
		v.ignoredRisk(b)
		return
	case len(b.missing) > 0 && g.LiveMembers == 0:
		v.risk(protocol.NoteGroupMissing, "group %s is missing on %s in Redis, and no member is alive to make it again: %s", b.name, shardList(b.missing), v.consequence())
	case len(b.missing) > 0:
		v.risk(protocol.NoteGroupMissing, "group %s is missing on %s in Redis: the change waits until a member has made it again", b.name, shardList(b.missing))
	}
	if !b.empty() {
		_, goes := v.d.Before.Removing[b.name]
		switch {
		case goes: // it was deleted, and is being destroyed
		case !b.managed:
			v.risk(protocol.NoteUnmanagedGroup, "group %s is not registered, but it counts: it has %s on %s. Let it read them, have the change ignore it, or destroy it; else %s", b.name, b.text(), shardList(b.indexes()), v.consequence())
		case g.LiveMembers == 0:
			v.risk(protocol.NoteGroupWithoutMembers, "group %s has %s on %s and no live member: unless one comes, %s", b.name, b.text(), shardList(b.indexes()), v.consequence())
		}
	}
	if g.DrainEstimateMs != nil && *g.DrainEstimateMs > limit {
		v.risk(protocol.NoteDrainTooSlow, "group %s needs about %s to drain at the rate observed: %s", b.name, time.Duration(*g.DrainEstimateMs)*time.Millisecond, v.consequence())
	}
}

// ignoredRisk says what an ignored group gives up.
func (v *previewer) ignoredRisk(b *arrears) {
	gone := slices.DeleteFunc(b.indexes(), func(i int) bool { return v.r.inside(i) })
	if len(gone) > 0 {
		v.risk(protocol.NoteIgnoredBacklog, "group %s is ignored: what it has not acknowledged on %s goes with the shards", b.name, shardList(gone))
	}
}

// consequence is what becomes of a change that waits in vain.
func (v *previewer) consequence() string {
	r := v.r
	switch {
	case !v.p.Publishing.Paused:
		return fmt.Sprintf("the change fails when the drain timeout (%s) has passed, and another one goes back to %s", r.drainTimeout(), Counted(r.From.Count, "shard"))
	case r.failsOnTimeout():
		return fmt.Sprintf("publishing stays paused until the pause timeout (%s) has passed; then the change is undone and fails", r.pauseTimeout())
	}
	return fmt.Sprintf("publishing stays paused until the pause timeout (%s) has passed; then the change is rolled back", r.pauseTimeout())
}

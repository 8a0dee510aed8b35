package stream

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// PreviewFacts is what the shell has found out for a preview.
type PreviewFacts struct {
	Look      PassResult              // of Decision.PlanProbe
	Again     PassResult              // of the shards with a backlog, a while later; zero: not done
	PassTime  time.Duration           // that a pass over all shards takes
	Members   map[string]GroupMembers // of the registered groups
	Producers []string                // ids of those that were seen lately, sorted
	PlainSeen protocol.Instant        // when a producer that does not fence last asked for the routing, 0: never
	Unknown   []string                // what could not be found out, in sentences
}

// GroupMembers is what a change of the layout means to the members of one registered group.
type GroupMembers struct {
	Live     int      // members that are alive
	Affected []string // ids of those that lose or gain a shard, sorted
}

// Bounds of the lists of a preview.
const (
	mostMembers   = 100
	previewPasses = 4 // that a pause consists of when nothing is to drain: SEAL, EVIDENCE, DECIDE, OPEN
)

// maxStreamID is the highest id that a stream can have; a shard whose newest entry has it can
// never be unsealed.
const maxStreamID = "18446744073709551615-18446744073709551615"

// PlanProbe looks at the shards of both layouts, or at some of them, counting at most most
// undelivered entries of each group on each shard.
func (d Decision) PlanProbe(most int, only []int) Pass {
	span := d.inForce().Count
	var ignored []string
	if r := d.change(); r != nil {
		span = max(span, r.Old, r.To.Count)
		ignored = r.Ignored
	}
	steps := make([]Step, 0, span)
	for i := range span {
		if only == nil || slices.Contains(only, i) {
			steps = append(steps, Step{Script: shardscript.Probe, Index: i, ID: "probe", Ignored: ignored, Most: most})
		}
	}
	return Pass{Kind: PassProbe, Stages: stages(steps)}
}

// drains says whether r, a change or nil, waits until index is drained: before the layout
// changes or, of a shard that is removed, after it.
func (r *Resharding) drains(index int) bool {
	switch {
	case r == nil || r.Phase == protocol.PhaseRollingBack || index >= r.Old:
		return false
	case r.decided():
		return slices.Contains(r.removed(), index)
	}
	return r.inScope(index) || !r.inside(index)
}

// Backlogged lists the shards on which a group that counts has something left to drain: those
// that are worth a second look.
func (d Decision) Backlogged(look PassResult) []int {
	r := d.change()
	var indexes []int
	for _, rep := range look.Replies {
		if rep.Code != shardscript.OK || rep.Evidence == nil || !r.drains(rep.Step.Index) {
			continue
		}
		if slices.ContainsFunc(rep.Evidence.Groups, func(g protocol.GroupEvidence) bool { return !slices.Contains(r.Ignored, g.Group) && has(g) }) {
			indexes = append(indexes, rep.Step.Index)
		}
	}
	slices.Sort(indexes)
	return indexes
}

// Preview says what the call would do, as far as the facts tell.
func Preview(d Decision, f PreviewFacts) protocol.Preview {
	v := &previewer{d: d, f: f, r: d.change(), looks: byIndex(f.Look), again: byIndex(f.Again)}
	v.p = protocol.Preview{
		StreamPrefix: d.Prefix, TakenAt: d.At.Time(), Action: d.action(),
		ShardsAdded: []int{}, ShardsRemoved: []int{}, Groups: []protocol.PreviewGroup{},
		Blockers: []protocol.PreviewNote{}, Risks: []protocol.PreviewNote{}, Unknown: listed(f.Unknown),
		Barrier: barrierNone,
	}
	if d.Before != nil {
		v.p.Generation = d.Before.Generation
	}
	for _, e := range d.Refused {
		v.blocker(string(e.Code), e.Message)
	}
	v.layout()
	v.shards()
	v.barrier()
	v.groups()
	v.publishing()
	v.risks()
	return v.p
}

// Barriers that only a preview names.
const (
	barrierNone    = "NONE"
	barrierUnknown = "UNKNOWN"
)

// previewer builds one preview.
type previewer struct {
	d     Decision
	f     PreviewFacts
	r     *Resharding // the change, nil for none
	looks map[int]Reply
	again map[int]Reply
	left  []*arrears
	// unseen are shards to drain that did not answer, or that are missing: what is on them, and
	// for whom, is not known.
	unseen []int
	p      protocol.Preview
}

// listed copies a list; of none it makes an empty one, which is no null in JSON.
func listed(list []string) []string { return append([]string{}, list...) }

func byIndex(res PassResult) map[int]Reply {
	all := make(map[int]Reply, len(res.Replies))
	for _, rep := range res.Replies {
		all[rep.Step.Index] = rep
	}
	return all
}

func (v *previewer) blocker(code, text string) {
	v.p.Blockers = append(v.p.Blockers, protocol.PreviewNote{Code: code, Message: text})
}

func (v *previewer) risk(code, format string, args ...any) {
	v.p.Risks = append(v.p.Risks, protocol.PreviewNote{Code: code, Message: fmt.Sprintf(format, args...)})
}

// undecided says whether there is a change that is still to be decided.
func (v *previewer) undecided() bool {
	return v.r != nil && v.r.cancellable() && v.p.Action != protocol.PreviewCancel
}

// layout fills in what changes of the layout.
func (v *previewer) layout() {
	p, r := &v.p, v.r
	p.FromShardCount, p.ToShardCount = v.d.inForce().Count, v.d.Spec.ShardCount
	p.Resharding = normal(v.d.Spec).Resharding
	if p.Action == protocol.PreviewAttach || p.Action == protocol.PreviewCancel {
		p.ReshardingID = r.ID
	}
	if r == nil || p.Action == protocol.PreviewCancel {
		return
	}
	p.Resharding = r.Policy
	p.FromShardCount = r.From.Count
	for i := r.Old; i < r.To.Count; i++ {
		p.ShardsAdded = append(p.ShardsAdded, i)
	}
	p.ShardsRemoved = append(p.ShardsRemoved, r.removed()...)
	p.MovedFraction = protocol.MovedFraction(r.From.Count, r.To.Count)
	if want := normal(v.d.Spec).Resharding; p.Action == protocol.PreviewAttach && !reflect.DeepEqual(want, r.Policy) {
		v.risk(protocol.NotePolicyNotApplied, "resharding %s keeps the settings that it began with; the new ones count from the next change on", r.ID)
	}
}

// shards looks for what is in the way on the shards themselves.
func (v *previewer) shards() {
	var silent, missing, exhausted []int
	var taken []string
	old := v.d.inForce().Count
	if v.r != nil {
		old = v.r.Old
	}
	for _, st := range slices.Concat(v.d.PlanProbe(0, nil).Stages...) {
		i := st.Index
		rep, ok := v.looks[i]
		c := rep.Control
		switch {
		case v.d.Before != nil && v.d.Before.Deleting:
			// What is there goes with the stream.
		case !ok || rep.Code != shardscript.OK:
			silent = append(silent, i)
		case i < old && v.r != nil && v.r.decided() && !v.r.inside(i): // it may be gone already
		case i < old && (!c.StreamExists || c.Retired != ""):
			missing = append(missing, i)
		case i < old:
			if v.stays(i) && (rep.Evidence != nil && rep.Evidence.LastID == maxStreamID || slices.Contains(v.d.Before.Exhausted, i)) {
				exhausted = append(exhausted, i)
			}
		case v.r != nil && v.r.Phase == protocol.PhaseProvisioning:
			if text := v.inTheWay(i, rep); text != "" {
				taken = append(taken, text)
			}
		}
	}
	if len(silent) > 0 {
		text := fmt.Sprintf("%s did not answer: what is on %s is not known", shardList(silent), themOrIt(silent))
		if reason := v.looks[silent[0]].Err; reason != "" {
			text += " (" + reason + ")"
		}
		v.p.Unknown = append(v.p.Unknown, text)
		if v.undecided() {
			v.blocker(protocol.NoteShardUnreadable, text)
		}
	}
	if len(missing) > 0 {
		text := fmt.Sprintf("%s of the present layout %s missing or retired; the sweep makes %s again at rest, within seconds", shardList(missing), are(missing), themOrIt(missing))
		if v.undecided() {
			v.blocker(protocol.NoteShardMissing, text)
		} else {
			v.risk(protocol.NoteShardMissing, "%s", text)
		}
	}
	if len(taken) > 0 && !v.d.refusedWith(protocol.CodeForeignKeys) {
		v.blocker(string(protocol.CodeForeignKeys), joinTexts(taken))
	}
	if len(exhausted) > 0 {
		v.risk(protocol.NoteShardExhausted, "%s cannot be opened for appends again: the newest entry has the highest possible id. Only a layout without %s helps", shardList(exhausted), themOrIt(exhausted))
	}
}

// stays says whether index is a shard of the layout that the call leads to.
func (v *previewer) stays(index int) bool {
	return v.r == nil || v.r.inside(index)
}

func themOrIt(indexes []int) string {
	if len(indexes) == 1 {
		return "it"
	}
	return "them"
}

// inTheWay is what PROVISION would find on a shard that is to be made, "" for nothing (1.4).
func (v *previewer) inTheWay(index int, rep Reply) string {
	c, key := rep.Control, protocol.ShardKey(v.d.Prefix, index)
	known := c.HasEpoch && !c.Purged
	removed := c.Retired == "" && c.layout() == v.r.From
	switch {
	case !c.StreamExists && rep.Err != "":
		return fmt.Sprintf("%s exists and is no stream", key)
	case c.StreamExists && !known:
		return foreignText(key, c)
	case c.StreamExists && c.Length > 0 && c.Gate != v.r.ID && !removed:
		return fmt.Sprintf("%s still has %s of an earlier layout", key, Counted(c.Length, "entry"))
	}
	return ""
}

// barrier says what keeps appends from the shards that are sealed.
func (v *previewer) barrier() {
	r := v.r
	if r == nil || v.p.Action == protocol.PreviewCancel || (!r.seals() || r.decided()) && !r.Removed() {
		return
	}
	v.p.Barrier = barrierUnknown
	for _, rep := range v.f.Look.Replies {
		if rep.Code == shardscript.OK && rep.Control.StreamExists && rep.Step.Index < r.Old {
			v.p.Barrier = BarrierSeal
		}
	}
	switch {
	case v.f.Look.Barrier == BarrierLease:
		v.p.Barrier = BarrierLease
		v.risk(protocol.NoteLeaseBarrier, "the coordinator's Redis user may not run XSETID: only producers that fence are held back from shards that are sealed, plain XADD is not")
	case v.p.Barrier == barrierUnknown:
		v.p.Unknown = append(v.p.Unknown, "whether the shards can be sealed is not known: none of them answered")
	}
}

// groups counts what every group has left on the shards that are to be drained.
func (v *previewer) groups() {
	all := map[string]*arrears{}
	of := func(name string) *arrears {
		b := all[name]
		if b == nil {
			b = &arrears{name: name, lagKnown: true}
			all[name] = b
			v.left = append(v.left, b)
		}
		return b
	}
	if !v.d.creates() {
		for _, name := range v.d.Before.GroupNames() {
			of(name).managed = true
		}
	}
	old := v.d.inForce().Count
	if v.r != nil {
		old = v.r.Old
	}
	for i := range old {
		rep := v.looks[i]
		if v.d.creates() || rep.Code != shardscript.OK || rep.Evidence == nil {
			continue
		}
		for _, g := range rep.Evidence.Groups {
			b := of(g.Group)
			if !v.r.drains(i) {
				continue
			}
			var again *Reply
			if second, looked := v.again[i]; looked {
				again = &second
			}
			b.add(i, g, rep, again)
		}
	}
	ignored := normal(v.d.Spec).Resharding.IgnoreGroups
	if v.r != nil {
		ignored = v.r.Ignored
	}
	for _, b := range v.left {
		b.ignored = slices.Contains(ignored, b.name)
	}
	v.absent(old)
	slices.SortFunc(v.left, func(a, b *arrears) int { return cmp.Compare(a.name, b.name) })
	for _, b := range v.left {
		v.p.Groups = append(v.p.Groups, v.group(b))
	}
}

// absent notes, for every group, the shards to drain that did not answer or are missing, and for
// registered ones those that lack it.
func (v *previewer) absent(old int) {
	for i := range old {
		if v.d.creates() || !v.r.drains(i) {
			continue
		}
		rep, ok := v.looks[i]
		switch {
		case !ok || rep.Code != shardscript.OK:
			v.unseen = append(v.unseen, i)
			for _, b := range v.left {
				b.silent = append(b.silent, i)
			}
		case rep.Evidence == nil && rep.Control.Retired == "":
			v.unseen = append(v.unseen, i)
			for _, b := range v.left {
				b.gone = append(b.gone, i)
			}
		case rep.Evidence != nil:
			for _, b := range v.left {
				if e := v.d.Before.Groups[b.name]; e == nil || !e.Ready {
					continue
				}
				if _, there := groupOn(rep, b.name); !there {
					b.missing = append(b.missing, i)
				}
			}
		}
	}
}

func (v *previewer) group(b *arrears) protocol.PreviewGroup {
	m := v.f.Members[b.name]
	live := m.Live
	if !b.managed {
		live = -1
	}
	g := protocol.PreviewGroup{
		Group: b.name, Managed: b.managed, Ignored: b.ignored,
		LiveMembers: m.Live, AffectedCount: len(m.Affected), AffectedMembers: listed(m.Affected[:min(len(m.Affected), mostMembers)]),
		Pending: b.pending, Undelivered: b.undelivered, UndeliveredMore: b.more,
	}
	if b.lagKnown && len(b.silent)+len(b.gone)+len(b.missing) == 0 {
		g.Lag = &b.lag
	}
	g.RatePerSecond, g.DrainEstimateMs, g.Basis = b.estimate(live)
	if g.DrainEstimateMs == nil {
		v.p.Unknown = append(v.p.Unknown, fmt.Sprintf("how long group %s takes to drain is not known: %s", b.name, g.Basis))
	}
	return g
}

// publishing says whether producers are paused, and for about how long.
func (v *previewer) publishing() {
	r, pub := v.r, &v.p.Publishing
	pub.Producers = listed(v.f.Producers)
	none := int64(0)
	pub.EstimateMs = &none
	switch {
	case v.p.Action == protocol.PreviewCancel && r.PausedAt != 0:
		pub.Basis = "the rollback ends the pause of the running resharding"
	case r == nil || v.p.Action == protocol.PreviewCancel:
		pub.Basis = "no shard is sealed"
	case r.Old == 0:
		pub.Basis = "there is no shard yet to append to"
	case r.decided():
		pub.Basis = fmt.Sprintf("the layout has changed already, the running resharding is in phase %s", r.Phase)
	case !r.seals():
		pub.Basis = "an online change does not pause publishing"
	default:
		v.pause()
	}
}

// pause estimates the pause of a quiesced change: the slowest group, or the caches of plain
// producers, and the passes over the shards.
func (v *previewer) pause() {
	r, pub := v.r, &v.p.Publishing
	pub.Paused, pub.LimitMs = true, r.Policy.PauseTimeoutMs
	if r.Deadline != 0 {
		pub.LimitMs = max(r.Deadline.Sub(v.d.At).Milliseconds(), 0)
	}
	slowest, why := int64(0), "nothing is left to drain"
	for _, g := range v.p.Groups {
		switch {
		case g.DrainEstimateMs == nil:
			pub.EstimateMs = nil
			pub.Basis = fmt.Sprintf("it ends when everything is drained, and how long group %s takes is not known: %s", g.Group, g.Basis)
			return
		case *g.DrainEstimateMs > slowest:
			slowest, why = *g.DrainEstimateMs, fmt.Sprintf("group %s needs the longest: %s", g.Group, g.Basis)
		}
	}
	if len(v.unseen) > 0 { // there may be groups on them that nobody knows of
		pub.EstimateMs = nil
		pub.Basis = fmt.Sprintf("it ends when everything is drained, and what is left on %s is not known", shardList(v.unseen))
		return
	}
	if len(v.p.Groups) == 0 {
		why = "no consumer group has to drain anything"
	}
	if v.plainWait() {
		if wait := PlainCache.Milliseconds(); wait > slowest {
			slowest, why = wait, fmt.Sprintf("producers that do not fence were seen, and may use their cached routing for %s", PlainCache)
		}
	}
	passes := int64(math.Ceil(float64(previewPasses*v.f.PassTime) / float64(time.Millisecond)))
	estimate := slowest + max(passes, previewPasses)
	pub.EstimateMs = &estimate
	pub.Basis = fmt.Sprintf("%s; and %d passes over the shards, of which one took %s just now", why, previewPasses, v.f.PassTime.Round(100*time.Microsecond))
}

// plainSeen says whether producers that do not fence may have a routing in their caches.
func (v *previewer) plainSeen() bool {
	return v.f.PlainSeen != 0 && v.d.At < v.f.PlainSeen.Add(PlainCache)
}

// plainWait says whether a change that keeps the order waits for those caches: it does when that
// fits into the pause (1.1).
func (v *previewer) plainWait() bool {
	return v.undecided() && v.r.seals() && v.r.keepsOrder() && v.plainSeen() && PlainCache+EvidenceLife < v.r.pauseTimeout()
}

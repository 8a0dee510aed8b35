package simulation

import (
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/internal/appendflow"
	"github.com/redisstream/terraform-provider-redisstream/internal/simulation/redismodel"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// logBook is what the oracle knows of the entries and of the shards.
type logBook struct {
	entries []*entryBook // in the order of landing
	byValue map[string]*entryBook
	byKey   map[string][]*entryBook

	registered []string // groups that are ready, sorted
	landed     int64    // highest layout epoch under which an entry has landed
	left       map[int64]bool
	kept       []decision // those that keep the order of each key

	decisionLost bool         // Redis lost a decision that nobody had confirmed: I8 and I10 are void
	sealLost     map[int]bool // shards that lost a seal in a failover
	nodeFailed   map[int]bool // shards whose node has failed over

	owners    map[string]map[int]ownerBook
	delivered map[string]map[int]redismodel.ID // highest id that was dispatched, by group and shard
}

// decision is a change of the layout before which groups had acknowledged everything.
type decision struct {
	epoch  int64
	groups []string
}

type ownerBook struct {
	epoch   int64
	process *process
}

// entryBook is one entry that has landed.
type entryBook struct {
	value, key string
	shard      int
	id         redismodel.ID
	epoch      int64
	plain      bool
	lost       bool            // Redis lost it
	exempt     map[string]bool // groups that were registered after it had been retired
	dispatched map[string]bool
	acked      map[string]bool
}

func newLogBook() logBook {
	return logBook{
		byValue: map[string]*entryBook{}, byKey: map[string][]*entryBook{}, left: map[int64]bool{}, sealLost: map[int]bool{},
		nodeFailed: map[int]bool{}, owners: map[string]map[int]ownerBook{}, delivered: map[string]map[int]redismodel.ID{},
	}
}

// script runs a coordinator's script and asserts what it did.
func (o *oracle) script(r *replica, step stream.Step, rev int64, notAfter protocol.Instant) stream.Reply {
	sh := o.s.redis.Shard(step.Index)
	o.s.beforeScript(step)
	before, epoch := sh.Stream, epochOf(sh.Control)
	var stamp int64
	if sh.Control != nil {
		stamp = sh.Control.Rev
	}
	if step.Script == shardscript.Decide {
		o.decided(step, true)
	}
	reply := o.s.redis.Run(step, rev, notAfter)
	o.s.log("%s %s %d rev %d: %s %s", r, step.Script, step.Index, rev, reply.Code, showControl(reply.Control))
	sh = o.s.redis.Shard(step.Index)
	if step.Script == shardscript.Decide && epochOf(sh.Control) != epoch {
		o.decided(step, false)
	}
	if step.Script == shardscript.Seal && reply.Code == shardscript.OK {
		if reply.At >= step.Until {
			o.fail("I11: shard %d was sealed %d ms after the deadline of the pause", step.Index, reply.At-step.Until)
		}
		o.log.sealLost[step.Index] = false
	}
	if before != nil && sh.Stream == nil {
		o.removed(step, before)
	}
	if changes(step.Script, reply.Code) && (rev < stamp || reply.At >= notAfter) {
		o.fail("I8: a late %s of %s changed shard %d: revision %d after %d, %d ms after its not-after time", step.Script, r, step.Index, rev, stamp, reply.At-notAfter)
	}
	o.s.afterScript(step, reply.Code)
	return reply
}

// changes says whether a script with this reply has changed something that rests on its sender's
// knowledge.
func changes(script shardscript.Name, code shardscript.Code) bool {
	switch script {
	case shardscript.Look, shardscript.Survey, shardscript.Evidence:
		return false
	default:
		return code == shardscript.OK || code == shardscript.Gone
	}
}

// decided asserts I8 and I10 at the instant of the decision; before it, only what the oracle will
// need of the shards as they were is looked at.
func (o *oracle) decided(step stream.Step, before bool) {
	if before || o.log.decisionLost {
		return
	}
	active := o.s.redis.Stored().Stream.Active
	if active == nil || active.ID != step.ID {
		// The coordinator's slot lost the record, or is behind: the step tells what was wanted.
		active = nil
	}
	if !step.Quiesced {
		return
	}
	o.log.left[step.Epoch] = true
	// A failover takes longer than evidence may be acted upon, so a seal that was lost cannot be
	// an excuse.
	for i := 1; i < step.Count; i++ {
		if sh := o.s.redis.Shard(i); sh.Stream != nil && !sh.Stream.Sealed() {
			o.fail("I8: the layout was decided while shard %d was open", i)
		}
	}
	if active == nil || active.Policy.DrainScope != protocol.DrainAll {
		return
	}
	o.log.kept = append(o.log.kept, decision{epoch: step.ToEpoch, groups: step.Groups})
	for _, e := range o.log.entries {
		if e.lost || e.plain || o.log.sealLost[e.shard] {
			continue
		}
		for _, name := range o.log.registered {
			if !e.exempt[name] && !e.acked[name] && slices.Contains(active.Expected, name) {
				o.fail("I10: the layout was decided before %s had been acknowledged by %s", e.value, name)
			}
		}
	}
}

// removed asserts I9 at the instant at which a shard went.
func (o *oracle) removed(step stream.Step, st *redismodel.Stream) {
	o.s.log("shard %d is gone by %s", step.Index, step.Script)
	for _, p := range o.s.processes {
		// Whom a lost commit had told, nobody knows before its lease is over.
		g := o.s.redis.Stored().Groups[p.group]
		if step.Script == shardscript.RetireOne && p.mayRead(step.Index) && g != nil && g.RecoverUntil == 0 {
			o.fail("I9: shard %d was retired while %s reads it", step.Index, p.name)
		}
	}
	for _, e := range st.Entries {
		b := o.log.byValue[e.Value]
		if b == nil || b.lost {
			continue
		}
		for _, name := range o.log.registered {
			if !b.acked[name] && !b.exempt[name] {
				o.fail("I9: %s removed shard %d with %s, which %s has not acknowledged", step.Script, step.Index, e.Value, name)
			}
		}
	}
}

// append is APPEND of a producer.
func (o *oracle) append(p *producer, shard int, layout appendflow.Layout, values []string) redismodel.ClientReply {
	reply := o.s.redis.Append(shard, layout.Epoch, layout.Count, values)
	o.s.log("%s APPEND %d e%d/%d %v: %s e%d/%d until %d hold %d", p.name, shard, layout.Epoch, layout.Count, values, reply.Code, reply.Epoch, reply.Count, since(reply.Until), since(reply.Hold))
	if reply.Code != shardscript.OK {
		o.s.counts.Refused++
		return reply
	}
	for i, id := range reply.IDs {
		o.landed(shard, id, values[i], layout.Epoch, false)
	}
	return reply
}

// add is a bare XADD; false when it was refused.
func (o *oracle) add(p *producer, shard int, value string) bool {
	id, ok, missing := o.s.redis.Add(shard, value)
	if !ok || missing {
		o.s.counts.Refused++
		return false
	}
	o.s.log("%s XADD %d %s", p.name, shard, value)
	o.landed(shard, id, value, epochOf(o.s.redis.Shard(shard).Control), true)
	return true
}

// landed asserts I8 for an entry that has just landed.
func (o *oracle) landed(shard int, id redismodel.ID, value string, epoch int64, plain bool) {
	o.s.counts.Appended++
	key, _, _ := strings.Cut(value, "#")
	e := &entryBook{
		value: value, key: key, shard: shard, id: id, epoch: epoch, plain: plain,
		exempt: map[string]bool{}, dispatched: map[string]bool{}, acked: map[string]bool{},
	}
	if o.log.byValue[value] != nil {
		o.fail("I9: %s landed twice", value)
	}
	o.log.entries = append(o.log.entries, e)
	o.log.byValue[value] = e
	o.log.byKey[key] = append(o.log.byKey[key], e)
	o.s.ring(shard)
	if !plain && epoch < o.log.landed && o.log.left[epoch] && !o.log.decisionLost && !o.log.sealLost[shard] {
		o.fail("I8: %s landed under layout epoch %d, after one had landed under %d", value, epoch, o.log.landed)
	}
	o.log.landed = max(o.log.landed, epoch)
	if a := o.s.redis.Stored().Stream.Active; a != nil && a.Policy.Strategy == protocol.StrategyQuiesce && shard < a.Old &&
		a.SealedAt != 0 && (a.Phase == protocol.PhaseDraining || a.Phase == protocol.PhaseActivating) &&
		!o.log.sealLost[shard] && o.s.redis.Shard(shard).Control.Aborted != a.ID && epochOf(o.s.redis.Shard(0).Control) == a.From.Epoch && o.s.redis.Shard(0).Control.Gate == a.ID {
		o.fail("I8: %s landed on shard %d between the seals and the decision", value, shard)
	}
}

// confirmed: the producer was told that the entry has landed.
func (o *oracle) confirmed(value string) {
	if o.log.byValue[value] == nil {
		o.fail("I9: %s was confirmed and never landed", value)
	}
}

// resolve is RESOLVE at shard 0.
func (o *oracle) resolve(a appendflow.Resolve) redismodel.ClientReply {
	reply := o.s.redis.Resolve(a.Gate, protocol.Instant(a.Until), a.Epoch)
	o.s.log("RESOLVE %s until %d epoch %d: %s e%d/%d", a.Gate, since(protocol.Instant(a.Until)), a.Epoch, reply.Code, reply.Epoch, reply.Count)
	if reply.Code == shardscript.InForce {
		o.s.counts.Resolved++
	}
	return reply
}

// takeover is D3 for a process.
func (o *oracle) takeover(p *process, shard int, owner redismodel.Owner) redismodel.ClientReply {
	reply := o.s.redis.Takeover(shard, p.group, owner)
	o.s.log("%s TAKEOVER %d %d: %s, %d pending", p.name, shard, owner.Epoch, reply.Code, len(reply.Entries))
	if reply.Code != shardscript.OK {
		return reply
	}
	o.s.counts.Takeover++
	if o.log.owners[p.group] == nil {
		o.log.owners[p.group] = map[int]ownerBook{}
	}
	before := o.log.owners[p.group][shard]
	if !o.log.nodeFailed[shard] {
		if owner.Epoch < before.epoch {
			o.fail("I2: %s took shard %d over under %d, after %d", p.name, shard, owner.Epoch, before.epoch)
		}
		if owner.Epoch == before.epoch && before.process != p {
			o.fail("I2: ownership epoch %d of shard %d served %s and %s", owner.Epoch, shard, before.process.name, p.name)
		}
	}
	o.log.owners[p.group][shard] = ownerBook{epoch: owner.Epoch, process: p}
	return reply
}

// checkAck is D4 and D5 for a process.
func (o *oracle) checkAck(p *process, shard int, owner redismodel.Owner, ids []redismodel.ID) redismodel.ClientReply {
	o.s.beforeAck(shard, len(ids))
	before := o.s.redis.Pending(shard, p.group)
	reply := o.s.redis.CheckAck(shard, p.group, owner, ids)
	if len(ids) > 0 || reply.Code != shardscript.OK {
		o.s.log("%s CHECKACK %d %d, %d ids: %s, own %d elsewhere %d", p.name, shard, owner.Epoch, len(ids), reply.Code, reply.Own, reply.Elsewhere)
	}
	if reply.Code != shardscript.OK {
		return reply
	}
	book := o.log.owners[p.group][shard]
	if book.epoch > owner.Epoch && !o.log.nodeFailed[shard] && len(ids) > 0 {
		o.fail("I2: an acknowledgement of %s on shard %d counted, though %s owns it now", p.name, shard, book.process.name)
	}
	for _, e := range before {
		if b := o.log.byValue[e.Value]; b != nil && slices.Contains(ids, e.ID) {
			b.acked[p.group] = true
			o.s.counts.Acked++
		}
	}
	return reply
}

// dispatched asserts M3, the order of a shard and I10 when an entry goes to a handler.
func (o *oracle) dispatched(p *process, shard int, e redismodel.Entry) {
	o.s.log("%s handles %s of %d", p.name, e.Value, shard)
	if !p.mayRead(shard) {
		o.fail("I1: %s dispatched %s without the right to read shard %d", p.name, e.Value, shard)
	}
	o.handledAlone(p, shard)
	b := o.log.byValue[e.Value]
	if b == nil {
		return
	}
	if b.dispatched[p.group] {
		o.s.counts.Redelivered++
		return
	}
	b.dispatched[p.group] = true
	if o.log.delivered[p.group] == nil {
		o.log.delivered[p.group] = map[int]redismodel.ID{}
	}
	if last := o.log.delivered[p.group][shard]; e.ID.Less(last) && !o.log.nodeFailed[shard] {
		o.fail("order: %s of shard %d was first dispatched to %s after a later entry", e.Value, shard, p.group)
	} else if last.Less(e.ID) {
		o.log.delivered[p.group][shard] = e.ID
	}
	if b.plain || o.log.decisionLost {
		return
	}
	for _, earlier := range o.log.byKey[b.key] {
		if earlier == b {
			break
		}
		if earlier.lost || earlier.acked[p.group] || earlier.exempt[p.group] || o.log.sealLost[earlier.shard] {
			continue
		}
		for _, k := range o.log.kept {
			if earlier.epoch < k.epoch && k.epoch <= b.epoch && slices.Contains(k.groups, p.group) {
				o.fail("I10: %s was dispatched to %s before %s was acknowledged", b.value, p.group, earlier.value)
			}
		}
	}
}

// handledAlone: what a process still drains keeps a shard from everybody else, but for the
// rebalance timeout and for lost writes.
func (o *oracle) handledAlone(p *process, shard int) {
	if o.log.nodeFailed[shard] || o.failed0 > 0 || o.s.sc.spec.RebalanceTimeoutMs < 60_000 {
		return
	}
	for _, other := range o.s.processes {
		if other == p || other.group != p.group || !other.leased() {
			continue
		}
		if rd := other.readers[shard]; rd != nil && !rd.over && len(rd.handling) > 0 {
			o.fail("I1: %s handles entries of shard %d while %s still drains it", p.name, shard, other.name)
		}
	}
}

// producing asserts I11 while a producer has something to append.
func (o *oracle) producing(p *producer) {
	bound := 3*protocol.Instant(o.s.sc.pauseMs) + 40_000
	if waits := p.oldest(); waits > bound {
		o.fail("I11: an entry of %s has waited for %d ms", p.name, waits)
	}
	// An SDK producer ends an overdue pause of the shards that it needs by itself.
	const grace = 15_000
	layout, known := p.machine.Layout()
	if !known || layout.Count == 0 || p.plain || o.s.now < o.lastDown+grace {
		return
	}
	for _, e := range p.order {
		at, waits := p.waiting[e]
		if !waits || o.s.now-at < grace {
			continue
		}
		shard, _ := protocol.ShardIndex(e.Key, layout.Count)
		c := o.s.redis.Shard(shard).Control
		if c != nil && c.Until != 0 && o.s.redis.TimeOf(shard) > c.Until+grace && o.s.redis.TimeOf(0) > c.Until+grace {
			o.fail("I11: shard %d is sealed %d ms after its deadline, and an entry of %s waits for it", shard, o.s.redis.TimeOf(shard)-c.Until, p.name)
		}
	}
}

package stream_test

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// decide is a PUT on a turn that is thrown away, as the shell makes it.
func (h *harness) decide(sp protocol.StreamSpec, ifMatch int64) stream.Decision {
	d := stream.Decision{Prefix: "orders", Spec: sp, Before: h.s, NewID: "new", At: h.w.now}
	if h.s == nil {
		d.After = stream.New("orders", sp, "", stream.Request{ID: "new"}, h.w.now)
		if d.After.Active != nil {
			d.ReshardingID = "new"
		}
		return d
	}
	for {
		x := stream.Begin(h.s)
		id, _, err := x.Put(sp, stream.Request{ID: "new", IfMatch: ifMatch}, h.w.now)
		if err != nil {
			d.Refused = append(d.Refused, err)
		}
		if err != nil && err.Code == protocol.CodeGenerationMismatch && ifMatch != 0 {
			ifMatch = 0
			continue
		}
		d.ReshardingID, d.After = id, x.State()
		return d
	}
}

func (h *harness) look(d stream.Decision) stream.PreviewFacts {
	return stream.PreviewFacts{Look: h.pass(d.PlanProbe(100, nil)), PassTime: 2 * time.Millisecond}
}

func (h *harness) preview(sp protocol.StreamSpec) protocol.Preview {
	d := h.decide(sp, 0)
	return stream.Preview(d, h.look(d))
}

func codes(notes []protocol.PreviewNote) []string {
	list := []string{}
	for _, n := range notes {
		list = append(list, n.Code)
	}
	slices.Sort(list)
	return list
}

func wantCodes(list ...string) []string {
	slices.Sort(list)
	return list
}

func policySpec(n int, change func(*protocol.ReshardingPolicy)) protocol.StreamSpec {
	return policy(change)(n)
}

func keeping(n int, r protocol.Retention) protocol.StreamSpec {
	sp := spec(n)
	sp.Retention = r
	return sp
}

func isOnline(p *protocol.ReshardingPolicy)  { p.Strategy = protocol.StrategyOnline }
func onlyGoing(p *protocol.ReshardingPolicy) { p.DrainScope = protocol.DrainRemoved }

// TestPreviewActions has a row for each thing that a PUT can come to.
func TestPreviewActions(t *testing.T) {
	t.Parallel()
	begun := func(phase protocol.Phase) func(t *testing.T) *harness {
		return func(t *testing.T) *harness {
			h := running(t, 2)
			h.put(3)
			h.until(phase)
			return h
		}
	}
	rest := func(n int) func(t *testing.T) *harness {
		return func(t *testing.T) *harness { return running(t, n) }
	}
	none := func(t *testing.T) *harness {
		h := newHarness(t, 0)
		h.settle()
		return h
	}
	kept := spec(2)
	kept.Retention = protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 10}
	for _, c := range []struct {
		name           string
		from           func(t *testing.T) *harness
		spec           protocol.StreamSpec
		want           protocol.PreviewAction
		id             string
		fromN, toN     int
		added, removed []int
		moved          float64
		paused         bool
		barrier        string
	}{
		{"no stream", func(t *testing.T) *harness { return &harness{t: t, w: newWorld(24)} }, spec(3), protocol.PreviewCreate, "", 0, 3, []int{0, 1, 2}, []int{}, 1, false, "NONE"},
		{"no stream, no shard", func(t *testing.T) *harness { return &harness{t: t, w: newWorld(24)} }, spec(0), protocol.PreviewCreate, "", 0, 0, []int{}, []int{}, 0, false, "NONE"},
		{"the same", rest(2), spec(2), protocol.PreviewNone, "", 2, 2, []int{}, []int{}, 0, false, "NONE"},
		{"another policy", rest(2), policySpec(2, isOnline), protocol.PreviewUpdate, "", 2, 2, []int{}, []int{}, 0, false, "NONE"},
		{"another retention", rest(2), kept, protocol.PreviewUpdate, "", 2, 2, []int{}, []int{}, 0, false, "NONE"},
		{"more shards", rest(2), spec(4), protocol.PreviewReshard, "", 2, 4, []int{2, 3}, []int{}, 0.5, true, "XSETID"},
		{"fewer shards", rest(4), spec(1), protocol.PreviewReshard, "", 4, 1, []int{}, []int{1, 2, 3}, 0.75, true, "XSETID"},
		{"more shards ONLINE", rest(2), policySpec(3, isOnline), protocol.PreviewReshard, "", 2, 3, []int{2}, []int{}, 2.0 / 3, false, "NONE"},
		{"fewer shards ONLINE", rest(3), policySpec(2, isOnline), protocol.PreviewReshard, "", 3, 2, []int{}, []int{2}, 2.0 / 3, false, "XSETID"},
		{"no shards", rest(2), spec(0), protocol.PreviewReshard, "", 2, 0, []int{}, []int{0, 1}, 1, true, "XSETID"},
		{"from no shards", none, spec(2), protocol.PreviewReshard, "", 0, 2, []int{0, 1}, []int{}, 1, false, "NONE"},
		{"from no shards ONLINE", none, policySpec(2, isOnline), protocol.PreviewReshard, "", 0, 2, []int{0, 1}, []int{}, 1, false, "NONE"},
		{"a change goes there", begun(protocol.PhaseDraining), spec(3), protocol.PreviewAttach, "its", 2, 3, []int{2}, []int{}, 2.0 / 3, true, "XSETID"},
		{"a decided change went there", begun(protocol.PhaseConverging), spec(3), protocol.PreviewAttach, "its", 2, 3, []int{2}, []int{}, 2.0 / 3, false, "NONE"},
		{"a change comes from there", begun(protocol.PhaseDraining), spec(2), protocol.PreviewCancel, "its", 2, 2, []int{}, []int{}, 0, false, "NONE"},
		{"a change goes elsewhere", begun(protocol.PhaseDraining), spec(5), protocol.PreviewReshard, "", 2, 5, []int{2, 3, 4}, []int{}, 0.8, true, "XSETID"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := c.from(t)
			p := h.preview(c.spec)
			if c.id != "" {
				c.id = h.s.Active.ID
			}
			if p.Action != c.want || p.ReshardingID != c.id || p.FromShardCount != c.fromN || p.ToShardCount != c.toN ||
				!slices.Equal(p.ShardsAdded, c.added) || !slices.Equal(p.ShardsRemoved, c.removed) || p.Publishing.Paused != c.paused || p.Barrier != c.barrier {
				t.Errorf("got %+v", p)
			}
			if d := p.MovedFraction - c.moved; d > 1e-9 || d < -1e-9 {
				t.Errorf("%g of the keys move, want %g", p.MovedFraction, c.moved)
			}
			if c.name == "a change goes elsewhere" != (len(p.Blockers) == 1 && p.Blockers[0].Code == string(protocol.CodeActiveMigration)) || len(p.Blockers) > 1 {
				t.Errorf("blockers %+v", p.Blockers)
			}
			if p.Action == protocol.PreviewAttach && c.paused && p.Publishing.LimitMs != h.s.Active.Deadline.Sub(h.w.now).Milliseconds() {
				t.Errorf("the pause that runs is over in %d ms, want %s less now", p.Publishing.LimitMs, h.s.Active.Deadline)
			}
			if c.fromN == 0 && len(p.Risks) > 0 {
				t.Errorf("nothing is at risk where there was nothing: %+v", p.Risks)
			}
			if p.ShardsAdded == nil || p.ShardsRemoved == nil || p.Groups == nil || p.Blockers == nil || p.Risks == nil || p.Unknown == nil || p.Publishing.Producers == nil {
				t.Errorf("a list is null: %+v", p)
			}
			if p.Publishing.Basis == "" || p.Publishing.Paused != (p.Publishing.LimitMs > 0) || !p.Publishing.Paused && (p.Publishing.EstimateMs == nil || *p.Publishing.EstimateMs != 0) {
				t.Errorf("publishing %+v", p.Publishing)
			}
		})
	}
}

// A call that is refused is previewed as far as it can be: as what it would do were it not.
func TestPreviewOfARefusedCall(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	stale := func(n int) protocol.Preview {
		d := h.decide(spec(n), 77)
		return stream.Preview(d, h.look(d))
	}
	if p := stale(2); p.Action != protocol.PreviewNone || len(p.Blockers) != 1 {
		t.Errorf("the same, of another generation: %+v", p)
	}
	if p := stale(3); p.Action != protocol.PreviewReshard || !slices.Equal(p.ShardsAdded, []int{2}) || len(p.Blockers) != 1 {
		t.Errorf("another count, of another generation: %+v", p)
	}
	h.turn(func(x *stream.Turn) {
		if err := x.Delete(true, stream.Request{}, h.w.now); err != nil {
			t.Fatal(err)
		}
	})
	if p := h.preview(spec(1)); p.Action != protocol.PreviewCreate || p.FromShardCount != 0 || !slices.Equal(p.ShardsAdded, []int{0}) || len(p.Groups) != 0 || p.Publishing.Paused {
		t.Errorf("of a stream that is being deleted: %+v", p)
	}
}

// TestAssigned: members have the shards of the layout that a call leads to, and keep those that
// there are when it cancels a change.
func TestAssigned(t *testing.T) {
	t.Parallel()
	h := running(t, 2)
	h.put(3)
	h.until(protocol.PhaseDraining)
	for n, want := range map[int]int{2: 2, 3: 3} {
		if got := h.decide(spec(n), 0).Assigned(); got != want {
			t.Errorf("asked for %d while 3 are on their way: %d are assigned, want %d", n, got, want)
		}
	}
}

// backlogged leaves group g with entries undelivered and pending on shards, and drains all others.
func (h *harness) backlogged(undelivered, pending int, shards ...int) {
	h.t.Helper()
	for _, i := range shards {
		for range undelivered + pending {
			h.add(i, h.s.Layout)
		}
		sh := h.w.shards[i]
		for name, g := range sh.groups {
			if name != "g" {
				g.last = sh.last
				continue
			}
			for n := range pending {
				g.pending[g.last+1+n] = true
			}
			g.last += pending
		}
	}
}

// TestPreviewNotes has a row for each blocker and each risk.
func TestPreviewNotes(t *testing.T) {
	t.Parallel()
	alive := map[string]stream.GroupMembers{"g": {Live: 2}, "h": {Live: 1}}
	archive := func(p *protocol.ReshardingPolicy) { p.Retire = protocol.RetireArchive }
	type facts = stream.PreviewFacts
	for _, c := range []struct {
		name            string
		prepare         func(h *harness)
		spec            protocol.StreamSpec
		ifMatch         int64
		facts           func(f *facts)
		blockers, risks []string
		says            []string // in blockers, risks or unknown
	}{
		{name: "nothing", spec: spec(5)},
		{name: "another generation", spec: spec(5), ifMatch: 9, blockers: wantCodes("GENERATION_MISMATCH"), says: []string{"generation 1, not 9"}},
		{name: "the same of another generation", spec: spec(3), ifMatch: 9, blockers: wantCodes("GENERATION_MISMATCH")},
		{name: "a known orphan", spec: spec(5), blockers: wantCodes("FOREIGN_KEYS_EXIST"), says: []string{"orders:3 (1 entry)"}, prepare: func(h *harness) {
			h.put(5)
			h.settle()
			h.put(3)
			h.settle()
			*h.w.shards[3] = shard{exists: true, entries: []int{1}}
			h.sweep()
		}},
		{name: "a stream of somebody", spec: spec(5), blockers: wantCodes("FOREIGN_KEYS_EXIST"), says: []string{"orders:4 exists and does not belong to the coordinator"}, prepare: func(h *harness) {
			*h.w.shards[4] = shard{exists: true}
		}},
		{name: "a leftover", spec: spec(5), blockers: wantCodes("FOREIGN_KEYS_EXIST"), says: []string{"orders:3 still has 2 entries of an earlier layout"}, prepare: func(h *harness) {
			*h.w.shards[3] = shard{exists: true, fenced: true, present: true, retired: "r0", entries: []int{1, 2}}
		}},
		{name: "an empty leftover", spec: spec(5), prepare: func(h *harness) {
			*h.w.shards[3] = shard{exists: true, fenced: true, present: true, retired: "r0"}
		}},
		{name: "a removed shard of this layout comes back", spec: spec(5), prepare: func(h *harness) {
			*h.w.shards[3] = shard{exists: true, fenced: true, present: true, epoch: h.s.Layout.Epoch, count: h.s.Layout.Count, entries: []int{1, 2}}
		}},
		{name: "another type", spec: spec(5), blockers: wantCodes("FOREIGN_KEYS_EXIST"), says: []string{"orders:3 exists and is no stream"}, facts: func(f *facts) {
			f.Look.Replies[3].Err = "the key is no stream"
		}},
		{name: "of a deleted stream", spec: spec(5), blockers: wantCodes("FOREIGN_KEYS_EXIST"), prepare: func(h *harness) {
			*h.w.shards[3] = shard{exists: true, fenced: true, present: true, retired: "r0"}
		}, facts: func(f *facts) { f.Look.Replies[3].Control.Purged = true }},
		{name: "a missing shard", spec: spec(5), blockers: wantCodes("SHARD_MISSING"), says: []string{"shard 1 of the present layout"}, prepare: func(h *harness) { h.w.shards[1].unlink() }},
		{name: "a retired shard", spec: spec(5), blockers: wantCodes("SHARD_MISSING"), prepare: func(h *harness) { h.w.shards[1].retired = "x" }},
		{name: "a missing shard, nothing to do", spec: spec(3), risks: wantCodes("SHARD_MISSING"), prepare: func(h *harness) { h.w.shards[1].unlink() }},
		{name: "silence", spec: spec(5), blockers: wantCodes("SHARD_UNREADABLE"), says: []string{"shards 1 and 4 did not answer: what is on them is not known (boom)"}, facts: func(f *facts) {
			for _, i := range []int{1, 4} {
				f.Look.Replies[i] = stream.Reply{Step: f.Look.Replies[i].Step, Err: "boom"}
			}
		}},
		{name: "silence, nothing to do", spec: spec(3), says: []string{"shard 1 did not answer"}, facts: func(f *facts) {
			f.Look.Replies[1] = stream.Reply{Step: f.Look.Replies[1].Step}
		}},
		{name: "no answer at all", spec: spec(2), blockers: wantCodes("SHARD_UNREADABLE"), says: []string{"whether the shards can be sealed is not known", "how long group g takes to drain is not known"}, facts: func(f *facts) {
			f.Look.Replies, f.Look.Barrier = nil, ""
		}},
		{name: "exhausted", spec: spec(5), risks: wantCodes("SHARD_EXHAUSTED"), says: []string{"shard 1 cannot be opened"}, facts: func(f *facts) {
			f.Look.Replies[1].Evidence.LastID = "18446744073709551615-18446744073709551615"
		}},
		{name: "exhausted and removed", spec: spec(1), facts: func(f *facts) {
			f.Look.Replies[1].Evidence.LastID = "18446744073709551615-18446744073709551615"
		}},
		{name: "a backlog and members", spec: spec(5), prepare: func(h *harness) { h.backlogged(3, 1, 0) }, says: []string{"how long group g takes to drain is not known"}},
		{name: "a backlog and nobody", spec: spec(5), risks: wantCodes("GROUP_WITHOUT_LIVE_MEMBERS"), says: []string{"group g has 1 pending and 3 undelivered entries on shard 0 and no live member", "the pause timeout (5m0s) has passed; then the change is rolled back"},
			prepare: func(h *harness) { h.backlogged(3, 1, 0) }, facts: func(f *facts) { f.Members = nil }},
		{name: "a backlog and nobody, fails", spec: policySpec(5, func(p *protocol.ReshardingPolicy) { p.OnTimeout = protocol.OnTimeoutFail }), risks: wantCodes("GROUP_WITHOUT_LIVE_MEMBERS"), says: []string{"then the change is undone and fails"},
			prepare: func(h *harness) { h.backlogged(3, 1, 0) }, facts: func(f *facts) { f.Members = nil }},
		{name: "a backlog and nobody, ONLINE", spec: policySpec(2, isOnline), risks: wantCodes("GROUP_WITHOUT_LIVE_MEMBERS", "ORDER_NOT_PROMISED", "ENTRIES_DELETED"), says: []string{"the drain timeout (1h0m0s) has passed, and another one goes back to 3 shards", "3 undelivered entries on shard 2"},
			prepare: func(h *harness) { h.backlogged(3, 0, 0, 2) }, facts: func(f *facts) { f.Members = nil }},
		{name: "a backlog out of the scope", spec: policySpec(2, onlyGoing), risks: wantCodes("ORDER_NOT_PROMISED"),
			prepare: func(h *harness) { h.backlogged(3, 0, 0, 1) }, facts: func(f *facts) { f.Members = nil }},
		{name: "a stranger's backlog", spec: spec(5), risks: wantCodes("UNMANAGED_GROUP"), says: []string{"group z is not registered, but it counts: it has 1 undelivered entry on shard 0"}, prepare: func(h *harness) {
			h.add(0, h.s.Layout)
			h.w.work(0)
			h.w.shards[0].groups["z"] = &group{}
		}},
		{name: "a stranger at rest", spec: spec(5), prepare: func(h *harness) { h.w.shards[0].groups["z"] = &group{} }},
		{name: "an ignored backlog on what stays", spec: policySpec(2, func(p *protocol.ReshardingPolicy) { p.IgnoreGroups = []string{"g"} }), prepare: func(h *harness) { h.backlogged(3, 1, 0) }},
		{name: "an ignored backlog on what goes", spec: policySpec(2, func(p *protocol.ReshardingPolicy) { p.IgnoreGroups, p.Retire = []string{"g"}, protocol.RetireArchive }),
			risks: wantCodes("IGNORED_BACKLOG"), says: []string{"has not acknowledged on shard 2 goes"}, prepare: func(h *harness) { h.backlogged(3, 1, 0, 2) }},
		{name: "a lost group and members", spec: spec(5), risks: wantCodes("GROUP_MISSING"), says: []string{"waits until a member has made it again", "it is missing on shard 1, and what is missing never counts as drained"}, prepare: func(h *harness) { delete(h.w.shards[1].groups, "g") }},
		{name: "a lost group and nobody", spec: spec(5), risks: wantCodes("GROUP_MISSING"), says: []string{"no member is alive", "then the change is rolled back"},
			prepare: func(h *harness) { delete(h.w.shards[1].groups, "g") }, facts: func(f *facts) { f.Members = nil }},
		{name: "a lost group out of the scope", spec: policySpec(5, isOnline), risks: wantCodes("ORDER_NOT_PROMISED"), prepare: func(h *harness) { delete(h.w.shards[1].groups, "g") }},
		{name: "ONLINE", spec: policySpec(5, isOnline), risks: wantCodes("ORDER_NOT_PROMISED")},
		{name: "REMOVED", spec: policySpec(5, onlyGoing), risks: wantCodes("ORDER_NOT_PROMISED")},
		{name: "REMOVED to none", spec: policySpec(0, onlyGoing), risks: wantCodes("NO_SHARDS_LEFT")},
		{name: "to none", spec: spec(0), risks: wantCodes("NO_SHARDS_LEFT")},
		{name: "entries deleted", spec: spec(2), risks: wantCodes("ENTRIES_DELETED"), says: []string{"2 entries on shard 2: deleted together with the shards"}, prepare: func(h *harness) {
			h.add(2, h.s.Layout)
			h.add(2, h.s.Layout)
			h.w.work(2)
		}},
		{name: "entries archived", spec: policySpec(2, archive), prepare: func(h *harness) {
			h.add(2, h.s.Layout)
			h.w.work(2)
		}},
		{name: "no XSETID", spec: spec(5), risks: wantCodes("LEASE_BARRIER"), facts: func(f *facts) { f.Look.Barrier = stream.BarrierLease }},
		{name: "no XSETID, ONLINE", spec: policySpec(5, isOnline), risks: wantCodes("ORDER_NOT_PROMISED"), facts: func(f *facts) { f.Look.Barrier = stream.BarrierLease }},
		{name: "plain producers", spec: spec(5), risks: wantCodes("PLAIN_PRODUCERS_SEEN"), facts: func(f *facts) { f.PlainSeen = f.Look.StartedAt - 1000 }},
		{name: "plain producers long ago", spec: spec(5), facts: func(f *facts) { f.PlainSeen = f.Look.StartedAt.Add(-stream.PlainCache) }},
		{name: "plain producers and a short pause", spec: policySpec(5, func(p *protocol.ReshardingPolicy) { p.PauseTimeoutMs = 10_000 }), risks: wantCodes("ORDER_NOT_PROMISED"), says: []string{"too short to wait for their caches"},
			facts: func(f *facts) { f.PlainSeen = f.Look.StartedAt - 1000 }},
		{name: "plain producers, REMOVED", spec: policySpec(5, onlyGoing), risks: wantCodes("ORDER_NOT_PROMISED"), says: []string{"draining the removed shards alone"}, facts: func(f *facts) { f.PlainSeen = f.Look.StartedAt - 1000 }},
		{name: "an operator's pause", spec: spec(3), risks: wantCodes("PUBLISHING_PAUSED"), says: []string{"paused by ann"}, prepare: func(h *harness) {
			h.turn(func(x *stream.Turn) {
				if err := x.Pause(h.w.now.Add(time.Hour), stream.Request{RequestedBy: "ann"}, h.w.now); err != nil {
					h.t.Fatalf("%v", err)
				}
			})
		}},
		{name: "another policy than the running one", spec: policySpec(4, archive), risks: wantCodes("POLICY_NOT_APPLIED"), says: []string{"keeps the settings that it began with"}, prepare: func(h *harness) {
			h.put(4)
			h.until(protocol.PhaseDraining)
		}},
		{name: "a change that is decided", spec: spec(4), prepare: func(h *harness) {
			h.put(4)
			h.until(protocol.PhaseConverging)
			h.add(3, h.s.Layout) // what lies on a shard that is open is not in the way
			h.add(0, h.s.Layout) // and waited for it is no more
		}, facts: func(f *facts) { f.Members = nil }},
		{name: "an ONLINE change that is decided", spec: policySpec(4, isOnline), prepare: func(h *harness) {
			h.putSpec(policySpec(4, isOnline))
			h.until(protocol.PhaseConverging)
		}},
		{name: "a change that waits for removed shards", spec: policySpec(1, isOnline), risks: wantCodes("GROUP_WITHOUT_LIVE_MEMBERS", "ENTRIES_DELETED"), says: []string{"3 undelivered entries on shard 2 and no live member"},
			prepare: func(h *harness) {
				h.backlogged(3, 0, 0, 2)
				h.putSpec(policySpec(1, isOnline))
				h.until(protocol.PhaseDrainingRemoved)
				h.w.shards[1].unlink() // it may be gone already
			}, facts: func(f *facts) { f.Members = nil }},
		{name: "a group that is being registered", spec: spec(5), prepare: func(h *harness) {
			h.turn(func(x *stream.Turn) { x.RegisterGroup("new", protocol.StartEarliest, h.w.now) })
		}},
		{name: "a shorter retention", spec: keeping(3, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 2}), risks: wantCodes("RETENTION_REMOVES"), says: []string{"removes 3 entries of those there now, some of which g may still have to acknowledge"},
			prepare: func(h *harness) { h.backlogged(3, 1, 0); h.backlogged(1, 2, 1) }},
		{name: "a shorter retention, all read", spec: keeping(3, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 2}), risks: wantCodes("RETENTION_REMOVES"), says: []string{"removes 2 entries of those there now"},
			prepare: func(h *harness) { h.backlogged(3, 1, 0); h.work() }},
		{name: "a retention with room", spec: keeping(3, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 9}), prepare: func(h *harness) { h.backlogged(3, 1, 0) }},
		{name: "a retention by age", spec: keeping(3, protocol.Retention{Policy: protocol.RetentionMaxAge, MaxAgeMs: 60_000}), risks: wantCodes("RETENTION_REMOVES"), says: []string{"older than 1m0s"}},
		{name: "a retention that loses nothing", spec: keeping(3, protocol.Retention{Policy: protocol.RetentionAcked}), prepare: func(h *harness) { h.backlogged(3, 1, 0) }},
		{name: "the retention that there is", spec: keeping(3, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 2}), prepare: func(h *harness) {
			h.putSpec(keeping(3, protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 2}))
			h.backlogged(3, 1, 0)
		}},
		{name: "it is being deleted", spec: spec(4), blockers: wantCodes("STATE_VERSION_CONFLICT"), prepare: func(h *harness) {
			h.turn(func(x *stream.Turn) {
				if err := x.Delete(true, stream.Request{}, h.w.now); err != nil {
					h.t.Fatalf("%v", err)
				}
			})
		}},
		{name: "what the shell could not find out", spec: spec(3), says: []string{"the leases could not be read"}, facts: func(f *facts) { f.Unknown = []string{"the leases could not be read"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := running(t, 3)
			if c.prepare != nil {
				c.prepare(h)
			}
			d := h.decide(c.spec, c.ifMatch)
			f := h.look(d)
			f.Members = alive
			if c.facts != nil {
				c.facts(&f)
			}
			p := stream.Preview(d, f)
			if got := codes(p.Blockers); !slices.Equal(got, c.blockers) && len(got)+len(c.blockers) > 0 {
				t.Errorf("blockers %+v, want %v", p.Blockers, c.blockers)
			}
			if got := codes(p.Risks); !slices.Equal(got, c.risks) && len(got)+len(c.risks) > 0 {
				t.Errorf("risks %+v, want %v", p.Risks, c.risks)
			}
			all := strings.Join(p.Unknown, "\n")
			for _, n := range slices.Concat(p.Blockers, p.Risks) {
				all += "\n" + n.Message
			}
			for _, text := range c.says {
				if !strings.Contains(all, text) {
					t.Errorf("%q is not said:\n%s", text, all)
				}
			}
			if word := apiWords.FindString(all + "\n" + p.Publishing.Basis); word != "" {
				t.Errorf("%q is a word of the API alone, or a wrong plural:\n%s\n%s", word, all, p.Publishing.Basis)
			}
		})
	}
}

// apiWords are what users of Terraform, who read the notes too, call otherwise.
var apiWords = regexp.MustCompile(`ignoreGroups|ignore_groups|[dD]rainScope|(drain|pause)Timeout|onTimeout|retire (DELETE|ARCHIVE)|\b(ONLINE|QUIESCE|ARCHIVE|REMOVED|MAX_AGE|MAX_LEN|force=)\b|\b1 [a-z ]*(entries|shards|members)\b`)

// Only shards that have to be drained, and where somebody counts who is behind, are looked at again.
func TestBacklogged(t *testing.T) {
	t.Parallel()
	h := running(t, 4)
	h.backlogged(2, 1, 0, 1, 3)
	for _, c := range []struct {
		spec protocol.StreamSpec
		want []int
	}{
		{spec(5), []int{0, 1, 3}},
		{spec(4), nil},
		{policySpec(2, onlyGoing), []int{3}},
		{policySpec(2, isOnline), []int{3}},
		{policySpec(5, isOnline), nil},
		{policySpec(5, func(p *protocol.ReshardingPolicy) { p.IgnoreGroups = []string{"g"} }), nil},
	} {
		d := h.decide(c.spec, 0)
		got := d.Backlogged(h.look(d).Look)
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.spec, got, c.want)
		}
		if steps := d.PlanProbe(7, []int{1}).Stages; len(steps) != 1 || len(steps[0]) != 1 || steps[0][0].Index != 1 || steps[0][0].Most != 7 {
			t.Errorf("a look at shard 1 alone is %+v", steps)
		}
	}
}

// glance makes a reply with one group on shard 0.
func glance(at protocol.Instant, length, added int64, g protocol.GroupEvidence) stream.Reply {
	g.Group = "g"
	return stream.Reply{
		Step: stream.Step{Script: shardscript.Probe}, Code: shardscript.OK, At: at,
		Control:  stream.Control{StreamExists: true, HasEpoch: true, Epoch: 1, Count: 1, Length: length, EntriesAdded: added},
		Evidence: &protocol.ShardEvidence{LastID: "9-0", Groups: []protocol.GroupEvidence{g}},
	}
}

// TestPreviewRate: acknowledgements come exactly from two looks, or are not known.
func TestPreviewRate(t *testing.T) {
	t.Parallel()
	type group = protocol.GroupEvidence
	n := func(n int64) *int64 { return &n }
	const at = protocol.Instant(1_700_000_000_000)
	for _, c := range []struct {
		name          string
		first, second stream.Reply
		rate          float64 // −1: not known
		ms            int64   // −1: not known
		says          string
	}{
		{"delivered and acknowledged", glance(at, 100, 100, group{Undelivered: 60, Pending: 10}), glance(at+500, 100, 100, group{Undelivered: 40, Pending: 10}), 40, 1750, "20 acknowledgements seen within 500 ms; 70 entries left"},
		{"only acknowledged", glance(at, 100, 100, group{Pending: 10}), glance(at+1000, 100, 100, group{Pending: 5}), 5, 2000, "5 acknowledgements"},
		{"delivered, not acknowledged", glance(at, 100, 100, group{Undelivered: 60}), glance(at+500, 100, 100, group{Undelivered: 40, Pending: 20}), -1, -1, "no acknowledgement was seen within 500 ms"},
		{"appended meanwhile", glance(at, 100, 100, group{Undelivered: 60}), glance(at+500, 150, 150, group{Undelivered: 60, Pending: 25}), 50, 1200, "25 acknowledgements"},
		{"acknowledged as fast as appended", glance(at, 100, 100, group{Undelivered: 1}), glance(at+500, 150, 150, group{Undelivered: 1}), 100, 10, "50 acknowledgements"},
		{"removed meanwhile", glance(at, 100, 100, group{Undelivered: 60}), glance(at+500, 60, 100, group{Undelivered: 20}), -1, -1, "do not tell"},
		{"removed meanwhile, counters know", glance(at, 100, 100, group{Undelivered: 60, Lag: n(60)}), glance(at+500, 60, 100, group{Undelivered: 60, Lag: n(40)}), 40, 1500, "20 acknowledgements"},
		{"more than counted", glance(at, 999, 999, group{Undelivered: 100, UndeliveredMore: true}), glance(at+500, 999, 999, group{Undelivered: 100, UndeliveredMore: true}), -1, -1, "do not tell"},
		{"more than counted, counters know", glance(at, 999, 999, group{Undelivered: 100, UndeliveredMore: true, Lag: n(800), Pending: 10}), glance(at+500, 999, 999, group{Undelivered: 100, UndeliveredMore: true, Lag: n(750), Pending: 10}), 100, 8100, "at most 810 entries left, by Redis's own counters"},
		{"more than counted at first, then not", glance(at, 999, 999, group{Undelivered: 100, UndeliveredMore: true, Lag: n(120)}), glance(at+500, 999, 999, group{Undelivered: 50, Lag: nil}), -1, -1, "do not tell"},
		{"set back", glance(at, 100, 100, group{Undelivered: 10}), glance(at+500, 100, 100, group{Undelivered: 60}), -1, -1, "do not tell"},
		{"handed over", glance(at, 100, 100, group{Pending: 10}), glance(at+500, 100, 100, group{Pending: 12}), -1, -1, "do not tell"},
		{"the clock stood", glance(at, 100, 100, group{Pending: 10}), glance(at, 100, 100, group{Pending: 5}), -1, -1, "do not tell"},
		{"the group went", glance(at, 100, 100, group{Pending: 10}), stream.Reply{Code: shardscript.OK, At: at + 500, Evidence: &protocol.ShardEvidence{}}, -1, -1, "do not tell"},
		{"no second answer", glance(at, 100, 100, group{Pending: 10}), stream.Reply{}, -1, -1, "do not tell"},
		{"nothing left", glance(at, 100, 100, group{}), stream.Reply{}, -1, 0, "nothing is left to drain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, 1)
			h.settle()
			d := h.decide(spec(2), 0)
			d.At = at
			second := glance(at+500, 0, 0, group{})
			second.Code, second.At, second.Evidence, second.Control = c.second.Code, c.second.At, c.second.Evidence, c.second.Control
			f := stream.PreviewFacts{
				Look: stream.PassResult{Replies: []stream.Reply{c.first, {Step: stream.Step{Script: shardscript.Probe, Index: 1}, Code: shardscript.OK}}, Barrier: stream.BarrierSeal},
			}
			if backlogged := d.Backlogged(f.Look); len(backlogged) > 0 {
				f.Again = stream.PassResult{Replies: []stream.Reply{second}}
			}
			p := stream.Preview(d, f)
			g := p.Groups[0]
			rate, ms := -1.0, int64(-1)
			if g.RatePerSecond != nil {
				rate = *g.RatePerSecond
			}
			if g.DrainEstimateMs != nil {
				ms = *g.DrainEstimateMs
			}
			if rate != c.rate || ms != c.ms || !strings.Contains(g.Basis, c.says) {
				t.Errorf("got %g/s, %d ms, %q; want %g, %d, %q", rate, ms, g.Basis, c.rate, c.ms, c.says)
			}
			if (ms < 0) != (p.Publishing.EstimateMs == nil) || (ms < 0) != (len(p.Unknown) == 1) {
				t.Errorf("the pause is estimated at %v: %s; unknown: %q", p.Publishing.EstimateMs, p.Publishing.Basis, p.Unknown)
			}
		})
	}
}

// TestPreviewSlowestShard: readers of one shard do not help another one. Where none acknowledges, the
// next acknowledgement may come at any time, but not before the look was over.
func TestPreviewSlowestShard(t *testing.T) {
	t.Parallel()
	const at = protocol.Instant(1_700_000_000_000)
	for _, c := range []struct {
		name           string
		pending, after [2]int64
		ms             int64
		rate           float64
		says           string
	}{
		{"evenly", [2]int64{100, 100}, [2]int64{50, 50}, 1000, 200, "100 acknowledgements seen within 500 ms; 200 entries left, and none come while publishing is paused; the slowest shard counts"},
		{"one is slow", [2]int64{1000, 100}, [2]int64{995, 50}, 100_000, 110, "55 acknowledgements"},
		{"one is stuck", [2]int64{1000, 100}, [2]int64{1000, 50}, 500_000, 100, "none of them on shard 0, which is taken for one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, 2)
			h.settle()
			d := h.decide(spec(1), 0)
			d.At = at
			var f stream.PreviewFacts
			for i := range 2 {
				first, second := glance(at, 1000, 1000, protocol.GroupEvidence{Pending: c.pending[i]}), glance(at+500, 1000, 1000, protocol.GroupEvidence{Pending: c.after[i]})
				first.Step.Index, second.Step.Index = i, i
				f.Look.Replies = append(f.Look.Replies, first)
				f.Again.Replies = append(f.Again.Replies, second)
			}
			g := stream.Preview(d, f).Groups[0]
			if g.DrainEstimateMs == nil || *g.DrainEstimateMs != c.ms || g.RatePerSecond == nil || *g.RatePerSecond != c.rate || !strings.Contains(g.Basis, c.says) {
				t.Errorf("got %+v", g)
			}
		})
	}
}

// TestPreviewUnseenShard: on a shard that did not answer, or is not there, may be more than is
// known, groups that nobody has registered among it. It never counts as nothing.
func TestPreviewUnseenShard(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]stream.Reply{
		"silent":  {Err: "i/o timeout"},
		"missing": {Code: shardscript.OK, Control: stream.Control{Present: true, HasEpoch: true, Epoch: 1, Count: 2}},
	} {
		for _, managed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, managed %t", name, managed), func(t *testing.T) {
				t.Parallel()
				h := newHarness(t, 2)
				if managed {
					h.turn(func(x *stream.Turn) { x.RegisterGroup("g", protocol.StartEarliest, h.w.now) })
				}
				h.settle()
				h.w.shards[0].entries = []int{1}
				d := h.decide(spec(0), 0)
				f := h.look(d)
				for i, rep := range f.Look.Replies {
					if rep.Step.Index == 1 {
						f.Look.Replies[i] = lost
						f.Look.Replies[i].Step = rep.Step
					}
				}
				p := stream.Preview(d, f)
				if p.Publishing.EstimateMs != nil || !strings.Contains(p.Publishing.Basis, "shard 1") || len(p.Blockers) != 1 {
					t.Errorf("publishing %+v, blockers %+v", p.Publishing, p.Blockers)
				}
				for _, g := range p.Groups {
					if g.DrainEstimateMs != nil || g.Lag != nil {
						t.Errorf("%+v", g)
					}
				}
				if at := slices.IndexFunc(p.Risks, func(n protocol.PreviewNote) bool { return n.Code == protocol.NoteEntriesDeleted }); name == "silent" && (at < 0 || !strings.HasPrefix(p.Risks[at].Message, "at least 1 entry on")) {
					t.Errorf("%+v", p.Risks)
				}
			})
		}
	}
}

// TestPreviewPause: the pause takes as long as what is slowest, and the passes.
func TestPreviewPause(t *testing.T) {
	t.Parallel()
	const at = protocol.Instant(1_700_000_000_000)
	slow := func(pending, after int64) stream.PreviewFacts {
		replies := func(at protocol.Instant, n int64) []stream.Reply {
			return []stream.Reply{glance(at, 100, 100, protocol.GroupEvidence{Pending: n}), {Step: stream.Step{Script: shardscript.Probe, Index: 1}, Code: shardscript.OK}}
		}
		return stream.PreviewFacts{
			Look: stream.PassResult{Replies: replies(at, pending), Barrier: stream.BarrierSeal}, Again: stream.PassResult{Replies: replies(at+500, after)[:1]},
			PassTime: 3 * time.Millisecond,
		}
	}
	for _, c := range []struct {
		name  string
		facts stream.PreviewFacts
		plain bool
		want  int64
		says  string
	}{
		{"nothing to drain", slow(0, 0), false, 12, "nothing is left to drain; and 4 passes over the shards, of which one took 3ms"},
		{"a group", slow(100, 50), false, 1012, "group g needs the longest: 50 acknowledgements"},
		{"plain producers", slow(100, 50), true, 30_012, "may use their cached routing for 30s"},
		{"a group slower than plain producers", slow(100_000, 99_000), true, 50_012, "group g needs the longest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t, 1)
			h.settle()
			d := h.decide(spec(2), 0)
			d.At = at
			if c.plain {
				c.facts.PlainSeen = at - 5000
			}
			p := stream.Preview(d, c.facts)
			if p.Publishing.EstimateMs == nil || *p.Publishing.EstimateMs != c.want || !strings.Contains(p.Publishing.Basis, c.says) {
				t.Errorf("got %+v, want %d", p.Publishing, c.want)
			}
		})
	}
	t.Run("too slow", func(t *testing.T) {
		t.Parallel()
		h := newHarness(t, 1)
		h.settle()
		d := h.decide(policySpec(2, func(p *protocol.ReshardingPolicy) { p.PauseTimeoutMs = 500 }), 0)
		d.At = at
		p := stream.Preview(d, slow(100, 50))
		if !slices.Contains(codes(p.Risks), protocol.NoteDrainTooSlow) || p.Publishing.LimitMs != 500 {
			t.Errorf("risks %+v, %+v", p.Risks, p.Publishing)
		}
	})
}

// TestPreviewOfARunningPause: what counts of a pause that runs is what is left of it.
func TestPreviewOfARunningPause(t *testing.T) {
	t.Parallel()
	h := running(t, 1)
	h.w.shards[0].entries = []int{1}
	sp := policySpec(2, func(p *protocol.ReshardingPolicy) { p.PauseTimeoutMs = 10_000 })
	h.putSpec(sp)
	h.until(protocol.PhaseDraining)
	h.w.now = h.s.Active.Deadline - 500
	d := h.decide(sp, 0)
	reply := func(at protocol.Instant, pending int64) stream.PassResult {
		return stream.PassResult{Replies: []stream.Reply{glance(at, 100, 100, protocol.GroupEvidence{Pending: pending})}, Barrier: stream.BarrierSeal}
	}
	p := stream.Preview(d, stream.PreviewFacts{Look: reply(h.w.now, 100), Again: reply(h.w.now+500, 50)})
	if p.Action != protocol.PreviewAttach || p.Publishing.LimitMs != 500 || !slices.Contains(codes(p.Risks), protocol.NoteDrainTooSlow) {
		t.Errorf("%s: %+v, risks %+v", p.Action, p.Publishing, p.Risks)
	}
}

// A preview of the members and producers is cut where it would be long, and says so.
func TestPreviewIsBounded(t *testing.T) {
	t.Parallel()
	h := running(t, 3)
	d := h.decide(spec(2), 0)
	f := h.look(d)
	members := stream.GroupMembers{Live: 300}
	for i := range 300 {
		members.Affected = append(members.Affected, fmt.Sprintf("m%03d", i))
	}
	f.Members = map[string]stream.GroupMembers{"g": members}
	p := stream.Preview(d, f)
	if g := p.Groups[0]; len(g.AffectedMembers) != 100 || g.AffectedCount != 300 || g.LiveMembers != 300 || g.AffectedMembers[99] != "m099" {
		t.Errorf("got %+v", g)
	}
	if g := p.Groups[1]; g.AffectedMembers == nil || g.LiveMembers != 0 {
		t.Errorf("got %+v", g)
	}
}

// TestPreviewAgreesWithPut: for random streams, what the preview says is what the PUT does.
func TestPreviewAgreesWithPut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarness(rt, rapid.IntRange(0, 4).Draw(rt, "from"))
		h.turn(func(x *stream.Turn) { x.RegisterGroup("g", protocol.StartEarliest, h.w.now) })
		h.settle()
		draw := func(what string) protocol.StreamSpec {
			sp := spec(rapid.IntRange(0, 5).Draw(rt, what))
			sp.Resharding.Strategy = rapid.SampledFrom([]protocol.Strategy{protocol.StrategyQuiesce, protocol.StrategyOnline}).Draw(rt, "strategy")
			sp.Resharding.DrainScope = rapid.SampledFrom([]protocol.DrainScope{protocol.DrainAll, protocol.DrainRemoved}).Draw(rt, "scope")
			if rapid.Bool().Draw(rt, "ignore") {
				sp.Resharding.IgnoreGroups = []string{"z"}
			}
			return sp
		}
		if rapid.Bool().Draw(rt, "a change runs") {
			h.putSpec(draw("first"))
			for range rapid.IntRange(0, 6).Draw(rt, "steps") {
				h.step()
				h.w.now += 5
			}
		}
		n := h.s.Layout.Count
		if rapid.IntRange(0, 3).Draw(rt, "foreign") == 0 && h.s.Active == nil {
			*h.w.shards[n+rapid.IntRange(0, 1).Draw(rt, "where")] = shard{exists: true, entries: []int{1}}
			if rapid.Bool().Draw(rt, "known") {
				h.sweep()
			}
		}
		if n > 0 && h.s.Active == nil && rapid.IntRange(0, 5).Draw(rt, "missing") == 0 {
			h.w.shards[rapid.IntRange(0, n-1).Draw(rt, "which")].unlink()
		}
		want := draw("then")
		ifMatch := rapid.SampledFrom([]int64{0, 0, 0, h.s.Generation, 77}).Draw(rt, "if-match")
		d := h.decide(want, ifMatch)
		before := h.s
		p := stream.Preview(d, h.look(d))
		if !reflect.DeepEqual(before, h.s) {
			rt.Fatal("the preview has changed the state")
		}

		x := stream.Begin(h.s)
		id, started, err := x.Put(want, stream.Request{ID: h.id(), IfMatch: ifMatch}, h.w.now)
		if err != nil {
			if len(p.Blockers) == 0 || p.Blockers[0].Code != string(err.Code) {
				rt.Fatalf("the call was refused with %v, the preview says %+v", err, p)
			}
			return
		}
		var action protocol.PreviewAction
		switch {
		case started:
			action = protocol.PreviewReshard
		case id != "" && x.State().Active.Phase == protocol.PhaseRollingBack:
			action = protocol.PreviewCancel
		case id != "":
			action = protocol.PreviewAttach
		case x.State().Generation != h.s.Generation:
			action = protocol.PreviewUpdate
		default:
			action = protocol.PreviewNone
		}
		if p.Action != action || !started && p.ReshardingID != id {
			rt.Fatalf("the call came to %s %s, the preview says %+v", action, id, p)
		}
		h.turn(func(y *stream.Turn) {
			if _, _, err := y.Put(want, stream.Request{ID: "done"}, h.w.now); err != nil {
				rt.Fatal(err)
			}
		})
		if !started {
			return
		}
		var paused bool
		for range 400 {
			if h.s.Active == nil || h.s.Active.ID != "done" {
				break
			}
			paused = paused || h.s.Active.PausedAt != 0
			h.step()
			h.work()
			h.w.now += 20
		}
		r := stream.ReshardingOf(h.s, "done", h.s.UpdatedAt)
		if completed := r.Phase == protocol.PhaseCompleted; completed != (len(p.Blockers) == 0) {
			rt.Fatalf("it ended as %s (%s), the preview says %+v\n%s", r.Phase, r.Error, p, h.log())
		}
		if r.Phase == protocol.PhaseCompleted && paused != p.Publishing.Paused {
			rt.Fatalf("publishing was paused: %v; the preview says %+v", paused, p.Publishing)
		}
	})
}

package provider

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A plan says what a change will do; what would make it fail is an error of the plan, what
// someone should know a warning, and a coordinator that cannot tell stops nothing.
func TestPlanShowsTheDryRun(t *testing.T) {
	c, f := setup(t)
	f.set(func() {
		f.risks = []protocol.PreviewNote{{Code: protocol.NoteGroupWithoutMembers, Message: "group billing has 5 entries and nobody who reads"}}
	})
	p := c.plan(c.none(shardCount), orders(2))
	if w := warningsOf(p.diags); len(w) != 1 || !strings.Contains(w[0], "nobody who reads") {
		t.Errorf("creation: %q", w)
	}
	i, diags := c.apply(t.Context(), p)
	c.ok(diags)

	p = c.plan(i, orders(4))
	w := warningsOf(p.diags)
	if len(w) != 2 || !strings.Contains(w[0], "from 2 to 4 shards") || !strings.Contains(w[0], "added: shards 2 and 3") || !strings.Contains(w[0], "about 50 %") || !strings.Contains(w[1], "nobody who reads") {
		t.Errorf("scale-out: %q", w)
	}
	if w := warningsOf(c.plan(i, orders(2, attrs{"retire": "archive"})).diags); len(w) != 1 {
		t.Errorf("settings only: %q", w)
	}

	f.set(func() {
		f.blockers = []protocol.PreviewNote{{Code: string(protocol.CodeForeignKeys), Message: "orders:2 holds 7 entries of somebody else"}}
	})
	oneError(t, c.plan(i, orders(4)).diags, "cannot be changed", "orders:2 holds 7 entries", "FOREIGN_KEYS_EXIST")
	if p := c.plan(i, orders(2)); !p.noop() || failed(p.diags) {
		t.Errorf("nothing to do, and still %q", errorsOf(p.diags))
	}

	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if !r.URL.Query().Has("dryRun") {
				return false
			}
			refuse(w, protocol.NewError(protocol.CodeForbidden, "not for you, correct-horse-battery"))
			return true
		}
	})
	p = c.plan(i, orders(4))
	if w := warningsOf(p.diags); failed(p.diags) || len(w) != 1 || !strings.Contains(w[0], "could not be checked") || strings.Contains(w[0], "correct-horse") {
		t.Errorf("a dry run that fails: %q %q", errorsOf(p.diags), w)
	}
	i, diags = c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "shard_count", "4")
}

// Nothing is asked of the coordinator when nothing changes, or when it is not known yet what.
func TestPlanAsksOnlyWhenItHasTo(t *testing.T) {
	c, f := setup(t)
	i := c.refresh(c.must(c.none(shardCount), orders(2)))
	asked := func(what string, want int, do func()) {
		t.Helper()
		before := len(f.requests)
		do()
		if n := len(f.requests) - before; n != want {
			t.Errorf("%s: %d requests, want %d: %v", what, n, want, f.requests[before:])
		}
	}
	asked("a refresh that finds what it had", 1, func() { i = c.refresh(i) })
	asked("an empty plan", 0, func() { c.plan(i, orders(2)) })
	asked("a plan of what only Terraform knows", 0, func() { c.plan(i, orders(2, attrs{"deletion_protection": true, "skip_destroy": true})) })
	asked("an unknown count", 0, func() { c.plan(i, orders(tftypes.UnknownValue)) })
	asked("a change", 1, func() { c.plan(i, orders(3)) })
}

// An apply refuses a plan that was made for another state of the stream.
func TestApplyRefusesAStalePlan(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	other := c.plan(i, orders(3, attrs{"reason": "the other workspace"}))
	mine := c.plan(i, orders(4))
	gone := c.plan(i, nil)
	if _, diags := c.apply(t.Context(), other); failed(diags) {
		t.Fatal(errorsOf(diags))
	}
	before := len(f.mutations())
	after, diags := c.apply(t.Context(), mine)
	oneError(t, diags, "changed since the plan", "terraform plan again", "rs-2")
	if !after.state.Equal(i.state) {
		t.Errorf("state changed to %s", after.state)
	}
	after, diags = c.apply(t.Context(), gone)
	oneError(t, diags, "changed since the plan")
	if n := len(f.mutations()) - before; n != 0 || after.state.IsNull() {
		t.Errorf("%d requests, state %s", n, after.state)
	}
	// The same wish is no conflict: it is what an apply that was killed comes back to.
	oneError(t, c.plan(i, orders(4)).diags, "changed since the plan") // as Terraform plans once more when it applies
	i = c.refresh(i)
	same := c.plan(i, orders(4))
	if _, diags := c.apply(t.Context(), c.plan(i, orders(4))); failed(diags) {
		t.Fatal(errorsOf(diags))
	}
	i, diags = c.apply(t.Context(), same)
	c.ok(diags)
	wantField(t, i, "shard_count", "4")
}

// What somebody else changes while an apply waits is not what its state rests on: without a refresh,
// the next apply is refused.
func TestChangedWhileAnApplyWaits(t *testing.T) {
	c, f := setup(t)
	meanwhile := func(resharding string) {
		f.set(func() { f.block = true })
		go func() {
			eventually(t, "the apply waits", func() bool { return f.count("/reshardings/"+resharding) > 1 })
			f.set(func() {
				f.block = false
				f.streams["orders"].Spec.Resharding.Retire = protocol.RetireArchive
				f.streams["orders"].Generation++
			})
			f.finish(t, "orders", protocol.PhaseCompleted, "")
		}()
	}
	meanwhile("rs-1")
	i := c.must(c.none(shardCount), orders(2))
	oneError(t, c.plan(i, orders(3)).diags, "changed since the plan", "generation 1", "generation 2 now")
	i = c.refresh(i)
	p := c.plan(i, orders(4))
	meanwhile("rs-2")
	i, diags := c.apply(t.Context(), p)
	c.ok(diags)
	oneError(t, c.plan(i, orders(5)).diags, "changed since the plan", "generation 3", "generation 4 now")
	c.must(c.refresh(i), orders(5))
}

// Two who create one stream: one wins, whatever the other wants, even just the same, and the other
// is told.
func TestCreateLosesTheRace(t *testing.T) {
	for name, theirs := range map[string]attrs{"other settings": orders(5), "the same settings": orders(2)} {
		t.Run(name, func(t *testing.T) {
			c, f := setup(t)
			other := newCore(t, attrs{"endpoint": f.URL, "username": "terraform", "password": "correct-horse-battery", "requested_by": "another pipeline"})
			p := c.plan(c.none(shardCount), orders(2))
			first := true
			f.set(func() {
				f.intercept = func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
					if !changes(r) || !first {
						return false
					}
					first = false // between our look and our request
					other.must(other.none(shardCount), theirs)
					return false
				}
			})
			after, diags := c.apply(t.Context(), p)
			oneError(t, diags, "changed meanwhile")
			if want := value(tftypes.Number, theirs["shard_count"]); !after.state.IsNull() || !num(f.streams["orders"].Spec.ShardCount).Equal(want) {
				t.Errorf("state %s, stream %+v", after.state, f.streams["orders"].Spec)
			}
		})
	}
}

func TestRetentionArgument(t *testing.T) {
	c, f := setup(t)
	for name, tt := range map[string]struct {
		block attrs
		words []string
	}{
		"unknown policy":       {attrs{"policy": "forever"}, []string{"forever", "max_age"}},
		"age is missing":       {attrs{"policy": "max_age"}, []string{"retention.max_age", "is needed"}},
		"length is missing":    {attrs{"policy": "max_len"}, []string{"retention.max_len", "is needed"}},
		"age of another":       {attrs{"policy": "acked", "max_age": "1h"}, []string{"retention.max_age", "no effect"}},
		"length of another":    {attrs{"policy": "max_age", "max_age": "1h", "max_len": 5}, []string{"retention.max_len", "no effect"}},
		"length of nothing":    {attrs{"policy": "max_len", "max_len": 0}, []string{"at least 1"}},
		"an age that is short": {attrs{"policy": "max_age", "max_age": "1ms"}, []string{"must be between 1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			oneError(t, c.validate(shardCount, orders(2, attrs{"retention": tt.block})), tt.words...)
		})
	}

	i := c.must(c.none(shardCount), orders(2, attrs{"retention": attrs{"policy": "max_age", "max_age": "72h"}}))
	if got := f.streams["orders"].Spec.Retention; got != (protocol.Retention{Policy: protocol.RetentionMaxAge, MaxAgeMs: 72 * 3600 * 1000}) {
		t.Errorf("told %+v", got)
	}
	before := len(f.mutations())
	again := c.must(c.refresh(i), orders(2, attrs{"retention": attrs{"policy": "max_age", "max_age": "4320m"}}))
	if len(f.mutations()) != before {
		t.Error("the coordinator was told another spelling of the same")
	}
	if p := c.plan(c.refresh(again), orders(2, attrs{"retention": attrs{"policy": "max_age", "max_age": "4320m"}})); !p.noop() {
		t.Errorf("another spelling is a change for ever: %s", p.state)
	}
	imported, diags := c.importID(shardCount, "orders")
	c.ok(diags)
	if p := c.plan(imported, orders(2, attrs{"retention": attrs{"policy": "max_age", "max_age": "72h"}, "deletion_protection": true})); !p.noop() {
		t.Errorf("plan after import is not empty: %s", p.state)
	}
	i = c.must(i, orders(2)) // left out: nothing is removed any more
	if got := f.streams["orders"].Spec.Retention.Policy; got != protocol.RetentionNone {
		t.Errorf("told %s", got)
	}
	if p := c.plan(c.refresh(i), orders(2, attrs{"retention": attrs{"policy": "none"}})); failed(p.diags) {
		t.Errorf("none spelt out: %q", errorsOf(p.diags))
	}
	f.set(func() { f.streams["orders"].Spec.Retention = protocol.Retention{Policy: protocol.RetentionAcked} })
	if p := c.plan(c.refresh(i), orders(2)); p.noop() {
		t.Error("drift is not seen")
	}
}

func TestForceDestroy(t *testing.T) {
	c, f := setup(t)
	oneError(t, c.validate(shardCount, orders(2, attrs{"force_destroy": "others"})), "must repeat stream_prefix", "orders")
	i := c.must(c.none(shardCount), orders(2, attrs{"force_destroy": "orders"}))
	p := c.plan(i, nil)
	if w := warningsOf(p.diags); len(w) == 0 || !strings.Contains(w[0], "is lost") {
		t.Errorf("warnings: %q", w)
	}
	before := len(f.mutations())
	after, diags := c.apply(t.Context(), p)
	m := f.mutations()[before:]
	if len(m) != 1 || m[0].method != http.MethodDelete || !strings.Contains(m[0].body, `"force":true,"confirm":"orders"`) {
		t.Errorf("requests: %v, state %s, %q", m, after.state, errorsOf(diags))
	}

	kept := c.must(c.none(shardCount), attrs{"stream_prefix": "kept", "shard_count": 1, "skip_destroy": true})
	before = len(f.mutations())
	if after := c.must(kept, nil); !after.state.IsNull() || len(f.mutations()) != before || f.streams["kept"] == nil {
		t.Errorf("skip_destroy: state %s, %v", after.state, f.mutations()[before:])
	}
}

// States of version 0, as release 0.1.0 wrote them, are read; the plan after it is empty.
func TestUpgradeFromVersion0(t *testing.T) {
	c, _ := setup(t)
	c.must(c.none(shardCount), orders(2))
	c.must(c.none(streamGroup), billing())
	for kind, tt := range map[string]struct {
		state  string
		config attrs
	}{
		shardCount: {`{"stream_prefix":"orders","shard_count":2,"strategy":"quiesce","drain_scope":"all","retire":"delete","pause_timeout":"5m","drain_timeout":"1h",
			"on_timeout":"rollback","ignore_groups":null,"deletion_protection":false,"reason":"","timeouts":null,"metadata_version":1,"layout_epoch":1,"publish_state":"OPEN",
			"shards":[{"index":0,"key":"orders:0","slot":1}],"last_resharding":{"id":"rs-1","from_shard_count":0,"to_shard_count":2,"strategy":"quiesce","phase":"COMPLETED","phases":[],
			"paused_ms":0,"order":"","error":""}}`, orders(2)},
		streamGroup: {`{"stream_prefix":"orders","consumer_group":"billing","start_position":"earliest","member_lease":"15s","heartbeat_interval":"3s","rebalance_timeout":"1m",
			"force_destroy":false,"reason":"","state":"EMPTY","group_epoch":1,"assignment_epoch":1,"metadata_version":1,"shard_count":2}`, billing(attrs{"deletion_protection": nil})},
	} {
		t.Run(kind, func(t *testing.T) {
			resp, err := c.server.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{TypeName: kind, Version: 0, RawState: &tfprotov6.RawState{JSON: []byte(tt.state)}})
			if err != nil {
				t.Fatal(err)
			}
			c.ok(resp.Diagnostics)
			i := c.refresh(instance{kind: kind, state: c.unpack(c.typ(kind), resp.UpgradedState)})
			if p := c.plan(i, tt.config); !p.noop() {
				t.Errorf("plan is not empty:\n%s\n%s", p.state, i.state)
			}
			bad, err := c.server.UpgradeResourceState(t.Context(), &tfprotov6.UpgradeResourceStateRequest{TypeName: kind, Version: 0, RawState: &tfprotov6.RawState{JSON: []byte(`{"shard_count":"many"}`)}})
			if err != nil {
				t.Fatal(err)
			}
			oneError(t, bad.Diagnostics, "unreadable")
		})
	}
}

func TestGroupText(t *testing.T) {
	rate, eta := 50.0, int64(2000)
	for want, g := range map[string]protocol.PreviewGroup{
		"group a: nothing to drain; 2 live members":                                                  {Group: "a", Managed: true, LiveMembers: 2},
		"group a: 3 pending and 100 undelivered entries, drained in about 2s (seen); 1 live member":  {Group: "a", Managed: true, LiveMembers: 1, Pending: 3, Undelivered: 100, RatePerSecond: &rate, DrainEstimateMs: &eta, Basis: "seen"},
		"unmanaged Redis group b: more than 9 undelivered entries, drained in an unknown time (why)": {Group: "b", Undelivered: 9, UndeliveredMore: true, Basis: "why"},
		"unmanaged Redis group c: ignored, with 1 undelivered entry":                                 {Group: "c", Ignored: true, Undelivered: 1},
		"group e: nothing to drain; 1 live member, 1 with other shards afterwards":                   {Group: "e", Managed: true, LiveMembers: 1, AffectedCount: 1, AffectedMembers: []string{"m"}},
		"unmanaged Redis group d: ignored, with 2 pending entries":                                   {Group: "d", Ignored: true, Pending: 2},
	} {
		if got := groupText(g); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The old shard count, while the resharding of an interrupted apply runs, is a change: it cancels.
func TestOldCountCancelsWhatRuns(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	f.set(func() { f.block = true })
	i, diags := c.apply(t.Context(), c.plan(i, orders(4, attrs{"timeouts": attrs{"update": "300ms"}})))
	oneError(t, diags, "Timed out", "billing")
	wantField(t, i, "publish_state", "PAUSED")
	i = c.refresh(i)
	wantField(t, i, "shard_count", "2")
	p := c.plan(i, orders(2))
	if w := warningsOf(p.diags); p.noop() || len(w) != 1 || !strings.Contains(w[0], "will be cancelled") || !strings.Contains(w[0], "rs-2 is rolled back") {
		t.Fatalf("noop %v, warnings %q", p.noop(), warningsOf(p.diags))
	}
	i, diags = c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "last_resharding.phase", "ROLLED_BACK")
	if p := c.plan(c.refresh(i), orders(2)); !p.noop() {
		t.Error("plan is not empty")
	}
	// Another count is no cancelling.
	f.set(func() { f.block = false })
	c.must(c.refresh(i), orders(3))
}

func TestShardRange(t *testing.T) {
	for want, indexes := range map[string][]int{
		"shard 4":           {4},
		"shards 4 and 5":    {4, 5},
		"shards 0 and 5":    {0, 5},
		"shards 4 to 7":     {4, 5, 6, 7},
		"shards 0, 2 and 5": {0, 2, 5},
		"shards 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 2 more": {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26},
	} {
		if got := shardRange(indexes); got != want {
			t.Errorf("%v: %q, want %q", indexes, got, want)
		}
	}
}

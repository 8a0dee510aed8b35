package provider

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const streamGroup = "redisstream_stream_group"

func billing(changes ...attrs) attrs {
	a := attrs{"stream_prefix": "orders", "consumer_group": "billing", "deletion_protection": false}
	for _, c := range changes {
		maps.Copy(a, c)
	}
	return a
}

func setupGroup(t *testing.T) (*core, *fakeCoordinator) {
	t.Helper()
	c, f := setup(t)
	c.must(c.none(shardCount), orders(2))
	return c, f
}

func TestStreamGroupLifecycle(t *testing.T) {
	c, f := setupGroup(t)
	p := c.plan(c.none(streamGroup), billing())
	planned := instance{state: p.state}
	wantField(t, planned, "member_lease", "15s") // known at plan time
	wantField(t, planned, "heartbeat_interval", "3s")
	i, diags := c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "state", "EMPTY")
	wantField(t, i, "group_epoch", "1")
	wantField(t, i, "start_position", "earliest")
	wantField(t, i, "rebalance_timeout", "1m")

	for name, change := range map[string]attrs{
		"member_lease":       {"member_lease": "30s"},
		"heartbeat_interval": {"heartbeat_interval": "2s"},
		"rebalance_timeout":  {"rebalance_timeout": "10s"},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.plan(i, billing(change))
			if p.noop() || p.replace != 0 || fields(t, p.state)["group_epoch"].IsKnown() {
				t.Fatalf("want an update in place with unknown epochs, got %s", p.state)
			}
			f.set(func() { f.groups["orders/billing"].GroupEpoch += 5 }) // a rebalance in between
			after, diags := c.apply(t.Context(), p)
			c.ok(diags)
			if p := c.plan(c.refresh(after), billing(change)); !p.noop() {
				t.Errorf("plan after apply is not empty: %s", p.state)
			}
			i = c.must(after, billing()) // left out again: the default again
			wantField(t, i, "member_lease", "15s")
		})
	}
	t.Run("start_position is for ever", func(t *testing.T) {
		oneError(t, c.plan(i, billing(attrs{"start_position": "latest"})).diags, "start_position", "earliest")
	})
	t.Run("start_position of another group", func(t *testing.T) {
		for _, name := range []any{"others", tftypes.UnknownValue} {
			if p := c.plan(i, billing(attrs{"start_position": "latest", "consumer_group": name})); p.replace != 1 || failed(p.diags) {
				t.Errorf("%v: replaces %d, %q", name, p.replace, errorsOf(p.diags))
			}
		}
		if p := c.plan(i, billing(attrs{"start_position": tftypes.UnknownValue})); p.replace != 0 || failed(p.diags) {
			t.Errorf("replaces %d, %q", p.replace, errorsOf(p.diags))
		}
	})
	t.Run("protected", func(t *testing.T) {
		kept := c.must(i, billing(attrs{"deletion_protection": nil}))
		oneError(t, c.plan(kept, nil).diags, "deletion_protection = false")
		for _, name := range []any{"others", tftypes.UnknownValue} {
			oneError(t, c.plan(kept, billing(attrs{"consumer_group": name, "deletion_protection": nil})).diags, "deletion_protection = false")
		}
		before := len(f.mutations())
		forgotten := c.must(c.must(kept, billing(attrs{"deletion_protection": nil, "skip_destroy": true})), nil)
		if len(f.mutations()) != before || !forgotten.state.IsNull() || f.groups["orders/billing"] == nil {
			t.Errorf("skip_destroy: %d requests, state %s", len(f.mutations())-before, forgotten.state)
		}
		i = c.must(kept, billing())
	})
	t.Run("volatile values", func(t *testing.T) {
		f.set(func() {
			g := f.groups["orders/billing"]
			g.GroupEpoch, g.AssignmentEpoch, g.MetadataVersion, g.State = 99, 98, 97, protocol.GroupReconciling
		})
		i = c.refresh(i)
		wantField(t, i, "group_epoch", "99")
		if p := c.plan(i, billing(attrs{"reason": "why not", "member_lease": "15000ms"})); !p.noop() {
			t.Errorf("plan is not empty: %s", p.state)
		}
	})
	t.Run("force_destroy is local", func(t *testing.T) {
		before := len(f.mutations())
		i = c.must(i, billing(attrs{"force_destroy": true}))
		if len(f.mutations()) != before {
			t.Error("a request was sent")
		}
		i = c.must(i, billing())
	})
	t.Run("live members", func(t *testing.T) {
		f.set(func() { f.groups["orders/billing"].State = protocol.GroupStable })
		after, diags := c.apply(t.Context(), c.plan(i, nil))
		oneError(t, diags, "live members", "force_destroy = true", "2 members")
		if after.state.IsNull() {
			t.Error("state is gone")
		}
		i = c.must(i, billing(attrs{"force_destroy": true}))
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
		last := f.mutations()[len(f.mutations())-1]
		var body protocol.DeleteGroupRequest
		if err := json.Unmarshal([]byte(last.body), &body); err != nil || !body.Force || body.Reason == "" || !strings.HasPrefix(body.RequestedBy, "terraform:") {
			t.Errorf("body %s (%v)", last.body, err)
		}
	})
	t.Run("gone already", func(t *testing.T) {
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
		after, diags := c.read(i)
		c.ok(diags)
		if w := warningsOf(diags); !after.state.IsNull() || len(w) != 1 {
			t.Errorf("read: %s, %q", after.state, w)
		}
	})
}

func TestStreamGroupPlanRules(t *testing.T) {
	c, _ := setupGroup(t)
	for _, tt := range []struct{ lease, interval, wantLease, wantInterval any }{
		{nil, nil, "15s", "3s"},
		{"10s", nil, "10s", "2s"},
		{nil, "1s", "5s", "1s"},
		{"1m", "10s", "1m", "10s"},
		{nil, "150ms", "1s", "150ms"}, // the shortest that there is
		{tftypes.UnknownValue, nil, "unknown", "unknown"},
	} {
		p := c.plan(c.none(streamGroup), billing(attrs{"member_lease": tt.lease, "heartbeat_interval": tt.interval}))
		c.ok(p.diags)
		planned := instance{state: p.state}
		wantField(t, planned, "member_lease", fmt.Sprint(tt.wantLease))
		wantField(t, planned, "heartbeat_interval", fmt.Sprint(tt.wantInterval))
	}
	p := c.plan(c.none(streamGroup), billing(attrs{"member_lease": "10s", "heartbeat_interval": "3s"}))
	oneError(t, p.diags, "member_lease", "10s", "heartbeat_interval", "3s", "5 ×")

	for name, tt := range map[string]struct {
		config attrs
		words  []string
	}{
		"consumer_group":     {attrs{"consumer_group": "a b"}, []string{"consumer_group", "white space"}},
		"stream_prefix":      {attrs{"stream_prefix": "{a}"}, []string{"stream_prefix", "braces"}},
		"start_position":     {attrs{"start_position": "middle"}, []string{"start_position", "earliest, latest"}},
		"member_lease":       {attrs{"member_lease": "11m"}, []string{"member_lease", "10m"}},
		"heartbeat_interval": {attrs{"heartbeat_interval": "soon"}, []string{"heartbeat_interval", "duration"}},
		"rebalance_timeout":  {attrs{"rebalance_timeout": "2h"}, []string{"rebalance_timeout", "1h"}},
	} {
		t.Run(name, func(t *testing.T) { oneError(t, c.validate(streamGroup, billing(tt.config)), tt.words...) })
	}
}

func TestStreamGroupCreate(t *testing.T) {
	c, f := setupGroup(t)
	_, diags := c.apply(t.Context(), c.plan(c.none(streamGroup), billing(attrs{"stream_prefix": "nope"})))
	oneError(t, diags, "stream does not exist", "redisstream_shard_count")

	first := c.must(c.none(streamGroup), billing())
	again := c.must(c.none(streamGroup), billing()) // what a killed apply has left behind
	wantField(t, again, "consumer_group", first.field(t, "consumer_group"))
	before := len(f.mutations())
	p := c.plan(c.none(streamGroup), billing(attrs{"member_lease": "1m"}))
	oneWarning(t, p.diags, "is in the way", "member_lease is 15s, wanted 1m", "terraform import", "orders/billing", "tainted")
	_, diags = c.apply(t.Context(), p)
	oneError(t, diags, "already exists", "member_lease is 15s, wanted 1m", "terraform import", "orders/billing")
	if len(f.mutations()) != before {
		t.Error("it was touched")
	}
}

func TestStreamGroupImport(t *testing.T) {
	c, _ := setupGroup(t)
	full := billing(attrs{"start_position": "latest", "member_lease": "20s", "heartbeat_interval": "4s", "rebalance_timeout": "90s", "reason": "because", "deletion_protection": true})
	c.must(c.none(streamGroup), full)
	i, diags := c.importID(streamGroup, "orders/billing")
	c.ok(diags)
	if p := c.plan(i, full); !p.noop() {
		t.Errorf("plan after import is not empty:\n%s\n%s", p.state, i.state)
	}
	for id, words := range map[string][]string{
		"orders":         {"0 slashes", "<stream_prefix>/<consumer_group>"},
		"orders/":        {"consumer_group", "blank"},
		"/billing":       {"stream_prefix", "blank"},
		"orders/bill/x":  {"2 slashes"},
		"orders/bill x":  {"consumer_group", "white space"},
		"{orders}/group": {"stream_prefix", "braces"},
	} {
		t.Run(id, func(t *testing.T) {
			_, diags := c.importID(streamGroup, id)
			oneError(t, diags, words...)
		})
	}
	for _, id := range []string{"orders/nope", "nope/billing", "orders%2Fbilling/x", "Orders/billing"} {
		gone, diags := c.importID(streamGroup, id)
		c.ok(diags)
		if !gone.state.IsNull() {
			t.Errorf("import of %q made a state: %s", id, gone.state)
		}
	}
}

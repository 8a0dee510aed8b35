package provider

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// create applies a plan as Terraform from 1.12 on does it, and gives the identity of the result.
func (c *core) identityAfterApply(prior instance, config attrs) (instance, *tfprotov6.ResourceIdentityData) {
	c.t.Helper()
	p := c.plan(prior, config)
	c.ok(p.diags)
	typ := c.typ(prior.kind)
	resp, err := c.server.ApplyResourceChange(c.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: prior.kind, PriorState: c.pack(typ, prior.state), PlannedState: c.pack(typ, p.state), Config: c.pack(typ, p.config), PlannedPrivate: p.private,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.ok(resp.Diagnostics)
	return instance{kind: prior.kind, state: c.unpack(typ, resp.NewState), private: resp.Private}, resp.NewIdentity
}

func TestResourceIdentity(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newCore(t, attrs{"endpoint": f.URL})
	for _, tt := range []struct {
		kind           string
		config, change attrs
		want           map[string]string
	}{
		{shardCount, orders(2), orders(3), map[string]string{"stream_prefix": "orders"}},
		{streamGroup, billing(), billing(attrs{"rebalance_timeout": "10s"}), map[string]string{"stream_prefix": "orders", "consumer_group": "billing"}},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			typ := c.identityType(tt.kind)
			want := func(step string, got *tfprotov6.ResourceIdentityData) {
				t.Helper()
				if got == nil {
					t.Fatalf("%s: no identity", step)
				}
				for name, w := range tt.want {
					if v := textOf(t, c.unpack(typ, got.IdentityData), name); v != w {
						t.Errorf("%s: %s is %s, want %s", step, name, v, w)
					}
				}
			}
			i, id := c.identityAfterApply(c.none(tt.kind), tt.config)
			want("create", id)
			i, id = c.identityAfterApply(i, tt.change)
			want("update", id)
			read, err := c.server.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{TypeName: tt.kind, CurrentState: c.pack(c.typ(tt.kind), i.state), CurrentIdentity: id})
			if err != nil {
				t.Fatal(err)
			}
			c.ok(read.Diagnostics)
			want("read", read.NewIdentity)

			values := map[string]tftypes.Value{}
			for name, v := range tt.want {
				values[name] = tftypes.NewValue(tftypes.String, v)
			}
			imported, err := c.server.ImportResourceState(t.Context(), &tfprotov6.ImportResourceStateRequest{
				TypeName: tt.kind, Identity: &tfprotov6.ResourceIdentityData{IdentityData: c.pack(typ, tftypes.NewValue(typ, values))},
			})
			if err != nil {
				t.Fatal(err)
			}
			c.ok(imported.Diagnostics)
			got := c.unpack(c.typ(tt.kind), imported.ImportedResources[0].State)
			for name, w := range tt.want {
				if v := textOf(t, got, name); v != w {
					t.Errorf("import: %s is %s, want %s", name, v, w)
				}
			}
		})
	}
}

func TestListResources(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	c.must(c.none(shardCount), orders(1, attrs{"stream_prefix": "invoices"}))
	o.set(func() {
		o.groups["others/billing"] = &protocol.Group{StreamPrefix: "others", ConsumerGroup: "billing", State: protocol.GroupStable, Ready: true}
	})

	before := o.reads("/streams/orders", "/streams/invoices")
	all := c.list(shardCount, attrs{}, 0, true)
	if n := o.reads("/streams/orders", "/streams/invoices") - before; n != 0 {
		t.Errorf("%d requests for streams that had been listed as a whole", n)
	}
	if len(all) != 2 || all[0].display != "invoices" || all[1].display != "orders" {
		for _, l := range all {
			t.Errorf("%q %q", l.display, errorsOf(l.diags))
		}
		t.FailNow()
	}
	if v := textOf(t, all[1].identity, "stream_prefix"); v != "orders" {
		t.Errorf("identity of orders: %s", v)
	}
	for _, l := range all {
		c.ok(l.diags)
	}
	wantField(t, all[1].state, "shard_count", "2")
	wantField(t, all[1].state, "pause_timeout", "1m30s")
	wantField(t, all[1].state, "deletion_protection", "true") // as after any import
	if some := c.list(shardCount, attrs{"starts_with": "or"}, 0, false); len(some) != 1 || some[0].display != "orders" {
		t.Errorf("streams that start with or: %+v", some)
	}
	if some := c.list(shardCount, attrs{}, 1, false); len(some) != 1 {
		t.Errorf("%d streams with a limit of 1", len(some))
	}

	before = o.reads("/streams/orders/groups/billing")
	groups := c.list(streamGroup, attrs{"stream_prefix": "orders"}, 0, true)
	if n := o.reads("/streams/orders/groups/billing") - before; n != 0 {
		t.Errorf("%d requests for a group that had been listed as a whole", n)
	}
	if len(groups) != 1 || groups[0].display != "orders/billing" {
		t.Fatalf("groups: %+v", groups)
	}
	c.ok(groups[0].diags)
	wantField(t, groups[0].state, "member_lease", "15s")
	if v := textOf(t, groups[0].identity, "consumer_group"); v != "billing" {
		t.Errorf("identity: %s", v)
	}
	if groups := c.list(streamGroup, attrs{}, 0, false); len(groups) != 2 {
		t.Errorf("groups of all streams: %+v", groups)
	}

	o.set(func() { o.intercept = bad(403, "application/json", `{"errorCode":"FORBIDDEN","message":"viewer"}`) })
	for _, kind := range []string{shardCount, streamGroup} {
		if all := c.list(kind, attrs{}, 0, false); len(all) != 1 {
			t.Errorf("%s: %+v", kind, all)
		} else {
			oneError(t, all[0].diags, "Permission denied")
		}
	}
}

// reads counts the requests for these paths so far.
func (f *fakeCoordinator) reads(paths ...string) (n int) {
	f.set(func() {
		for _, r := range f.requests {
			if r.method == http.MethodGet && slices.Contains(paths, strings.TrimPrefix(r.path, "/coord/v1")) {
				n++
			}
		}
	})
	return n
}

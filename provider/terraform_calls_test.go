package provider

import (
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Terraform's calls for everything that is no resource; see core.

// readData reads a data source.
func (c *core) readData(kind string, config attrs) (instance, []*tfprotov6.Diagnostic) {
	c.t.Helper()
	typ := c.schema.DataSourceSchemas[kind].ValueType()
	cfg := c.pack(typ, object(typ, config))
	checked, err := c.server.ValidateDataResourceConfig(c.t.Context(), &tfprotov6.ValidateDataResourceConfigRequest{TypeName: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	if failed(checked.Diagnostics) {
		return instance{}, checked.Diagnostics
	}
	resp, err := c.server.ReadDataSource(c.t.Context(), &tfprotov6.ReadDataSourceRequest{TypeName: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	i := instance{kind: kind, state: c.unpack(typ, resp.State)}
	if !failed(resp.Diagnostics) && !i.state.IsFullyKnown() {
		c.t.Errorf("%s has unknown values: %s", kind, i.state)
	}
	return i, resp.Diagnostics
}

// call calls a function.
func (c *core) call(name string, arguments ...tftypes.Value) (tftypes.Value, *tfprotov6.FunctionError) {
	c.t.Helper()
	var packed []*tfprotov6.DynamicValue
	for _, a := range arguments {
		packed = append(packed, c.pack(a.Type(), a))
	}
	resp, err := c.server.CallFunction(c.t.Context(), &tfprotov6.CallFunctionRequest{Name: name, Arguments: packed})
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.Error != nil {
		return tftypes.Value{}, resp.Error
	}
	return c.unpack(c.schema.Functions[name].Return.Type, resp.Result), nil
}

// opened is an ephemeral resource that is open.
type opened struct {
	instance
	renewAt time.Time
}

func (c *core) open(kind string, config attrs) (opened, []*tfprotov6.Diagnostic) {
	c.t.Helper()
	typ := c.schema.EphemeralResourceSchemas[kind].ValueType()
	cfg := c.pack(typ, object(typ, config))
	checked, err := c.server.ValidateEphemeralResourceConfig(c.t.Context(), &tfprotov6.ValidateEphemeralResourceConfigRequest{TypeName: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	if failed(checked.Diagnostics) {
		return opened{}, checked.Diagnostics
	}
	resp, err := c.server.OpenEphemeralResource(c.t.Context(), &tfprotov6.OpenEphemeralResourceRequest{TypeName: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	return opened{instance{kind: kind, state: c.unpack(typ, resp.Result), private: resp.Private}, resp.RenewAt}, resp.Diagnostics
}

func (c *core) renew(o opened) (opened, []*tfprotov6.Diagnostic) {
	c.t.Helper()
	resp, err := c.server.RenewEphemeralResource(c.t.Context(), &tfprotov6.RenewEphemeralResourceRequest{TypeName: o.kind, Private: o.private})
	if err != nil {
		c.t.Fatal(err)
	}
	o.private, o.renewAt = resp.Private, resp.RenewAt
	return o, resp.Diagnostics
}

func (c *core) close(o opened) []*tfprotov6.Diagnostic {
	c.t.Helper()
	resp, err := c.server.CloseEphemeralResource(c.t.Context(), &tfprotov6.CloseEphemeralResourceRequest{TypeName: o.kind, Private: o.private})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Diagnostics
}

// invoke validates, plans and invokes an action, as far as there are no errors, and returns what
// it said meanwhile.
func (c *core) invoke(kind string, config attrs) (progress []string, diags []*tfprotov6.Diagnostic) {
	c.t.Helper()
	typ := c.schema.ActionSchemas[kind].Schema.ValueType()
	cfg := c.pack(typ, object(typ, config))
	actions := c.server.(tfprotov6.ProviderServerWithActions) //nolint:staticcheck // the framework serves actions; there is no other interface yet
	checked, err := actions.ValidateActionConfig(c.t.Context(), &tfprotov6.ValidateActionConfigRequest{ActionType: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	if failed(checked.Diagnostics) {
		return nil, checked.Diagnostics
	}
	plan, err := actions.PlanAction(c.t.Context(), &tfprotov6.PlanActionRequest{ActionType: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	if failed(plan.Diagnostics) {
		return nil, plan.Diagnostics
	}
	stream, err := actions.InvokeAction(c.t.Context(), &tfprotov6.InvokeActionRequest{ActionType: kind, Config: cfg})
	if err != nil {
		c.t.Fatal(err)
	}
	for e := range stream.Events {
		switch e := e.Type.(type) {
		case tfprotov6.ProgressInvokeActionEventType:
			progress = append(progress, e.Message)
		case tfprotov6.CompletedInvokeActionEventType:
			diags = append(plan.Diagnostics, e.Diagnostics...)
		}
	}
	return progress, diags
}

// listed is one result of a list resource.
type listed struct {
	display  string
	identity tftypes.Value
	state    instance
	diags    []*tfprotov6.Diagnostic
}

func (c *core) list(kind string, config attrs, limit int64, whole bool) []listed {
	c.t.Helper()
	typ := c.schema.ListResourceSchemas[kind].ValueType()
	stream, err := c.server.(tfprotov6.ProviderServerWithListResource).ListResource( //nolint:staticcheck // as above
		c.t.Context(), &tfprotov6.ListResourceRequest{
			TypeName: kind, Config: c.pack(typ, object(typ, config)), Limit: limit, IncludeResource: whole,
		})
	if err != nil {
		c.t.Fatal(err)
	}
	var all []listed
	for r := range stream.Results {
		l := listed{display: r.DisplayName, diags: r.Diagnostics}
		if r.Identity != nil {
			l.identity = c.unpack(c.identityType(kind), r.Identity.IdentityData)
		}
		if whole && r.Resource != nil {
			l.state = instance{kind: kind, state: c.unpack(c.typ(kind), r.Resource)}
		}
		all = append(all, l)
	}
	return all
}

func (c *core) identityType(kind string) tftypes.Type {
	c.t.Helper()
	resp, err := c.server.GetResourceIdentitySchemas(c.t.Context(), &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.IdentitySchemas[kind].ValueType()
}

// str and num make arguments of functions.
func str(s string) tftypes.Value { return tftypes.NewValue(tftypes.String, s) }

func num(n any) tftypes.Value { return tftypes.NewValue(tftypes.Number, n) }

// textOf gives a value of an identity or a list element as text.
func textOf(t *testing.T, v tftypes.Value, name string) string {
	t.Helper()
	return instance{state: v}.field(t, name)
}

package provider

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// core plays Terraform's part of the provider protocol, without the process: a plan and an
// apply take a millisecond, and a test sees exactly what Terraform would store.
type core struct {
	config attrs // of the provider; as it was configured last; nil: not yet
	t      *testing.T
	server tfprotov6.ProviderServer
	schema *tfprotov6.GetProviderSchemaResponse
}

// instance is a resource as Terraform stores it.
type instance struct {
	kind    string
	state   tftypes.Value
	private []byte
}

// attrs are the arguments of a configuration block; what is left out is null.
type attrs map[string]any

func newCore(t *testing.T, config attrs) *core {
	t.Helper()
	c := newCoreOf(t, &redisstreamProvider{version: "test", retries: 2})
	c.ok(c.configure(config))
	return c
}

// newCoreOf starts a provider and does not configure it.
func newCoreOf(t *testing.T, p provider.Provider) *core {
	t.Helper()
	c := &core{t: t, server: providerserver.NewProtocol6(p)()}
	var err error
	if c.schema, err = c.server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{}); err != nil {
		t.Fatal(err)
	}
	c.ok(c.schema.Diagnostics)
	return c
}

func (c *core) configure(config attrs) []*tfprotov6.Diagnostic {
	c.t.Helper()
	typ := c.schema.Provider.ValueType()
	resp, err := c.server.ConfigureProvider(c.t.Context(), &tfprotov6.ConfigureProviderRequest{
		TerraformVersion: "1.11.4", Config: c.pack(typ, object(typ, config)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.config = config
	return resp.Diagnostics
}

func (c *core) validateProvider(config attrs) []*tfprotov6.Diagnostic {
	c.t.Helper()
	typ := c.schema.Provider.ValueType()
	resp, err := c.server.ValidateProviderConfig(c.t.Context(), &tfprotov6.ValidateProviderConfigRequest{Config: c.pack(typ, object(typ, config))})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Diagnostics
}

func (c *core) typ(kind string) tftypes.Object {
	return c.schema.ResourceSchemas[kind].ValueType().(tftypes.Object) // a resource is an object
}

func (c *core) pack(typ tftypes.Type, v tftypes.Value) *tfprotov6.DynamicValue {
	c.t.Helper()
	d, err := tfprotov6.NewDynamicValue(typ, v)
	if err != nil {
		c.t.Fatal(err)
	}
	return &d
}

func (c *core) unpack(typ tftypes.Type, d *tfprotov6.DynamicValue) tftypes.Value {
	c.t.Helper()
	if d == nil {
		return tftypes.NewValue(typ, nil)
	}
	v, err := d.Unmarshal(typ)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *core) ok(diags []*tfprotov6.Diagnostic) {
	c.t.Helper()
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			c.t.Fatalf("unexpected error: %s: %s", d.Summary, d.Detail)
		}
	}
}

func (c *core) validate(kind string, config attrs) []*tfprotov6.Diagnostic {
	c.t.Helper()
	resp, err := c.server.ValidateResourceConfig(c.t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: kind, Config: c.pack(c.typ(kind), object(c.typ(kind), config)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Diagnostics
}

// none is the prior instance of a resource that is to be created.
func (c *core) none(kind string) instance {
	return instance{kind: kind, state: tftypes.NewValue(c.typ(kind), nil)}
}

// planned is the answer to a plan.
type planned struct {
	prior   instance
	config  tftypes.Value
	state   tftypes.Value
	private []byte
	replace int
	diags   []*tfprotov6.Diagnostic
}

// noop says whether nothing is to be done.
func (p planned) noop() bool { return p.state.Equal(p.prior.state) }

// plan proposes what Terraform proposes: the configuration, and for computed attributes that
// are not configured, the prior value.
func (c *core) plan(prior instance, config attrs) planned {
	c.t.Helper()
	if c.config != nil { // a plan begins another run of Terraform, with a provider of its own
		c.ok(c.configure(c.config))
	}
	typ := c.typ(prior.kind)
	cfg := object(typ, config)
	proposed := cfg
	if config == nil {
		cfg = tftypes.NewValue(typ, nil)
		proposed = cfg
	} else if !prior.state.IsNull() {
		before, after := fields(c.t, prior.state), fields(c.t, cfg)
		for _, a := range c.schema.ResourceSchemas[prior.kind].Block.Attributes {
			if a.Computed && after[a.Name].IsNull() {
				after[a.Name] = before[a.Name]
			}
		}
		proposed = tftypes.NewValue(typ, after)
	}
	resp, err := c.server.PlanResourceChange(c.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: prior.kind, PriorState: c.pack(typ, prior.state), ProposedNewState: c.pack(typ, proposed),
		Config: c.pack(typ, cfg), PriorPrivate: prior.private,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	p := planned{prior: prior, config: cfg, state: c.unpack(typ, resp.PlannedState), private: resp.PlannedPrivate, replace: len(resp.RequiresReplace), diags: resp.Diagnostics}
	return p
}

// apply carries a plan out and checks, as Terraform does, that the result is what was planned.
func (c *core) apply(ctx context.Context, p planned) (instance, []*tfprotov6.Diagnostic) {
	c.t.Helper()
	c.ok(p.diags)
	typ := c.typ(p.prior.kind)
	resp, err := c.server.ApplyResourceChange(ctx, &tfprotov6.ApplyResourceChangeRequest{
		TypeName: p.prior.kind, PriorState: c.pack(typ, p.prior.state), PlannedState: c.pack(typ, p.state),
		Config: c.pack(typ, p.config), PlannedPrivate: p.private,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	after := instance{kind: p.prior.kind, state: c.unpack(typ, resp.NewState), private: resp.Private}
	if !after.state.IsFullyKnown() {
		c.t.Errorf("state after apply has unknown values: %s", after.state)
	}
	if !failed(resp.Diagnostics) && !p.state.IsNull() {
		want, got := fields(c.t, p.state), fields(c.t, after.state)
		for name, v := range want {
			if v.IsFullyKnown() && !v.Equal(got[name]) {
				c.t.Errorf("inconsistent result after apply: %s is %s, was planned as %s", name, got[name], v)
			}
		}
	}
	return after, resp.Diagnostics
}

// must plans and applies, and wants no error.
func (c *core) must(prior instance, config attrs) instance {
	c.t.Helper()
	after, diags := c.apply(c.t.Context(), c.plan(prior, config))
	c.ok(diags)
	return after
}

func (c *core) read(i instance) (instance, []*tfprotov6.Diagnostic) {
	c.t.Helper()
	resp, err := c.server.ReadResource(c.t.Context(), &tfprotov6.ReadResourceRequest{
		TypeName: i.kind, CurrentState: c.pack(c.typ(i.kind), i.state), Private: i.private,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return instance{kind: i.kind, state: c.unpack(c.typ(i.kind), resp.NewState), private: resp.Private}, resp.Diagnostics
}

// refresh reads and wants no error.
func (c *core) refresh(i instance) instance {
	c.t.Helper()
	after, diags := c.read(i)
	c.ok(diags)
	return after
}

// importID imports and reads.
func (c *core) importID(kind, id string) (instance, []*tfprotov6.Diagnostic) {
	c.t.Helper()
	resp, err := c.server.ImportResourceState(c.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: kind, ID: id})
	if err != nil {
		c.t.Fatal(err)
	}
	if failed(resp.Diagnostics) {
		return instance{}, resp.Diagnostics
	}
	in := resp.ImportedResources[0]
	return c.read(instance{kind: kind, state: c.unpack(c.typ(kind), in.State), private: in.Private})
}

func failed(diags []*tfprotov6.Diagnostic) bool { return len(errorsOf(diags)) > 0 }

// errorsOf gives the errors as "summary: detail".
func errorsOf(diags []*tfprotov6.Diagnostic) []string {
	return ofSeverity(diags, tfprotov6.DiagnosticSeverityError)
}

func warningsOf(diags []*tfprotov6.Diagnostic) []string {
	return ofSeverity(diags, tfprotov6.DiagnosticSeverityWarning)
}

func ofSeverity(diags []*tfprotov6.Diagnostic, s tfprotov6.DiagnosticSeverity) []string {
	var out []string
	for _, d := range diags {
		if d.Severity == s {
			out = append(out, d.Summary+": "+d.Detail)
		}
	}
	return out
}

// oneError wants exactly one error, which has all of the words.
func oneError(t *testing.T, diags []*tfprotov6.Diagnostic, words ...string) {
	t.Helper()
	errs := errorsOf(diags)
	if len(errs) != 1 {
		t.Fatalf("got %d errors, want one: %q", len(errs), errs)
	}
	for _, w := range words {
		if !strings.Contains(errs[0], w) {
			t.Errorf("error does not say %q: %s", w, errs[0])
		}
	}
}

// oneWarning requires no error, and one warning that has all words.
func oneWarning(t *testing.T, diags []*tfprotov6.Diagnostic, words ...string) {
	t.Helper()
	warnings := warningsOf(diags)
	if len(warnings) != 1 || failed(diags) {
		t.Fatalf("got %q and %d warnings, want one: %q", errorsOf(diags), len(warnings), warnings)
	}
	for _, w := range words {
		if !strings.Contains(warnings[0], w) {
			t.Errorf("warning does not say %q: %s", w, warnings[0])
		}
	}
}

// object makes a value of an object type; a nil entry or a missing one is null.
func object(typ tftypes.Type, a attrs) tftypes.Value {
	obj := typ.(tftypes.Object) // only called for objects
	values := map[string]tftypes.Value{}
	for name, t := range obj.AttributeTypes {
		values[name] = value(t, a[name])
	}
	for name := range a {
		if _, ok := values[name]; !ok {
			panic(fmt.Sprintf("no attribute %q", name))
		}
	}
	return tftypes.NewValue(typ, values)
}

func value(t tftypes.Type, v any) tftypes.Value {
	switch v := v.(type) {
	case nil:
		return tftypes.NewValue(t, nil)
	case int:
		return tftypes.NewValue(t, new(big.Float).SetInt64(int64(v)))
	case attrs:
		return object(t, v)
	case tftypes.Value:
		return v
	case []string:
		var elems []tftypes.Value
		for _, s := range v {
			elems = append(elems, tftypes.NewValue(tftypes.String, s))
		}
		return tftypes.NewValue(t, elems)
	default:
		return tftypes.NewValue(t, v) // string, bool, tftypes.UnknownValue
	}
}

func fields(t *testing.T, v tftypes.Value) map[string]tftypes.Value {
	t.Helper()
	m := map[string]tftypes.Value{}
	if err := v.As(&m); err != nil {
		t.Fatal(err)
	}
	return maps.Clone(m) // As hands out the value's own
}

// field gives one attribute of a state as text: a path such as last_resharding.id.
func (i instance) field(t *testing.T, name string) string {
	t.Helper()
	v := i.state
	for step := range strings.SplitSeq(name, ".") {
		v = fields(t, v)[step]
	}
	return text(t, v)
}

func text(t *testing.T, v tftypes.Value) string {
	t.Helper()
	switch {
	case v.IsNull():
		return "null"
	case !v.IsKnown():
		return "unknown"
	case v.Type().Is(tftypes.String):
		var s string
		if err := v.As(&s); err != nil {
			t.Fatal(err)
		}
		return s
	case v.Type().Is(tftypes.Number):
		var n big.Float
		if err := v.As(&n); err != nil {
			t.Fatal(err)
		}
		return n.Text('f', -1)
	case v.Type().Is(tftypes.Bool):
		var b bool
		if err := v.As(&b); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(b)
	}
	return v.String()
}

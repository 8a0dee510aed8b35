package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/attr/xattr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

var (
	_ basetypes.StringTypable                    = durationType{}
	_ basetypes.StringValuableWithSemanticEquals = durationValue{}
	_ xattr.ValidateableAttribute                = durationValue{}
	_ validator.String                           = durationBetween{}
)

// durationType is the type of attributes such as "5m": Go's notation of a duration. Two ways
// to write the same duration are equal, so that "300s" is no drift from "5m".
type durationType struct{ basetypes.StringType }

func (t durationType) Equal(o attr.Type) bool {
	other, ok := o.(durationType)
	return ok && t.StringType.Equal(other.StringType)
}

func (durationType) String() string { return "duration" }

func (durationType) ValueFromString(_ context.Context, in basetypes.StringValue) (basetypes.StringValuable, diag.Diagnostics) {
	return durationValue{in}, nil
}

func (t durationType) ValueFromTerraform(ctx context.Context, in tftypes.Value) (attr.Value, error) {
	v, err := t.StringType.ValueFromTerraform(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("read duration: %w", err)
	}
	s, ok := v.(basetypes.StringValue)
	if !ok {
		return nil, fmt.Errorf("read duration: unexpected value type %T", v)
	}
	return durationValue{s}, nil
}

func (durationType) ValueType(context.Context) attr.Value { return durationValue{} }

// durationValue is a duration, null or unknown.
type durationValue struct{ basetypes.StringValue }

// durationOfMs writes milliseconds in the shortest form: 5m, 1h30m, 1.5s.
func durationOfMs(ms int64) durationValue {
	return durationValue{basetypes.NewStringValue(formatDuration(time.Duration(ms) * time.Millisecond))}
}

func (v durationValue) Type(context.Context) attr.Type { return durationType{} }

func (v durationValue) Equal(o attr.Value) bool {
	other, ok := o.(durationValue)
	return ok && v.StringValue.Equal(other.StringValue)
}

// StringSemanticEquals says whether both are the same length of time.
func (v durationValue) StringSemanticEquals(_ context.Context, o basetypes.StringValuable) (bool, diag.Diagnostics) {
	other, ok := o.(durationValue)
	return ok && v.same(other), nil
}

func (v durationValue) same(o durationValue) bool {
	a, errA := time.ParseDuration(v.ValueString())
	b, errB := time.ParseDuration(o.ValueString())
	return errA == nil && errB == nil && a == b
}

// known says whether it has a value.
func (v durationValue) known() bool { return !v.IsNull() && !v.IsUnknown() }

// ms is the duration in milliseconds, 0 while it is null or unknown. Validation has made sure
// that it parses.
func (v durationValue) ms() int64 {
	d, err := time.ParseDuration(v.ValueString())
	if err != nil {
		return 0
	}
	return d.Milliseconds()
}

// ValidateAttribute refuses what is not a duration, at plan time.
func (v durationValue) ValidateAttribute(_ context.Context, req xattr.ValidateAttributeRequest, resp *xattr.ValidateAttributeResponse) {
	if !v.known() {
		return
	}
	d, err := time.ParseDuration(v.ValueString())
	switch {
	case err != nil:
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
			"%s: %q is not a duration; write a number and a unit (ms, s, m, h), such as \"30s\", \"5m\" or \"1h30m\"", req.Path, v.ValueString()))
	case d%time.Millisecond != 0:
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
			"%s: %q is finer than a millisecond", req.Path, v.ValueString()))
	}
}

// formatDuration drops the zero parts that time.Duration's own form keeps: 5m0s is 5m.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// durationBetween bounds a duration, both ends included.
type durationBetween struct{ least, most time.Duration }

func (v durationBetween) Description(context.Context) string {
	return fmt.Sprintf("a duration between %s and %s", formatDuration(v.least), formatDuration(v.most))
}

func (v durationBetween) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (v durationBetween) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	d, err := time.ParseDuration(req.ConfigValue.ValueString())
	if err == nil && (d < v.least || d > v.most) { // the type itself reports what does not parse
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid "+req.Path.String(), fmt.Sprintf(
			"%s: is %s; it must be between %s and %s", req.Path, req.ConfigValue.ValueString(), formatDuration(v.least), formatDuration(v.most)))
	}
}

// checkTimeouts refuses times in which nothing can be done; that they are durations at all, the
// type of timeouts checks.
func checkTimeouts(t timeouts.Value, diags *diag.Diagnostics) {
	for operation, v := range t.Attributes() {
		text, ok := v.(basetypes.StringValue)
		if !ok || !declared(text) {
			continue
		}
		if d, err := time.ParseDuration(text.ValueString()); err == nil && d <= 0 {
			at := path.Root("timeouts").AtName(operation)
			diags.AddAttributeError(at, "Invalid "+at.String(), fmt.Sprintf(
				"%s: is %q; it must be longer than nothing, such as \"10m\". Leave it out for the default", at, text.ValueString()))
		}
	}
}

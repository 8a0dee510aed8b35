package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// retentionModel is the retention block of a stream. No block is the policy "none".
type retentionModel struct {
	Policy types.String  `tfsdk:"policy"`
	MaxAge durationValue `tfsdk:"max_age"`
	MaxLen countValue    `tfsdk:"max_len"`
}

var retentionType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"policy": types.StringType, "max_age": durationType{}, "max_len": countType{},
}}

func retentionAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "What the coordinator removes from the shards, and when. Default: nothing is removed, ever. " +
			"Entries that go before a consumer group has acknowledged them are counted, in the coordinator's metrics, its monitoring and the evidence of every drain.",
		Attributes: map[string]schema.Attribute{
			"policy": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "`none`; `acked` removes what every Redis consumer group of the shard has acknowledged, and nothing else; " +
					"`max_age` and `max_len` remove what is older than `max_age`, or more than `max_len` entries in a shard, **whether it was delivered or not**.",
				Validators: []validator.String{choice{"none", "acked", "max_age", "max_len"}},
			},
			"max_age": schema.StringAttribute{
				CustomType: durationType{}, Optional: true,
				MarkdownDescription: "Age from which an entry is removed, by the time in its id, as a duration such as `\"72h\"`; at least 1s. Needed by `max_age` and by nothing else.",
				Validators:          []validator.String{durationBetween{time.Second, 100 * 365 * 24 * time.Hour}},
			},
			"max_len": schema.Int64Attribute{
				CustomType: countType{}, Optional: true,
				MarkdownDescription: "Entries that each shard keeps at most; at least 1. Needed by `max_len` and by nothing else.",
				Validators:          []validator.Int64{int64validator.AtLeast(1)},
			},
		},
	}
}

// retention is what a block declares; known is false while a part of it is known only after
// apply.
func retention(ctx context.Context, block types.Object, diags *diag.Diagnostics) (r protocol.Retention, known bool) {
	if block.IsUnknown() {
		return r, false
	}
	if block.IsNull() {
		return protocol.Retention{Policy: protocol.RetentionNone}, true
	}
	var m retentionModel
	diags.Append(block.As(ctx, &m, basetypes.ObjectAsOptions{})...)
	if m.Policy.IsUnknown() || m.MaxAge.IsUnknown() || m.MaxLen.IsUnknown() {
		return r, false
	}
	return protocol.Retention{
		Policy: protocol.RetentionPolicy(strings.ToUpper(m.Policy.ValueString())), MaxAgeMs: m.MaxAge.ms(), MaxLen: m.MaxLen.ValueInt64(),
	}, true
}

// checkRetention refuses numbers that do not belong to the policy, and a policy without its number.
func checkRetention(ctx context.Context, block types.Object, diags *diag.Diagnostics) {
	if block.IsNull() || block.IsUnknown() {
		return
	}
	var m retentionModel
	diags.Append(block.As(ctx, &m, basetypes.ObjectAsOptions{})...)
	if diags.HasError() || m.Policy.IsUnknown() {
		return
	}
	for _, arg := range []struct {
		name string
		set  bool
		open bool // known only after apply
	}{{"max_age", !m.MaxAge.IsNull(), m.MaxAge.IsUnknown()}, {"max_len", !m.MaxLen.IsNull(), m.MaxLen.IsUnknown()}} {
		at := path.Root("retention").AtName(arg.name)
		switch belongs := m.Policy.ValueString() == arg.name; {
		case arg.open:
		case belongs && !arg.set:
			diags.AddAttributeError(at, "Missing "+at.String(), fmt.Sprintf("%s: is needed by policy = %q", at, arg.name))
		case !belongs && arg.set:
			diags.AddAttributeError(at, "Invalid "+at.String(), fmt.Sprintf(
				"%s: has no effect on policy = %q; leave it out, or set policy = %q", at, m.Policy.ValueString(), arg.name))
		}
	}
}

// observedRetention is the block that stands for what the coordinator reports. A block that says
// the same in another way is kept as it is.
func observedRetention(ctx context.Context, mine types.Object, r protocol.Retention) types.Object {
	if r.Policy == "" {
		r.Policy = protocol.RetentionNone
	}
	var ignored diag.Diagnostics
	if declared, known := retention(ctx, mine, &ignored); known && declared == r {
		return mine
	}
	if r.Policy == protocol.RetentionNone {
		return types.ObjectNull(retentionType.AttrTypes)
	}
	age, most := durationValue{basetypes.NewStringNull()}, countValue{Int64Value: basetypes.NewInt64Null()}
	if r.MaxAgeMs != 0 {
		age = durationOfMs(r.MaxAgeMs)
	}
	if r.MaxLen != 0 {
		most = countValue{Int64Value: basetypes.NewInt64Value(r.MaxLen)}
	}
	return types.ObjectValueMust(retentionType.AttrTypes, map[string]attr.Value{
		"policy": types.StringValue(lower(r.Policy)), "max_age": age, "max_len": most,
	})
}

// retentionText is a policy in the words of the configuration.
func retentionText(r protocol.Retention) string {
	switch r.Policy {
	case protocol.RetentionMaxAge:
		return "max_age " + durationOfMs(r.MaxAgeMs).ValueString()
	case protocol.RetentionMaxLen:
		return fmt.Sprintf("max_len %d", r.MaxLen)
	case "":
		return "none"
	default:
		return lower(r.Policy)
	}
}

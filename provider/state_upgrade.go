package provider

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// schemaVersion of both resources. Version 0, of release 0.1.0, had no skip_destroy, no retention,
// no certificate of a resharding, and no deletion_protection of a group; it had the phases of a
// resharding, which are in the data source redisstream_resharding now.
const schemaVersion = 1

// upgradeFrom0 reads a state of version 0 by the present schema: attributes that are no more are
// dropped, those that are new become null, and defaults fills the ones that are never null.
func upgradeFrom0(schema resourceSchema, defaults map[string]tftypes.Value) map[int64]resource.StateUpgrader {
	return map[int64]resource.StateUpgrader{0: {
		StateUpgrader: func(ctx context.Context, req resource.UpgradeStateRequest, resp *resource.UpgradeStateResponse) {
			typ := schema(ctx)
			was, err := req.RawState.UnmarshalWithOpts(typ, tfprotov6.UnmarshalOpts{ValueFromJSONOpts: tftypes.ValueFromJSONOpts{IgnoreUndefinedAttributes: true}})
			if err != nil {
				resp.Diagnostics.AddError("State of an earlier version is unreadable", err.Error())
				return
			}
			var attributes map[string]tftypes.Value
			if err := was.As(&attributes); err != nil {
				resp.Diagnostics.AddError("State of an earlier version is unreadable", err.Error())
				return
			}
			attributes = maps.Clone(attributes)
			for name, value := range defaults {
				if attributes[name].IsNull() {
					attributes[name] = value
				}
			}
			now, err := tfprotov6.NewDynamicValue(typ, tftypes.NewValue(typ, attributes))
			if err != nil {
				resp.Diagnostics.AddError("State of an earlier version is unreadable", err.Error())
				return
			}
			resp.DynamicValue = &now
		},
	}}
}

// resourceSchema gives the type of a resource's state.
type resourceSchema func(context.Context) tftypes.Type

// stateType is the type of the state of r.
func stateType(r resource.Resource) resourceSchema {
	return func(ctx context.Context) tftypes.Type {
		var resp resource.SchemaResponse
		r.Schema(ctx, resource.SchemaRequest{}, &resp)
		return resp.Schema.Type().TerraformType(ctx)
	}
}

// UpgradeState knows every earlier version of the state.
func (r *shardCountResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return upgradeFrom0(stateType(r), map[string]tftypes.Value{"skip_destroy": tftypes.NewValue(tftypes.Bool, false)})
}

// UpgradeState knows every earlier version of the state.
func (r *streamGroupResource) UpgradeState(context.Context) map[int64]resource.StateUpgrader {
	return upgradeFrom0(stateType(r), map[string]tftypes.Value{
		"skip_destroy": tftypes.NewValue(tftypes.Bool, false), "deletion_protection": tftypes.NewValue(tftypes.Bool, true),
	})
}

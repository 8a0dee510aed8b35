package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// What both resources have of Terraform's own, which the coordinator does not know: arguments, what
// they do to a destroy, and their values after an import. thing is what is destroyed.

func deletionProtection(thing string) schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true, Computed: true, Default: booldefault.StaticBool(true),
		MarkdownDescription: "Whether destroying the " + thing + " is refused. Default `true`, also after an import: to destroy, set it to `false` and apply first. " +
			"It is Terraform's own and not known to the coordinator.",
	}
}

func skipDestroy(thing string) schema.BoolAttribute {
	return schema.BoolAttribute{
		Optional: true, Computed: true, Default: booldefault.StaticBool(false),
		MarkdownDescription: "Whether destroying only forgets: Terraform lets go of the " + thing + ", and the coordinator is not told anything. Default `false`. " +
			"It must be applied before the destroy. `deletion_protection` does not stand in its way, since nothing is deleted.",
	}
}

func reasonArgument() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(""),
		MarkdownDescription: "Text for the coordinator's audit log, sent along with a change; at most 1024 bytes. Default: a text that names the operation. " +
			"A change of it alone is no change, and is not sent: the state keeps the reason that was given with the last change of something else.",
		Validators: []validator.String{reasonValidator{}},
	}
}

// forgets says, at the plan of a destroy, whether skip_destroy lets it only forget: kind begins the
// title, name names the resource.
func forgets(skip types.Bool, kind, name string, diags *diag.Diagnostics) bool {
	if skip.ValueBool() {
		diags.AddWarning(kind+" will only be forgotten", fmt.Sprintf("skip_destroy is set: %s stays as it is, and Terraform forgets it.", name))
	}
	return skip.ValueBool()
}

// protects adds the error that what is protected cannot be destroyed, and says whether it is.
func protects(protection types.Bool, kind, name string, diags *diag.Diagnostics) bool {
	if protection.ValueBool() {
		diags.AddAttributeError(path.Root("deletion_protection"), kind+" is protected against deletion", fmt.Sprintf(
			"The %s has deletion_protection = true. To destroy it, set deletion_protection = false, run terraform apply, and then destroy it. "+
				"To only forget it, set skip_destroy = true and apply that first, or use terraform state rm or a removed block.", name))
	}
	return protection.ValueBool()
}

// importOwn gives an imported resource the safe values of what only Terraform knows.
func importOwn(ctx context.Context, state *tfsdk.State) diag.Diagnostics {
	diags := state.SetAttribute(ctx, path.Root("deletion_protection"), true)
	diags.Append(state.SetAttribute(ctx, path.Root("skip_destroy"), false)...)
	diags.Append(state.SetAttribute(ctx, path.Root("reason"), "")...)
	return diags
}

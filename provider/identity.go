package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/identityschema"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// A resource identity is what names the object at the coordinator, for ever: the same names as
// in the import id. Terraform stores it from 1.12 on, and lists and imports by it; what is older
// does not ask for it.

var (
	_ resource.ResourceWithIdentity = (*shardCountResource)(nil)
	_ resource.ResourceWithIdentity = (*streamGroupResource)(nil)

	shardCountIdentity  = []string{"stream_prefix"}
	streamGroupIdentity = []string{"stream_prefix", "consumer_group"}
)

func (r *shardCountResource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"stream_prefix": identityschema.StringAttribute{RequiredForImport: true, Description: "Name of the logical stream."},
	}}
}

func (r *streamGroupResource) IdentitySchema(_ context.Context, _ resource.IdentitySchemaRequest, resp *resource.IdentitySchemaResponse) {
	resp.IdentitySchema = identityschema.Schema{Attributes: map[string]identityschema.Attribute{
		"stream_prefix":  identityschema.StringAttribute{RequiredForImport: true, Description: "Stream prefix of the stream."},
		"consumer_group": identityschema.StringAttribute{RequiredForImport: true, Description: "Name of the consumer group."},
	}}
}

// attributeSource is a plan or a state.
type attributeSource interface {
	GetAttribute(ctx context.Context, p path.Path, target any) diag.Diagnostics
}

// identify copies the names from a plan or a state into the identity. It comes first in every
// method, so that no way out of it leaves the identity empty.
func identify(ctx context.Context, from attributeSource, into *tfsdk.ResourceIdentity, names []string) diag.Diagnostics {
	var diags diag.Diagnostics
	if into == nil {
		return nil
	}
	for _, name := range names {
		var v types.String
		diags.Append(from.GetAttribute(ctx, path.Root(name), &v)...)
		diags.Append(into.SetAttribute(ctx, path.Root(name), v)...)
	}
	return diags
}

// importID is the import id, put together from the identity where that was given instead.
func importID(ctx context.Context, req resource.ImportStateRequest, diags *diag.Diagnostics, names []string) string {
	if req.ID != "" || req.Identity == nil || req.Identity.Raw.IsNull() {
		return req.ID
	}
	parts := make([]string, len(names))
	for i, name := range names {
		var v types.String
		diags.Append(req.Identity.GetAttribute(ctx, path.Root(name), &v)...)
		parts[i] = v.ValueString()
	}
	return strings.Join(parts, "/")
}

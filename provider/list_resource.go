package provider

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/list/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// What "terraform query" lists: the streams and consumer groups that the coordinator has, so that
// they can be imported without their names being known.

var (
	_ list.ListResourceWithConfigure = (*shardCountList)(nil)
	_ list.ListResourceWithConfigure = (*streamGroupList)(nil)
)

func newShardCountList() list.ListResource  { return &shardCountList{} }
func newStreamGroupList() list.ListResource { return &streamGroupList{} }

// Metadata and Configure are those of the resources.
type (
	shardCountList  struct{ shardCountResource }
	streamGroupList struct{ streamGroupResource }
)

func (l *shardCountList) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Streams of the coordinator, in the order of their prefix.",
		Attributes: map[string]schema.Attribute{
			"starts_with": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Only streams whose prefix starts like this. Default: all.", Validators: []validator.String{nameValidator{}},
			},
		},
	}
}

func (l *shardCountList) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	begin, ok := l.conn.listing(ctx, req, stream, "starts_with")
	if !ok {
		return
	}
	ctx = l.conn.logContext(ctx)
	all, err := l.conn.client.Streams(ctx)
	if err != nil {
		stream.Results = list.ListResultsStreamDiagnostics(diag.Diagnostics{l.conn.diagnose("list streams", err)})
		return
	}
	streams := slices.DeleteFunc(all.Streams, func(s protocol.Stream) bool { return !strings.HasPrefix(s.StreamPrefix, begin) })
	slices.SortFunc(streams, func(a, b protocol.Stream) int { return cmp.Compare(a.StreamPrefix, b.StreamPrefix) })
	stream.Results = func(push func(list.ListResult) bool) {
		for _, s := range firstOf(streams, req.Limit) {
			result := req.NewListResult(ctx)
			result.DisplayName = s.StreamPrefix
			result.Diagnostics.Append(name(ctx, result.Identity, shardCountIdentity, s.StreamPrefix)...)
			if req.IncludeResource {
				fill(ctx, &l.shardCountResource, &result, s.StreamPrefix)
			}
			if !push(result) {
				return
			}
		}
	}
}

func (l *streamGroupList) ListResourceConfigSchema(_ context.Context, _ list.ListResourceSchemaRequest, resp *list.ListResourceSchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Consumer groups of the coordinator, in the order of stream prefix and name.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Only groups of this stream. Default: those of all streams.", Validators: []validator.String{nameValidator{}},
			},
		},
	}
}

func (l *streamGroupList) List(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream) {
	prefix, ok := l.conn.listing(ctx, req, stream, "stream_prefix")
	if !ok {
		return
	}
	ctx = l.conn.logContext(ctx)
	all, err := l.conn.client.Groups(ctx)
	if err != nil {
		stream.Results = list.ListResultsStreamDiagnostics(diag.Diagnostics{l.conn.diagnose("list consumer groups", err)})
		return
	}
	groups := slices.DeleteFunc(all.Groups, func(g protocol.Group) bool { return prefix != "" && g.StreamPrefix != prefix })
	slices.SortFunc(groups, func(a, b protocol.Group) int {
		return cmp.Or(cmp.Compare(a.StreamPrefix, b.StreamPrefix), cmp.Compare(a.ConsumerGroup, b.ConsumerGroup))
	})
	stream.Results = func(push func(list.ListResult) bool) {
		for _, g := range firstOf(groups, req.Limit) {
			result := req.NewListResult(ctx)
			result.DisplayName = g.StreamPrefix + "/" + g.ConsumerGroup
			result.Diagnostics.Append(name(ctx, result.Identity, streamGroupIdentity, g.StreamPrefix, g.ConsumerGroup)...)
			if req.IncludeResource {
				fill(ctx, &l.streamGroupResource, &result, result.DisplayName)
			}
			if !push(result) {
				return
			}
		}
	}
}

// listing reads the one argument of a list, and says whether the coordinator can be asked.
func (c *connection) listing(ctx context.Context, req list.ListRequest, stream *list.ListResultsStream, argument string) (string, bool) {
	var v types.String
	diags := req.Config.GetAttribute(ctx, path.Root(argument), &v)
	if !diags.HasError() && !c.ready() {
		diags.Append(notReady())
	}
	if diags.HasError() {
		stream.Results = list.ListResultsStreamDiagnostics(diags)
		return "", false
	}
	return v.ValueString(), true
}

func firstOf[T any](all []T, limit int64) []T {
	if limit > 0 && int64(len(all)) > limit {
		return all[:limit]
	}
	return all
}

// name sets an identity.
func name(ctx context.Context, into *tfsdk.ResourceIdentity, names []string, values ...string) (diags diag.Diagnostics) {
	for i, n := range names {
		diags.Append(into.SetAttribute(ctx, path.Root(n), values[i])...)
	}
	return diags
}

// fill gives a result the resource as an import would have it: imported, then read.
func fill(ctx context.Context, r resource.ResourceWithImportState, result *list.ListResult, id string) {
	state := tfsdk.State{Raw: result.Resource.Raw, Schema: result.Resource.Schema}
	imported := resource.ImportStateResponse{State: state}
	r.ImportState(ctx, resource.ImportStateRequest{ID: id}, &imported)
	result.Diagnostics.Append(imported.Diagnostics...)
	if imported.Diagnostics.HasError() {
		return
	}
	read := resource.ReadResponse{State: imported.State}
	r.Read(ctx, resource.ReadRequest{State: imported.State}, &read)
	if read.State.Raw.IsNull() { // it went while it was listed
		err := errors.New("it no longer exists")
		result.Diagnostics.AddWarning("Cannot show "+result.DisplayName, err.Error())
		return
	}
	result.Diagnostics.Append(read.Diagnostics...)
	result.Resource.Raw = read.State.Raw
}

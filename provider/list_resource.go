package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
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
	stream.Results = results(ctx, req, shardCountIdentity, streams, func(s protocol.Stream) []string { return []string{s.StreamPrefix} }, l.show)
}

// show makes what an import and a Read would make. The stream is at hand; its last resharding is not.
func (l *shardCountList) show(ctx context.Context, state *tfsdk.State, s protocol.Stream) diag.Diagnostics {
	diags := importOwn(ctx, state)
	var m shardCountModel
	diags.Append(state.Get(ctx, &m)...)
	if diags.HasError() {
		return diags
	}
	last, err := l.conn.lastResharding(ctx, s)
	if errors.Is(err, protocol.ErrStreamNotFound) { // it went while it was listed
		state.RemoveResource(ctx)
		return diags
	}
	if err != nil {
		diags.Append(l.conn.diagnose(fmt.Sprintf("read the last resharding of stream %q", s.StreamPrefix), err))
		return diags
	}
	m.observe(ctx, s, last)
	m.ShardCount = countOf(confirmed(s, last))
	diags.Append(state.Set(ctx, &m)...)
	return diags
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
	stream.Results = results(ctx, req, streamGroupIdentity, groups, func(g protocol.Group) []string { return []string{g.StreamPrefix, g.ConsumerGroup} }, l.show)
}

// show makes what an import and a Read would make.
func (l *streamGroupList) show(ctx context.Context, state *tfsdk.State, g protocol.Group) diag.Diagnostics {
	imported := resource.ImportStateResponse{State: *state}
	l.ImportState(ctx, resource.ImportStateRequest{ID: g.StreamPrefix + "/" + g.ConsumerGroup}, &imported)
	diags := imported.Diagnostics
	var m streamGroupModel
	diags.Append(imported.State.Get(ctx, &m)...)
	if diags.HasError() {
		return diags
	}
	m.observe(g)
	diags.Append(state.Set(ctx, &m)...)
	return diags
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

// results lists all, or as many as were asked for: values are what the attributes of the identity are
// for one of them, and show makes the resource of what was listed, without asking for it again.
func results[T any](
	ctx context.Context, req list.ListRequest, identity []string, all []T,
	values func(T) []string, show func(context.Context, *tfsdk.State, T) diag.Diagnostics,
) iter.Seq[list.ListResult] {
	if req.Limit > 0 && int64(len(all)) > req.Limit {
		all = all[:req.Limit]
	}
	return func(push func(list.ListResult) bool) {
		for _, one := range all {
			result := req.NewListResult(ctx)
			names := values(one)
			result.DisplayName = strings.Join(names, "/")
			for i, attribute := range identity {
				result.Diagnostics.Append(result.Identity.SetAttribute(ctx, path.Root(attribute), names[i])...)
			}
			if req.IncludeResource {
				state := tfsdk.State{Raw: result.Resource.Raw, Schema: result.Resource.Schema}
				result.Diagnostics.Append(show(ctx, &state, one)...)
				switch {
				case result.Diagnostics.HasError():
				case state.Raw.IsNull():
					result.Diagnostics.AddWarning("Cannot show "+result.DisplayName, "it no longer exists")
				default:
					result.Resource.Raw = state.Raw
				}
			}
			if !push(result) {
				return
			}
		}
	}
}

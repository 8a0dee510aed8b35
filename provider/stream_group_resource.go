package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

var (
	_ resource.ResourceWithConfigure    = (*streamGroupResource)(nil)
	_ resource.ResourceWithModifyPlan   = (*streamGroupResource)(nil)
	_ resource.ResourceWithUpgradeState = (*streamGroupResource)(nil)
	_ resource.ResourceWithImportState  = (*streamGroupResource)(nil)
)

func newStreamGroupResource() resource.Resource { return &streamGroupResource{} }

type streamGroupResource struct{ conn *connection }

func (r *streamGroupResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_stream_group"
}

func (r *streamGroupResource) Schema(_ context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	d := protocol.DefaultGroupSpec()
	text := func(ms int64) string { return durationOfMs(ms).ValueString() }
	resp.Schema = schema.Schema{
		Version: schemaVersion,
		MarkdownDescription: "A consumer group of a logical stream: its members share the shards, each shard being read by one member at a time. " +
			"Creating it makes the Redis consumer group on every shard, including those that are added later. " +
			"Destroying it removes the Redis consumer group from every shard; entries stay on the shards for the other groups. " +
			"While the group has live members, or entries that it has not read and acknowledged, the coordinator refuses that unless `force_destroy` is set.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Stream prefix of the stream. Refer to the `stream_prefix` of a `redisstream_shard_count`, so that Terraform makes the stream first. " +
					"A change replaces the group.",
				Validators:    []validator.String{nameValidator{}},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"consumer_group": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the consumer group, also in Redis. 1 to 256 bytes without white space, control characters, braces and slashes. " +
					"A change replaces the group.",
				Validators:    []validator.String{nameValidator{}},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"start_position": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(lower(d.StartPosition)),
				MarkdownDescription: "Where the group begins on the shards that exist when it is created: `earliest` (default) reads everything that they hold, `latest` only what is " +
					"appended afterwards. On shards that are added later it always begins at the first entry. It cannot be changed afterwards: the plan says so.",
				Validators: []validator.String{choice{"earliest", "latest"}},
			},
			"member_lease": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true,
				MarkdownDescription: "For how long a member may read its shards after its last heartbeat, as a duration such as `\"15s\"`; 1s to 10m, at least 5 × `heartbeat_interval`. " +
					"When a member dies, its shards move after that time. Default: 5 × `heartbeat_interval`, `\"" + text(d.MemberLeaseMs) + "\"` if neither is set. Members take up a change with their next heartbeat.",
				Validators: []validator.String{durationBetween{time.Second, 10 * time.Minute}},
			},
			"heartbeat_interval": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true,
				MarkdownDescription: "How often a member sends a heartbeat, as a duration; 100ms to 2m, at most a fifth of `member_lease`. Default: a fifth of `member_lease`, `\"" +
					text(d.HeartbeatIntervalMs) + "\"` if neither is set. Members take up a change with their next heartbeat.",
				Validators: []validator.String{durationBetween{100 * time.Millisecond, 2 * time.Minute}},
			},
			"rebalance_timeout": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true, Default: stringdefault.StaticString(text(d.RebalanceTimeoutMs)),
				MarkdownDescription: "How long a member may take to release a shard that is revoked from it before it is fenced, as a duration; 100ms to 1h, default `\"" +
					text(d.RebalanceTimeoutMs) + "\"`. A change applies to later revocations.",
				Validators: []validator.String{durationBetween{100 * time.Millisecond, time.Hour}},
			},
			"deletion_protection": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether destroying the group is refused. Default `true`, also after an import: to destroy, set it to `false` and apply first. " +
					"It is Terraform's own and not known to the coordinator.",
			},
			"skip_destroy": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether destroying only forgets: Terraform lets go of the group, and the coordinator is not told anything. Default `false`. " +
					"It must be applied before the destroy. `deletion_protection` does not stand in its way, since nothing is deleted.",
			},
			"force_destroy": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether the group may be destroyed while it has live members, which are then fenced, or entries that it has not read and acknowledged, **which are then lost to it**. " +
					"Default `false`: the coordinator refuses, and names shards and counts. It must be applied before the destroy.",
			},
			"reason": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(""),
				MarkdownDescription: "Text for the coordinator's audit log, sent along with a change; at most 1024 bytes. Default: a text that names the operation. " +
					"A change of it alone is no change: the state shows the reason of the last one.",
				Validators: []validator.String{reasonValidator{}},
			},

			"state": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "`EMPTY` without members, `RECONCILING` while shards move, `STABLE` otherwise.",
			},
			"group_epoch": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Rises with every change of members or layout.",
			},
			"assignment_epoch": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Group epoch for which the target assignment was computed.",
			},
			"metadata_version": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Version of the layout that the group's clients see.",
			},
			"shard_count": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Shard count of the stream.",
			},
		},
	}
}

func (r *streamGroupResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData, &resp.Diagnostics)
}

// ModifyPlan fills in the lease settings that follow from each other, refuses what the timing
// rules forbid, and makes computed values unknown exactly when the coordinator is to be told
// something.
func (r *streamGroupResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		var state streamGroupModel
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		if !resp.Diagnostics.HasError() {
			r.planDestroy(ctx, state, &resp.Diagnostics)
		}
		return
	}
	var config, plan streamGroupModel
	for name, into := range map[string]*durationValue{"member_lease": &config.MemberLease, "heartbeat_interval": &config.HeartbeatInterval} {
		resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(name), into)...)
	}
	for name, into := range map[string]*durationValue{"member_lease": &plan.MemberLease, "heartbeat_interval": &plan.HeartbeatInterval} {
		resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root(name), into)...)
	}
	lease, interval := plan.MemberLease, plan.HeartbeatInterval
	if !config.MemberLease.IsUnknown() && !config.HeartbeatInterval.IsUnknown() {
		spec := config.spec()
		if e := spec.Check(); e != nil {
			resp.Diagnostics.AddAttributeError(path.Root("member_lease"), "Invalid member_lease", fmt.Sprintf(
				"member_lease: %s is shorter than 5 × heartbeat_interval (%s): one lost heartbeat would cost a member its shards. Raise it or lower heartbeat_interval",
				durationOfMs(spec.MemberLeaseMs).ValueString(), durationOfMs(spec.HeartbeatIntervalMs).ValueString()))
		}
		if !config.MemberLease.known() {
			lease = durationOfMs(spec.MemberLeaseMs)
		}
		if !config.HeartbeatInterval.known() {
			interval = durationOfMs(spec.HeartbeatIntervalMs)
		}
	}
	if resp.Diagnostics.HasError() || req.Plan.Raw.Equal(req.State.Raw) && lease.same(plan.MemberLease) && interval.same(plan.HeartbeatInterval) {
		return // nothing to do, as with most groups of most plans
	}
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.MemberLease, plan.HeartbeatInterval = lease, interval

	if !req.State.Raw.IsNull() {
		var state streamGroupModel
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		if resp.Diagnostics.HasError() {
			return
		}
		if replaces := replaced(plan.StreamPrefix, state.StreamPrefix) || replaced(plan.ConsumerGroup, state.ConsumerGroup); !replaces && replaced(plan.StartPosition, state.StartPosition) {
			resp.Diagnostics.AddAttributeError(path.Root("start_position"), "start_position cannot be changed", fmt.Sprintf(
				"start_position: group %q began as %q, and it only says where a group begins. Set start_position = %q; to read everything again, or skip what there is, make another group.",
				state.ConsumerGroup.ValueString(), state.StartPosition.ValueString(), state.StartPosition.ValueString()))
			return
		}
		switch {
		case plan.sameRemote(state):
			plan.keepComputed(state)
		case replaced(plan.StreamPrefix, state.StreamPrefix), replaced(plan.ConsumerGroup, state.ConsumerGroup):
			r.planDestroy(ctx, state, &resp.Diagnostics)
			if resp.Diagnostics.HasError() {
				return
			}
			plan.forgetComputed()
		default:
			plan.forgetComputed()
		}
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// replaced says whether an argument that makes the resource another one is known to change.
func replaced(now, before types.String) bool { return !now.IsUnknown() && !now.Equal(before) }

// planDestroy says what a destroy does, and what of the group would be lost or stands in its way.
func (r *streamGroupResource) planDestroy(ctx context.Context, state streamGroupModel, diags *diag.Diagnostics) {
	prefix, group := state.StreamPrefix.ValueString(), state.ConsumerGroup.ValueString()
	if state.SkipDestroy.ValueBool() {
		diags.AddWarning("Consumer group will only be forgotten", fmt.Sprintf("skip_destroy is set: consumer group %q of stream %q stays as it is, and Terraform forgets it.", group, prefix))
		return
	}
	if protectedGroup(state, diags) {
		return
	}
	r.conn.previewRemoval(ctx, prefix, group, state.ForceDestroy.ValueBool(), diags)
}

// protectedGroup adds the error that a protected group cannot be destroyed, and says whether it is.
func protectedGroup(state streamGroupModel, diags *diag.Diagnostics) bool {
	if !state.DeletionProtection.ValueBool() {
		return false
	}
	diags.AddAttributeError(path.Root("deletion_protection"), "Consumer group is protected against deletion", fmt.Sprintf(
		"Consumer group %q of stream %q has deletion_protection = true. To destroy it, set deletion_protection = false, run terraform apply, and then destroy it. "+
			"To only forget it, set skip_destroy = true and apply that first, or use terraform state rm or a removed block.", state.ConsumerGroup.ValueString(), state.StreamPrefix.ValueString()))
	return true
}

func (r *streamGroupResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.Diagnostics.Append(identify(ctx, req.Plan, resp.Identity, streamGroupIdentity)...)
	var plan streamGroupModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	prefix, group := plan.StreamPrefix.ValueString(), plan.ConsumerGroup.ValueString()
	what := fmt.Sprintf("create consumer group %q of stream %q", group, prefix)
	ctx, op := r.conn.begin(ctx, what, plan.Reason.ValueString(), map[string]any{"stream": prefix, "group": group})

	// One with the same settings is what an interrupted apply has left behind: the request
	// below is answered as if it were the first.
	switch g, err := r.conn.client.Group(ctx, prefix, group); {
	case errors.Is(err, protocol.ErrGroupNotFound):
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	default:
		if d := groupDifferences(g.Spec, plan.spec()); d != "" {
			resp.Diagnostics.Append(exists("Consumer group", group, d, prefix+"/"+group))
			return
		}
	}
	g, err := op.putGroup(ctx, plan, "terraform: "+what)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	plan.settle(g)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *streamGroupResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	resp.Diagnostics.Append(identify(ctx, req.State, resp.Identity, streamGroupIdentity)...)
	var m streamGroupModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !r.conn.ready() {
		return // not ready: the state stands
	}
	ctx = r.conn.logContext(ctx)
	prefix, group := m.StreamPrefix.ValueString(), m.ConsumerGroup.ValueString()

	g, err := r.conn.client.Group(ctx, prefix, group)
	switch {
	case errors.Is(err, protocol.ErrGroupNotFound), errors.Is(err, protocol.ErrStreamNotFound):
		resp.Diagnostics.AddWarning("Consumer group is gone", fmt.Sprintf(
			"The coordinator has no consumer group %q of stream %q; it is removed from the state.", group, prefix))
		resp.State.RemoveResource(ctx)
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose(fmt.Sprintf("read consumer group %q of stream %q", group, prefix), err))
	default:
		m.observe(g)
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

func (r *streamGroupResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.Diagnostics.Append(identify(ctx, req.Plan, resp.Identity, streamGroupIdentity)...)
	var plan, state streamGroupModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if plan.sameRemote(state) { // force_destroy: the coordinator has no part in it
		plan.keepComputed(state)
		resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	prefix, group := plan.StreamPrefix.ValueString(), plan.ConsumerGroup.ValueString()
	what := fmt.Sprintf("update consumer group %q of stream %q", group, prefix)
	ctx, op := r.conn.begin(ctx, what, plan.Reason.ValueString(), map[string]any{"stream": prefix, "group": group})
	g, err := op.putGroup(ctx, plan, "terraform: "+what)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	plan.settle(g)
	resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
}

func (r *streamGroupResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state streamGroupModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || state.SkipDestroy.ValueBool() || protectedGroup(state, &resp.Diagnostics) {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	prefix, group := state.StreamPrefix.ValueString(), state.ConsumerGroup.ValueString()
	what := fmt.Sprintf("destroy consumer group %q of stream %q", group, prefix)
	ctx, op := r.conn.begin(ctx, what, state.Reason.ValueString(), map[string]any{"stream": prefix, "group": group})
	err := r.conn.client.DeleteGroup(ctx, prefix, group, protocol.DeleteGroupRequest{
		RequestedBy: r.conn.requestedBy, Reason: op.why("terraform: " + what), Force: state.ForceDestroy.ValueBool(),
	}, op.call())
	if err != nil && !errors.Is(err, protocol.ErrGroupNotFound) && !errors.Is(err, protocol.ErrStreamNotFound) {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
	}
}

// ImportState takes <stream prefix>/<consumer group>; neither may contain a slash.
func (r *streamGroupResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	req.ID = importID(ctx, req, &resp.Diagnostics, streamGroupIdentity)
	const form = "; the id of a redisstream_stream_group is <stream_prefix>/<consumer_group>"
	parts := strings.Split(req.ID, "/")
	if len(parts) != 2 {
		resp.Diagnostics.AddError("Invalid import id", fmt.Sprintf("%q has %d slashes, not one", req.ID, len(parts)-1)+form)
		return
	}
	for i, name := range []string{"stream_prefix", "consumer_group"} {
		if e := protocol.CheckName(name, parts[i]); e != nil {
			resp.Diagnostics.AddError("Invalid import id", e.Message+form)
			return
		}
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root(name), parts[i])...)
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("deletion_protection"), true)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("skip_destroy"), false)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("force_destroy"), false)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("reason"), "")...)
}

// putGroup declares the group and returns it when it is ready on every shard.
func (o operation) putGroup(ctx context.Context, m streamGroupModel, what string) (protocol.Group, error) {
	return o.conn.client.PutGroup(ctx, m.StreamPrefix.ValueString(), m.ConsumerGroup.ValueString(), protocol.PutGroupRequest{
		GroupSpec: m.spec(), RequestedBy: o.conn.requestedBy, Reason: o.why(what),
	}, o.call())
}

package provider

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// groupTimeout is how long an operation waits when timeouts does not say otherwise.
const groupTimeout = 5 * time.Minute

var (
	_ resource.ResourceWithConfigure      = (*streamGroupResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*streamGroupResource)(nil)
	_ resource.ResourceWithUpgradeState   = (*streamGroupResource)(nil)
	_ resource.ResourceWithImportState    = (*streamGroupResource)(nil)
	_ resource.ResourceWithValidateConfig = (*streamGroupResource)(nil)
)

func newStreamGroupResource() resource.Resource { return &streamGroupResource{} }

type streamGroupResource struct{ conn *connection }

func (r *streamGroupResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_stream_group"
}

func (r *streamGroupResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig checks what one attribute alone does not show.
func (r *streamGroupResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var wait timeouts.Value
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("timeouts"), &wait)...)
	if !resp.Diagnostics.HasError() {
		checkTimeouts(wait, &resp.Diagnostics)
	}
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
		replaces := replaced(plan.StreamPrefix, state.StreamPrefix) || replaced(plan.ConsumerGroup, state.ConsumerGroup)
		if !replaces && !plan.StartPosition.IsUnknown() && !plan.StartPosition.Equal(state.StartPosition) {
			resp.Diagnostics.AddAttributeError(path.Root("start_position"), "start_position cannot be changed", fmt.Sprintf(
				"start_position: group %q began as %q, and it only says where a group begins. Set start_position = %q; to read everything again, or skip what there is, make another group.",
				state.ConsumerGroup.ValueString(), state.StartPosition.ValueString(), state.StartPosition.ValueString()))
			return
		}
		switch {
		case plan.sameRemote(state):
			plan.keepComputed(state)
		case replaces:
			r.planDestroy(ctx, state, &resp.Diagnostics)
			if resp.Diagnostics.HasError() {
				return
			}
			plan.forgetComputed()
		default:
			plan.forgetComputed()
		}
	} else if replacesItself(ctx, req.Private, plan.name()) {
		protectedGroup(plan, &resp.Diagnostics)
	} else if plan.declared() {
		r.conn.takenGroup(ctx, plan.wanted(), req.Private, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// replaced says whether an argument changes that makes the resource another one. One that is known
// only after apply does, as far as Terraform goes: it destroys before it knows.
func replaced(now, before types.String) bool { return !now.Equal(before) }

// planDestroy says what a destroy does, and what of the group would be lost or stands in its way.
func (r *streamGroupResource) planDestroy(ctx context.Context, state streamGroupModel, diags *diag.Diagnostics) {
	prefix, group := state.StreamPrefix.ValueString(), state.ConsumerGroup.ValueString()
	if forgets(state.SkipDestroy, "Consumer group", fmt.Sprintf("consumer group %q of stream %q", group, prefix), diags) || protectedGroup(state, diags) {
		return
	}
	r.conn.previewRemoval(ctx, prefix, group, state.ForceDestroy.ValueBool(), diags)
}

// protectedGroup adds the error that a protected group cannot be destroyed, and says whether it is.
func protectedGroup(state streamGroupModel, diags *diag.Diagnostics) bool {
	return protects(state.DeletionProtection, "Consumer group", fmt.Sprintf("consumer group %q of stream %q", state.ConsumerGroup.ValueString(), state.StreamPrefix.ValueString()), diags)
}

func (r *streamGroupResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.Diagnostics.Append(identify(ctx, req.Plan, resp.Identity, streamGroupIdentity)...)
	var plan streamGroupModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	wait, diags := plan.Timeouts.Create(ctx, groupTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	want := plan.wanted()
	what := "create " + groupName(want)
	parent, op := r.conn.begin(ctx, what, plan.Reason.ValueString(), map[string]any{"stream": want.StreamPrefix, "group": want.ConsumerGroup})
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()

	claim, leave := r.conn.claim(ctx, what, groupName(want), twice, &resp.Diagnostics)
	if claim == nil {
		return
	}
	defer leave()

	// One with the same settings is what an interrupted apply has left behind; the plan has said that
	// it is taken. Any other belongs to somebody else.
	var done declaredGroup
	seen, err := r.conn.client.Group(ctx, want.StreamPrefix, want.ConsumerGroup)
	switch {
	case errors.Is(err, protocol.ErrGroupNotFound):
		done, err = op.declareGroup(ctx, want, client.MustBeNew, "terraform: "+what)
	case err == nil && sameGroupSpec(seen, want):
		done, err = op.awaitGroup(ctx, seen)
	case err == nil:
		claim.refused = true
		resp.Diagnostics.Append(groupExists(seen, want))
		return
	}
	if err != nil && !done.stored && (ctx.Err() != nil || unclear(err)) {
		done = r.conn.latestGroup(parent, want)
	}
	switch {
	case err == nil:
	case done.stored:
		// It is there, and becomes ready without us. An error would taint it, and a tainted group is
		// destroyed by the next apply.
		summary, detail := r.conn.groupStopped(ctx, groupFate(done.group), err, "timeouts.create", wait)
		resp.Diagnostics.AddWarning(summary, detail)
	case errors.Is(err, protocol.ErrGenerationMismatch) && done.group.ConsumerGroup != "":
		claim.refused = true
		resp.Diagnostics.Append(groupExists(done.group, want))
		return
	case done.gone && (errors.Is(err, protocol.ErrGenerationMismatch) || errors.Is(err, protocol.ErrGroupNotFound)):
		resp.Diagnostics.AddError("Consumer group was deleted meanwhile", fmt.Sprintf(
			"%s was registered, and deleted by somebody else before it was ready. Apply again to make it anew.", capital(groupName(want))))
		return
	default:
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	claim.made = true
	resp.Diagnostics.Append(plan.save(parent, done, &resp.State, resp.Private)...)
}

// save stores a plan that has been carried out, with the generation that it made: should somebody else
// have changed the group again, that is not what this state rests on.
func (m *streamGroupModel) save(ctx context.Context, done declaredGroup, state *tfsdk.State, private privateData) diag.Diagnostics {
	diags := append(rememberSeen(ctx, private, m.goesWith(), done.generation), rememberMade(ctx, private, done.group.CreatedAt)...)
	m.settle(done.group)
	return append(diags, state.Set(ctx, m)...)
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
	r.conn.claims.sawState(groupName(m.wanted()))

	gone := func(err error) bool {
		return errors.Is(err, protocol.ErrGroupNotFound) || errors.Is(err, protocol.ErrStreamNotFound)
	}
	g, err := r.conn.client.Group(ctx, prefix, group)
	for gone(err) && madeJustNow(ctx, req.Private) {
		if err = pause(ctx, askAgain); err == nil {
			g, err = r.conn.client.Group(ctx, prefix, group)
		}
	}
	switch {
	case gone(err):
		resp.Diagnostics.AddWarning("Consumer group is gone", fmt.Sprintf(
			"The coordinator has no consumer group %q of stream %q; it is removed from the state.", group, prefix))
		resp.State.RemoveResource(ctx)
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose(fmt.Sprintf("read consumer group %q of stream %q", group, prefix), err))
	default:
		before := m
		m.observe(g)
		resp.Diagnostics.Append(rememberMade(ctx, resp.Private, g.CreatedAt)...)
		resp.Diagnostics.Append(rememberSeen(ctx, resp.Private, m.goesWith(), g.Generation)...)
		if !reflect.DeepEqual(m, before) {
			resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		}
	}
}

func (r *streamGroupResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.Diagnostics.Append(identify(ctx, req.Plan, resp.Identity, streamGroupIdentity)...)
	var plan, state streamGroupModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	wait, diags := plan.Timeouts.Update(ctx, groupTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	if plan.sameRemote(state) { // force_destroy: the coordinator has no part in it
		plan.keepComputed(state)
		resp.Diagnostics.Append(rememberName(ctx, resp.Private, plan.goesWith())...)
		resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	want := plan.wanted()
	what := "update " + groupName(want)
	parent, op := r.conn.begin(ctx, what, plan.Reason.ValueString(), map[string]any{"stream": want.StreamPrefix, "group": want.ConsumerGroup})
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()

	before, ok := recallSeen(ctx, req.Private)
	seen, err := r.conn.client.Group(ctx, want.StreamPrefix, want.ConsumerGroup)
	switch {
	case ok && errors.Is(err, protocol.ErrGroupNotFound):
		resp.Diagnostics.Append(staleGroup(before, declaredGroup{gone: true}, want))
		return
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	case anotherSince(ctx, req.Private, seen.CreatedAt) && !sameGroupSpec(seen, want):
		resp.Diagnostics.Append(anotherGroup(before, seen))
		return
	case !ok: // a state of before: it must exist at least
		before = seen.Generation
	}
	done, err := op.declareGroup(ctx, want, before, "terraform: "+what)
	if err != nil && !done.stored && (ctx.Err() != nil || unclear(err)) {
		done = r.conn.latestGroup(parent, want)
	}
	switch {
	case err == nil:
	case done.stored:
		resp.Diagnostics.AddError(r.conn.groupStopped(ctx, groupFate(done.group), err, "timeouts.update", wait))
	case errors.Is(err, protocol.ErrGenerationMismatch) && (done.gone || done.group.ConsumerGroup != ""):
		resp.Diagnostics.Append(staleGroup(before, done, want))
		return
	default:
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	resp.Diagnostics.Append(plan.save(parent, done, &resp.State, resp.Private)...)
}

func (r *streamGroupResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state streamGroupModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	wait, diags := state.Timeouts.Delete(ctx, groupTimeout)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() || state.SkipDestroy.ValueBool() || protectedGroup(state, &resp.Diagnostics) {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	gone := state.wanted()
	what := "destroy " + groupName(gone)
	parent, op := r.conn.begin(ctx, what, state.Reason.ValueString(), map[string]any{"stream": gone.StreamPrefix, "group": gone.ConsumerGroup})
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()

	claim, leave := r.conn.claimToDestroy(ctx, what, groupName(gone), &resp.Diagnostics)
	if claim == nil {
		return
	}
	defer leave()
	before, _ := recallSeen(ctx, req.Private) // 0, which is any, in a state of before
	if seen, err := r.conn.client.Group(ctx, gone.StreamPrefix, gone.ConsumerGroup); err == nil && anotherSince(ctx, req.Private, seen.CreatedAt) {
		resp.Diagnostics.Append(anotherGroup(before, seen))
		return
	}
	now, goes, err := op.removeGroup(ctx, gone.StreamPrefix, gone.ConsumerGroup, protocol.DeleteGroupRequest{
		RequestedBy: r.conn.requestedBy, Reason: op.why("terraform: " + what), Force: state.ForceDestroy.ValueBool(),
	}, before)
	switch {
	case err == nil:
	case goes:
		fate := fmt.Sprintf("%s is deleted, but its Redis consumer groups have not gone from every shard yet. The coordinator goes on by itself; nothing was cancelled.", capital(groupName(gone)))
		resp.Diagnostics.AddError(r.conn.groupStopped(ctx, fate, err, "timeouts.delete", wait))
	case errors.Is(err, protocol.ErrGenerationMismatch) && now.ConsumerGroup != "":
		resp.Diagnostics.Append(staleGroup(before, declaredGroup{group: now}, gone))
	default:
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
	resp.Diagnostics.Append(importOwn(ctx, &resp.State)...)
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("force_destroy"), false)...)
}

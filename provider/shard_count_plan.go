package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// ValidateConfig checks what one attribute alone does not show.
func (r *shardCountResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var config shardCountModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &config)...)
	if resp.Diagnostics.HasError() {
		return
	}
	checkRetention(ctx, config.Retention, &resp.Diagnostics)
	checkTimeouts(config.Timeouts, &resp.Diagnostics)
	force, prefix := config.ForceDestroy, config.StreamPrefix
	if !force.IsNull() && !force.IsUnknown() && !prefix.IsUnknown() && force.ValueString() != prefix.ValueString() {
		resp.Diagnostics.AddAttributeError(path.Root("force_destroy"), "Invalid force_destroy", fmt.Sprintf(
			"force_destroy: is %q; it must repeat stream_prefix, %q, since it lets a destroy drop what is left undelivered", force.ValueString(), prefix.ValueString()))
	}
}

// ModifyPlan settles what the plan shows: computed values are unknown exactly when something
// is to be told to the coordinator, and what a change does to data is said before it is made, by
// the coordinator's dry run.
func (r *shardCountResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	var state, plan shardCountModel
	if !req.Plan.Raw.IsNull() && req.Plan.Raw.Equal(req.State.Raw) {
		resp.Diagnostics.Append(req.State.GetAttribute(ctx, path.Root("last_resharding"), &state.LastResharding)...)
		if _, _, running := state.resharding(); !running {
			return // nothing to do, as with most streams of most plans
		}
	}
	creates, destroys := req.State.Raw.IsNull(), req.Plan.Raw.IsNull()
	if !creates {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if !destroys {
		resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	}
	if resp.Diagnostics.HasError() {
		return
	}
	switch {
	case destroys:
		r.planDestroy(ctx, state, req, resp)
		return
	case !creates && plan.sameRemote(ctx, state) && !plan.ledAway(state):
		plan.keepComputed(state)
		resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
		return
	case !creates && replaced(plan.StreamPrefix, state.StreamPrefix):
		r.planDestroy(ctx, state, req, resp) // replacing destroys
		return
	case creates && replacesItself(ctx, req.Private, plan.StreamPrefix.ValueString()):
		protected(plan, &resp.Diagnostics)
		return // what is there goes first
	case !plan.declared(ctx):
		return // not known before apply: nothing can be asked
	}
	want := plan.spec(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	plan.forgetObserved(want.ShardCount)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
	r.conn.preview(ctx, plan.StreamPrefix.ValueString(), want, creates, req.Private, &resp.Diagnostics)
}

// planDestroy says what a destroy does.
func (r *shardCountResource) planDestroy(ctx context.Context, state shardCountModel, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	prefix := state.StreamPrefix.ValueString()
	if forgets(state.SkipDestroy, "Stream", fmt.Sprintf("stream %q", prefix), &resp.Diagnostics) || protected(state, &resp.Diagnostics) {
		return
	}
	if state.forced() {
		resp.Diagnostics.AddWarning("Stream will be removed with what it holds", fmt.Sprintf(
			"force_destroy repeats the prefix: stream %q is removed at once with its %s. What is undelivered or pending there is lost.", prefix, plural(state.ShardCount.ValueInt64(), "shard")))
		return
	}
	resp.Diagnostics.AddWarning("Stream will be removed", state.removalText())
	want := state.spec(ctx, &resp.Diagnostics)
	want.ShardCount = 0
	r.conn.preview(ctx, prefix, want, false, req.Private, &resp.Diagnostics)
}

// removalText says what a destroy without force_destroy does.
func (m *shardCountModel) removalText() string {
	late := fmt.Sprintf("If one has not finished after pause_timeout (%s), the removal is undone, publishing is open again, and the destroy fails.", m.PauseTimeout.ValueString())
	if m.Strategy.ValueString() == lower(protocol.StrategyOnline) {
		late = fmt.Sprintf("If one has not finished after drain_timeout (%s), the coordinator brings the shards back, and the destroy fails.", m.DrainTimeout.ValueString())
	}
	return fmt.Sprintf("Destroying stream %q refuses appends from its beginning, waits until every Redis consumer group that is then on the stream has read and acknowledged all entries, "+
		"and removes its %s (retire: %s). %s A redisstream_stream_group that refers to this resource is destroyed before, and is refused while its group has not finished. "+
		"Entries for which no group is left are removed unread: stop the producers first.", m.StreamPrefix.ValueString(), plural(m.ShardCount.ValueInt64(), "shard"), m.Retire.ValueString(), late)
}

// protected adds the error that a protected stream cannot be destroyed, and says whether it is.
func protected(state shardCountModel, diags *diag.Diagnostics) bool {
	return protects(state.DeletionProtection, "Stream", fmt.Sprintf("stream %q", state.StreamPrefix.ValueString()), diags)
}

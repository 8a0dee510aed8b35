package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const defaultRollbackWait = 10 * time.Minute

var (
	_ action.ActionWithConfigure  = (*rollbackAction)(nil)
	_ action.ActionWithModifyPlan = (*rollbackAction)(nil)
)

func newRollbackAction() action.Action {
	return &rollbackAction{streamAction{name: "rollback_resharding"}}
}

type rollbackAction struct{ streamAction }

func (a *rollbackAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Rolls back the running resharding of a stream and waits for its end: the shard count stays as it was, publishing is resumed, no entry is lost. " +
			"It is refused once the layout has changed; then another resharding leads back. Where none runs, nothing happens.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": prefixOfAction(),
			"resharding_id": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Id of the resharding. Default: the one that is running.", Validators: []validator.String{nameValidator{}},
			},
			"timeout": schema.StringAttribute{
				CustomType: durationType{}, Optional: true,
				MarkdownDescription: "How long to wait for its end, as a duration; 1s to 24h, default `\"" + formatDuration(defaultRollbackWait) + "\"`. When it passes, the action fails, and the rollback goes on.",
				Validators:          []validator.String{durationBetween{time.Second, 24 * time.Hour}},
			},
			"reason": reasonOfAction(),
		},
	}
}

func (a *rollbackAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m struct {
		StreamPrefix types.String  `tfsdk:"stream_prefix"`
		ReshardingID types.String  `tfsdk:"resharding_id"`
		Timeout      durationValue `tfsdk:"timeout"`
		Reason       types.String  `tfsdk:"reason"`
	}
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if !a.may(resp) {
		return
	}
	prefix, id := m.StreamPrefix.ValueString(), m.ReshardingID.ValueString()
	what := fmt.Sprintf("roll back the resharding of stream %q", prefix)
	ctx, op := a.conn.begin(ctx, what, m.Reason.ValueString(), map[string]any{"stream": prefix})
	wait := defaultRollbackWait
	if m.Timeout.known() {
		wait = time.Duration(m.Timeout.ms()) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()

	if id == "" {
		s, err := a.conn.client.Stream(ctx, prefix)
		if err != nil {
			resp.Diagnostics.Append(a.conn.diagnose(what, err))
			return
		}
		if id = s.Status.ActiveReshardingID; id == "" {
			resp.SendProgress(action.InvokeProgressEvent{Message: fmt.Sprintf("No resharding of stream %q is running; it has %s", prefix, plural(s.Status.ShardCount, "shard"))})
			return
		}
	}
	r, err := a.conn.client.Rollback(ctx, prefix, id, protocol.RollbackRequest{
		RequestedBy: a.conn.requestedBy, Reason: op.why("terraform: " + what),
	}, op.call())
	if err != nil {
		resp.Diagnostics.Append(a.conn.diagnose(what, err))
		return
	}
	op.progress = func(r protocol.Resharding) {
		resp.SendProgress(action.InvokeProgressEvent{Message: describe(r)})
	}
	if r, err = op.await(ctx, r); err != nil {
		resp.Diagnostics.AddError(a.conn.stopped(ctx, r, err, "timeout", wait))
		return
	}
	if r.Phase == protocol.PhaseCompleted {
		resp.Diagnostics.AddError("The resharding has completed", fmt.Sprintf(
			"%s: it had completed before it could be rolled back. To go back, apply the old shard_count of %d.", what, r.FromShardCount))
		return
	}
	resp.SendProgress(action.InvokeProgressEvent{Message: fmt.Sprintf("Resharding %s of stream %q has ended as %s; the stream keeps its %s", id, prefix, r.Phase, plural(r.FromShardCount, "shard"))})
}

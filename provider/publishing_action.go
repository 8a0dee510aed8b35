package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/action/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

var (
	_ action.ActionWithConfigure  = (*pauseAction)(nil)
	_ action.ActionWithModifyPlan = (*pauseAction)(nil)
	_ action.ActionWithConfigure  = (*resumeAction)(nil)
	_ action.ActionWithModifyPlan = (*resumeAction)(nil)
)

func newPauseAction() action.Action  { return &pauseAction{streamAction{name: "pause_publishing"}} }
func newResumeAction() action.Action { return &resumeAction{streamAction{name: "resume_publishing"}} }

type (
	pauseAction  struct{ streamAction }
	resumeAction struct{ streamAction }
)

// streamAction is the part that all actions on a stream share.
type streamAction struct {
	name string
	conn *connection
}

func (a *streamAction) Metadata(_ context.Context, req action.MetadataRequest, resp *action.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_" + a.name
}

func (a *streamAction) Configure(_ context.Context, req action.ConfigureRequest, resp *action.ConfigureResponse) {
	a.conn = configured(req.ProviderData, &resp.Diagnostics)
}

// ModifyPlan finds out before anything is applied whether the coordinator lets the stream be
// looked at. One that does not exist may be made in the same run.
func (a *streamAction) ModifyPlan(ctx context.Context, req action.ModifyPlanRequest, resp *action.ModifyPlanResponse) {
	var prefix types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("stream_prefix"), &prefix)...)
	if resp.Diagnostics.HasError() || prefix.IsUnknown() || !a.conn.ready() {
		return
	}
	_, err := a.conn.client.Stream(a.conn.logContext(ctx), prefix.ValueString())
	if err == nil || errors.Is(err, protocol.ErrStreamNotFound) {
		return
	}
	d := a.conn.diagnose(fmt.Sprintf("look at stream %q for redisstream_%s", prefix.ValueString(), a.name), err)
	if client.Permanent(err) {
		resp.Diagnostics.Append(d)
		return
	}
	resp.Diagnostics.AddWarning(d.Summary(), d.Detail()) // the apply may find it well again
}

func prefixOfAction() schema.StringAttribute {
	return schema.StringAttribute{Required: true, MarkdownDescription: "Stream prefix of the stream.", Validators: []validator.String{nameValidator{}}}
}

func reasonOfAction() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, MarkdownDescription: "Text for the coordinator's audit log; at most 1024 bytes. Default: a text that names the action.",
		Validators: []validator.String{reasonValidator{}},
	}
}

func (a *pauseAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Pauses publishing to a stream, for an operator's own reasons: appends are refused until `redisstream_resume_publishing`, or until `timeout` passes. " +
			"Consumers go on reading. A pause that is in force already gets the new time-out.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": prefixOfAction(),
			"timeout": schema.StringAttribute{
				CustomType: durationType{}, Required: true,
				MarkdownDescription: "When publishing resumes by itself, as a duration such as `\"10m\"`; 100ms to 24h. There is no pause without an end: a forgotten one would stop the stream for good.",
				Validators:          []validator.String{durationBetween{100 * time.Millisecond, 24 * time.Hour}},
			},
			"reason": reasonOfAction(),
		},
	}
}

func (a *pauseAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m struct {
		StreamPrefix types.String  `tfsdk:"stream_prefix"`
		Timeout      durationValue `tfsdk:"timeout"`
		Reason       types.String  `tfsdk:"reason"`
	}
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if !a.may(resp) {
		return
	}
	prefix := m.StreamPrefix.ValueString()
	what := fmt.Sprintf("pause publishing to stream %q", prefix)
	ctx, op := a.conn.begin(ctx, what, m.Reason.ValueString(), map[string]any{"stream": prefix})
	s, err := a.conn.client.PausePublishing(ctx, prefix, protocol.PauseRequest{
		TimeoutMs: m.Timeout.ms(), RequestedBy: a.conn.requestedBy, Reason: op.why("terraform: " + what),
	}, op.call())
	if err != nil {
		resp.Diagnostics.Append(a.conn.diagnose(what, err))
		return
	}
	until := ""
	if s.Status.PausedUntil != nil {
		until = ", until " + timestamp(*s.Status.PausedUntil) + " at the latest"
	}
	resp.SendProgress(action.InvokeProgressEvent{Message: fmt.Sprintf("Publishing to stream %q is %s%s", prefix, lower(s.Status.PublishState), until)})
}

func (a *resumeAction) Schema(_ context.Context, _ action.SchemaRequest, resp *action.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Ends an operator's pause of publishing to a stream. Without one, nothing happens. The pause of a running resharding is not its business: " +
			"for that there is `redisstream_rollback_resharding`.",
		Attributes: map[string]schema.Attribute{"stream_prefix": prefixOfAction(), "reason": reasonOfAction()},
	}
}

func (a *resumeAction) Invoke(ctx context.Context, req action.InvokeRequest, resp *action.InvokeResponse) {
	var m struct {
		StreamPrefix types.String `tfsdk:"stream_prefix"`
		Reason       types.String `tfsdk:"reason"`
	}
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if !a.may(resp) {
		return
	}
	prefix := m.StreamPrefix.ValueString()
	what := fmt.Sprintf("resume publishing to stream %q", prefix)
	ctx, op := a.conn.begin(ctx, what, m.Reason.ValueString(), map[string]any{"stream": prefix})
	s, err := a.conn.client.ResumePublishing(ctx, prefix, protocol.ResumeRequest{
		RequestedBy: a.conn.requestedBy, Reason: op.why("terraform: " + what),
	}, op.call())
	if err != nil {
		resp.Diagnostics.Append(a.conn.diagnose(what, err))
		return
	}
	message := fmt.Sprintf("Publishing to stream %q is open", prefix)
	if s.Status.PublishState == protocol.PublishPaused {
		message = fmt.Sprintf("Publishing to stream %q is still paused, by resharding %s", prefix, s.Status.ActiveReshardingID)
		if s.Status.ActiveReshardingID == "" {
			message = fmt.Sprintf("Publishing to stream %q is being opened, shard by shard", prefix)
		}
	}
	resp.SendProgress(action.InvokeProgressEvent{Message: message})
}

// may says whether there is a coordinator to send anything to.
func (a *streamAction) may(resp *action.InvokeResponse) bool {
	if !resp.Diagnostics.HasError() && !a.conn.ready() {
		resp.Diagnostics.Append(notReady())
	}
	return !resp.Diagnostics.HasError()
}

package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// How long an operation waits when timeouts does not say otherwise.
const (
	createTimeout = 10 * time.Minute
	updateTimeout = time.Hour
	deleteTimeout = time.Hour
)

var (
	_ resource.ResourceWithConfigure      = (*shardCountResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*shardCountResource)(nil)
	_ resource.ResourceWithValidateConfig = (*shardCountResource)(nil)
	_ resource.ResourceWithUpgradeState   = (*shardCountResource)(nil)
	_ resource.ResourceWithImportState    = (*shardCountResource)(nil)
)

func newShardCountResource() resource.Resource { return &shardCountResource{} }

type shardCountResource struct{ conn *connection }

func (r *shardCountResource) Metadata(_ context.Context, req resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_shard_count"
}

func (r *shardCountResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	d := protocol.DefaultPolicy()
	pauseDefault, drainDefault := durationOfMs(d.PauseTimeoutMs).ValueString(), durationOfMs(d.DrainTimeoutMs).ValueString()
	resp.Schema = schema.Schema{
		Version: schemaVersion,
		MarkdownDescription: "A logical stream and the number of shards over which it is spread. Creating it lays the shards out. Changing " +
			"`shard_count` reshards in place, up or down, and returns when the stream has converged. Destroying it drains all shards, " +
			"retires them and removes the stream.\n\n" +
			"The coordinator owns a resharding once it has begun: when Terraform is interrupted or its timeout passes, the resharding goes on, " +
			"the state keeps the last confirmed shard count, and the next apply attaches to the same resharding instead of starting another.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the logical stream. Its shards are the Redis keys `<stream_prefix>:0`, `<stream_prefix>:1` and so on. " +
					"1 to 256 bytes without white space, control characters, braces and slashes. A change replaces the stream.",
				Validators:    []validator.String{nameValidator{}},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"shard_count": schema.Int64Attribute{
				CustomType: countType{},
				Required:   true,
				MarkdownDescription: fmt.Sprintf("Number of shards, 1 to %d. A change reshards the stream in place, as the other arguments say. "+
					"In the state it is the last confirmed count: while a resharding runs, and after one that failed, the count before it. While a stream is still being created it is the count that was asked for.", protocol.MaxShardCount),
				Validators: []validator.Int64{shardCountValidator{}},
			},
			"strategy": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(lower(d.Strategy)),
				MarkdownDescription: "How a resharding treats publishing. `quiesce` (default) pauses it, drains the shards in `drain_scope`, changes the layout " +
					"and resumes: with `drain_scope = \"all\"` the order of each key is kept. `online` pauses nothing: entries of one key may be handled out of order " +
					"around the change. A change applies to later reshardings.",
				Validators: []validator.String{choice{"quiesce", "online"}},
			},
			"drain_scope": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(lower(d.DrainScope)),
				MarkdownDescription: "Which shards a quiesced resharding drains before the layout changes: `all` (default) of them, or only those that are `removed`, " +
					"which pauses publishing for less time but does not keep the order of keys that move. Without effect on `online`. A change applies to later reshardings.",
				Validators: []validator.String{choice{"all", "removed"}},
			},
			"retire": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(lower(d.Retire)),
				MarkdownDescription: "What becomes of the Redis key of a removed shard once it is drained: `delete` (default) unlinks it, `archive` renames it to " +
					"`{<stream_prefix>:<index>}:archived:<resharding id>`. A change applies to later reshardings.",
				Validators: []validator.String{choice{"delete", "archive"}},
			},
			"pause_timeout": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true, Default: stringdefault.StaticString(pauseDefault),
				MarkdownDescription: "Longest time for which a quiesced resharding may pause publishing, as a duration such as `\"30s\"` or `\"5m\"`; 100ms to 24h, default `\"" + pauseDefault +
					"\"`. When it passes before the layout has changed, the resharding ends as `on_timeout` says and publishing is resumed. A change applies to later reshardings.",
				Validators: []validator.String{durationBetween{100 * time.Millisecond, 24 * time.Hour}},
			},
			"drain_timeout": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true, Default: stringdefault.StaticString(drainDefault),
				MarkdownDescription: "Longest time for which removed shards may be drained after the layout has changed, as a duration; 100ms to 168h, default `\"" + drainDefault +
					"\"`. When it passes, the coordinator reshards back and no entry is lost. A change applies to later reshardings.",
				Validators: []validator.String{durationBetween{100 * time.Millisecond, 168 * time.Hour}},
			},
			"on_timeout": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(lower(d.OnTimeout)),
				MarkdownDescription: "How a resharding is recorded that runs into `pause_timeout`: as `ROLLED_BACK` (`rollback`, default) or as `FAILED` (`fail`). " +
					"Both undo the change, resume publishing and fail the apply. A change applies to later reshardings.",
				Validators: []validator.String{choice{"rollback", "fail"}},
			},
			"ignore_groups": schema.SetAttribute{
				ElementType: types.StringType, Optional: true,
				MarkdownDescription: "Redis consumer groups whose undelivered and pending entries do not hold up a drain, such as an abandoned one; at most " +
					fmt.Sprint(protocol.MaxIgnoreGroups) + ". **Entries that they have not read are lost with a removed shard.** Default: none. A change applies to later reshardings.",
				Validators: []validator.Set{setvalidator.SizeAtMost(protocol.MaxIgnoreGroups), setvalidator.ValueStringsAre(nameValidator{})},
			},
			"retention":           retentionAttribute(),
			"deletion_protection": deletionProtection("stream"),
			"skip_destroy":        skipDestroy("stream"),
			"force_destroy": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Repeat the `stream_prefix` here, and apply, to let a destroy remove the stream at once, without waiting for the drain. " +
					"**Everything that is still undelivered or pending is lost then.** Anything else than the prefix is refused. Default: a destroy drains.",
			},
			"reason": reasonArgument(),
			"timeouts": timeouts.Attributes(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true,
				CreateDescription: "How long a create waits for convergence, as a duration; default `\"10m\"`. When it passes, the stream stays, with a warning.",
				UpdateDescription: "How long an update waits for convergence, as a duration; default `\"1h\"`. When it passes, the apply fails, and the resharding goes on.",
				DeleteDescription: "How long a destroy waits for the drain, as a duration; default `\"1h\"`. When it passes, the destroy fails, and the drain goes on.",
			}),

			"metadata_version": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Version of the layout that clients see; it rises with every change.",
			},
			"layout_epoch": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Epoch of the layout in force; producers are fenced on it.",
			},
			"publish_state": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "Whether appends are accepted: `OPEN`, or `PAUSED` while a resharding or an operator holds them.",
			},
			"shards": schema.ListNestedAttribute{
				Computed:            true,
				MarkdownDescription: "The shards, in the order of their index; while a resharding runs, with those that come and go.",
				NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
					"index": schema.Int64Attribute{Computed: true, MarkdownDescription: "Index, from 0."},
					"key":   schema.StringAttribute{Computed: true, MarkdownDescription: "Redis key of the shard."},
					"slot":  schema.Int64Attribute{Computed: true, MarkdownDescription: "Slot of the key on a Redis Cluster, 0 to 16383."},
				}},
			},
			"last_resharding": schema.SingleNestedAttribute{
				Computed:            true,
				MarkdownDescription: "The resharding that is running, or else the one that ended last; null when the coordinator has none on record.",
				Attributes: map[string]schema.Attribute{
					"id":               schema.StringAttribute{Computed: true, MarkdownDescription: "Its id, as in the coordinator's API and audit log."},
					"from_shard_count": schema.Int64Attribute{Computed: true, MarkdownDescription: "Shard count before it; 0 for the creation."},
					"to_shard_count":   schema.Int64Attribute{Computed: true, MarkdownDescription: "Shard count that it leads to; 0 for the removal."},
					"strategy":         schema.StringAttribute{Computed: true, MarkdownDescription: "`quiesce` or `online`."},
					"phase":            schema.StringAttribute{Computed: true, MarkdownDescription: "Phase as last seen; `COMPLETED`, `ROLLED_BACK` and `FAILED` are final."},
					"paused_ms":        schema.Int64Attribute{Computed: true, MarkdownDescription: "For how long it paused publishing, in milliseconds."},
					"order":            schema.StringAttribute{Computed: true, MarkdownDescription: "What was promised of the order of each key; empty if nothing was recorded."},
					"error":            schema.StringAttribute{Computed: true, MarkdownDescription: "Why it did not complete; empty if it did."},
					"certificate": schema.SingleNestedAttribute{
						Computed:            true,
						MarkdownDescription: "The drain certificate: the evidence on which the layout was changed; null when nothing was drained. The data source `redisstream_resharding` has it whole, shard by shard, and compares it with Redis if `recheck` is set.",
						Attributes: map[string]schema.Attribute{
							"taken_at":           schema.StringAttribute{Computed: true, MarkdownDescription: "When the evidence was taken, RFC 3339, UTC."},
							"barrier":            schema.StringAttribute{Computed: true, MarkdownDescription: "What kept appends out: `XSETID` (Redis refuses everybody) or `LEASE` (only producers that fence are held back)."},
							"confirmed_replicas": schema.Int64Attribute{Computed: true, MarkdownDescription: "How many replicas had confirmed the seals."},
						},
					},
				},
			},
		},
	}
}

func (r *shardCountResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData, &resp.Diagnostics)
}

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
		if !state.SkipDestroy.ValueBool() {
			protected(state, &resp.Diagnostics) // replacing destroys
		}
		return
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

func (r *shardCountResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	resp.Diagnostics.Append(identify(ctx, req.Plan, resp.Identity, shardCountIdentity)...)
	var plan shardCountModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	wait, diags := plan.Timeouts.Create(ctx, createTimeout)
	resp.Diagnostics.Append(diags...)
	want := plan.spec(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	prefix := plan.StreamPrefix.ValueString()
	what := fmt.Sprintf("create stream %q", prefix)
	parent, op := r.conn.begin(ctx, what, plan.Reason.ValueString(), map[string]any{"stream": prefix})
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()

	label := fmt.Sprintf("stream %q", prefix)
	claim, leave, err := r.conn.claims.enter(ctx, label)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	defer leave()
	if claim.made {
		resp.Diagnostics.Append(twice(label))
		return
	}

	// What is there already may be what an interrupted apply has left behind.
	var seen *protocol.Stream
	switch s, err := r.conn.client.Stream(ctx, prefix); {
	case errors.Is(err, protocol.ErrStreamNotFound):
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	default:
		foreign, err := r.conn.foreign(ctx, s, want)
		if err != nil {
			resp.Diagnostics.Append(r.conn.diagnose(what, err))
			return
		}
		if foreign != "" {
			resp.Diagnostics.Append(exists("Stream", prefix, redact(foreign, r.conn.secrets), prefix))
			return
		}
		seen = &s
	}

	s, id, err := op.declare(ctx, prefix, want, seen, "terraform: "+what)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	claim.made = true
	save := func(s protocol.Stream, last *protocol.Resharding) {
		resp.Diagnostics.Append(rememberSeen(parent, resp.Private, s.Generation)...)
		state := plan.settled(parent, s, last, types.ObjectNull(reshardingType.AttrTypes))
		resp.Diagnostics.Append(resp.State.Set(parent, &state)...)
	}
	if id == "" {
		last, err := r.conn.lastResharding(ctx, s)
		if err != nil { // only shown; the next refresh has it
			tflog.Warn(ctx, "last resharding not readable", map[string]any{"error": err.Error()})
		}
		save(s, last)
		return
	}

	resharding := unread(prefix, id, s.Status.ShardCount, want.ShardCount)
	save(s, &resharding) // the stream exists: from here on nothing may lose it
	resharding, err = op.await(ctx, resharding)
	switch {
	case err != nil:
		// The stream is there and gets its shards without us. An error would taint it, and a
		// tainted stream is destroyed by the next apply; the next refresh finds the work undone.
		s, resharding = r.conn.latest(parent, s, resharding)
		summary, detail := r.conn.stopped(parent, resharding, err, "timeouts.create", wait)
		resp.Diagnostics.AddWarning(summary, detail)
		save(s, &resharding)
	case !reached(resharding, want.ShardCount):
		// Undone again: there are no shards, and nothing to be kept in the state.
		resp.Diagnostics.Append(r.conn.ended(resharding))
		resp.State.RemoveResource(parent)
	default:
		if fresh, err := op.readBack(ctx, prefix); err == nil {
			s = fresh
		} else {
			tflog.Warn(ctx, "stream not readable after its creation", map[string]any{"error": err.Error()})
		}
		save(s, &resharding)
	}
}

func (r *shardCountResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	resp.Diagnostics.Append(identify(ctx, req.State, resp.Identity, shardCountIdentity)...)
	var m shardCountModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !r.conn.ready() {
		return // not ready: the state stands
	}
	ctx = r.conn.logContext(ctx)
	prefix := m.StreamPrefix.ValueString()
	what := fmt.Sprintf("read stream %q", prefix)

	s, err := r.conn.client.Stream(ctx, prefix)
	if errors.Is(err, protocol.ErrStreamNotFound) {
		resp.Diagnostics.AddWarning("Stream is gone", fmt.Sprintf("The coordinator has no stream %q; it is removed from the state.", prefix))
		resp.State.RemoveResource(ctx)
		return
	}
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	var last *protocol.Resharding
	if !m.shows(s) { // one that has ended does not change any more: no request for it
		if last, err = r.conn.lastResharding(ctx, s); err != nil {
			resp.Diagnostics.Append(r.conn.diagnose(what, err))
			return
		}
	}
	m.observe(ctx, s, last)
	m.ShardCount = countOf(confirmed(s, last))
	if resp.Private != nil { // a list has no private state
		resp.Diagnostics.Append(rememberSeen(ctx, resp.Private, s.Generation)...)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *shardCountResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	resp.Diagnostics.Append(identify(ctx, req.Plan, resp.Identity, shardCountIdentity)...)
	var plan, state shardCountModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	wait, diags := plan.Timeouts.Update(ctx, updateTimeout)
	resp.Diagnostics.Append(diags...)
	want := plan.spec(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if plan.sameRemote(ctx, state) && !plan.ledAway(state) { // deletion_protection or timeouts: the coordinator has no part in it
		plan.keepComputed(state)
		resp.Diagnostics.Append(resp.State.Set(ctx, &plan)...)
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	prefix := plan.StreamPrefix.ValueString()
	what := fmt.Sprintf("update stream %q", prefix)
	parent, op := r.conn.begin(ctx, what, plan.Reason.ValueString(), map[string]any{"stream": prefix})
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()

	seen, err := r.conn.client.Stream(ctx, prefix)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	if refused, yes := r.conn.changedSince(ctx, req.Private, seen, want); yes {
		resp.Diagnostics.Append(refused)
		return
	}
	s, id, err := op.declare(ctx, prefix, want, &seen, "terraform: "+what)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}

	// From here on the coordinator has the desired state. Until the stream has converged the state
	// shows what it has: the new policy and resharding, but the shard count before.
	save := func(r protocol.Resharding) {
		resp.Diagnostics.Append(rememberSeen(parent, resp.Private, s.Generation)...)
		state.observe(parent, s, &r)
		resp.Diagnostics.Append(resp.State.Set(parent, &state)...)
	}
	last := (*protocol.Resharding)(nil)
	if id != "" {
		begun := unread(prefix, id, int(state.ShardCount.ValueInt64()), want.ShardCount)
		save(begun) // so it stays, should nothing more come of this apply
		resharding, err := op.await(ctx, begun)
		if err != nil {
			s, resharding = r.conn.latest(parent, s, resharding)
			resp.Diagnostics.AddError(r.conn.stopped(parent, resharding, err, "timeouts.update", wait))
			save(resharding)
			return
		}
		if fresh, err := op.readBack(ctx, prefix); err == nil {
			s = fresh
		} else {
			tflog.Warn(ctx, "stream not readable after the resharding", map[string]any{"error": err.Error()})
		}
		if !reached(resharding, want.ShardCount) {
			resp.Diagnostics.Append(r.conn.ended(resharding))
			save(resharding)
			return
		}
		last = &resharding
	} else if last, err = r.conn.lastResharding(ctx, s); err != nil {
		tflog.Warn(ctx, "last resharding not readable", map[string]any{"error": err.Error()})
		last = nil
	}
	state = plan.settled(parent, s, last, state.LastResharding)
	resp.Diagnostics.Append(rememberSeen(parent, resp.Private, s.Generation)...)
	resp.Diagnostics.Append(resp.State.Set(parent, &state)...)
}

func (r *shardCountResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var state shardCountModel
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	wait, diags := state.Timeouts.Delete(ctx, deleteTimeout)
	resp.Diagnostics.Append(diags...)
	want := state.spec(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() || state.SkipDestroy.ValueBool() || protected(state, &resp.Diagnostics) {
		return
	}
	if !r.conn.ready() {
		resp.Diagnostics.Append(notReady())
		return
	}
	want.ShardCount = 0
	prefix := state.StreamPrefix.ValueString()
	what := fmt.Sprintf("destroy stream %q", prefix)
	parent, op := r.conn.begin(ctx, what, state.Reason.ValueString(), map[string]any{"stream": prefix})
	ctx, cancel := context.WithTimeout(parent, wait)
	defer cancel()

	label := fmt.Sprintf("stream %q", prefix)
	claim, leave, err := r.conn.claims.enter(ctx, label)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	defer leave()
	if claim.made {
		resp.Diagnostics.Append(stays(label))
		return
	}

	seen, err := r.conn.client.Stream(ctx, prefix)
	if errors.Is(err, protocol.ErrStreamNotFound) {
		return
	}
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	if refused, yes := r.conn.changedSince(ctx, req.Private, seen, want); yes {
		resp.Diagnostics.Append(refused)
		return
	}
	if !state.forced() && (seen.Spec.ShardCount != 0 || seen.Status.ShardCount != 0 || seen.Status.ActiveReshardingID != "") {
		s, id, err := op.declare(ctx, prefix, want, &seen, "terraform: "+what)
		if err != nil {
			resp.Diagnostics.Append(r.conn.diagnose(what, err))
			return
		}
		if id != "" {
			save := func(r protocol.Resharding) {
				resp.Diagnostics.Append(rememberSeen(parent, resp.Private, s.Generation)...)
				state.observe(parent, s, &r)
				resp.Diagnostics.Append(resp.State.Set(parent, &state)...)
			}
			begun := unread(prefix, id, int(state.ShardCount.ValueInt64()), 0)
			save(begun)
			resharding, err := op.await(ctx, begun)
			if err != nil {
				s, resharding = r.conn.latest(parent, s, resharding)
				resp.Diagnostics.AddError(r.conn.stopped(parent, resharding, err, "timeouts.delete", wait))
				save(resharding)
				return
			}
			if !reached(resharding, 0) {
				resp.Diagnostics.Append(r.conn.ended(resharding))
				save(resharding)
				return
			}
		}
	}

	body := protocol.DeleteStreamRequest{RequestedBy: r.conn.requestedBy, Reason: op.why("terraform: " + what)}
	if state.forced() {
		body.Force, body.Confirm = true, state.ForceDestroy.ValueString()
	}
	err = r.conn.client.DeleteStream(ctx, prefix, body, op.call())
	if err != nil && !errors.Is(err, protocol.ErrStreamNotFound) {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
	}
}

// ImportState takes a stream prefix. What only Terraform knows gets its safe value.
func (r *shardCountResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	req.ID = importID(ctx, req, &resp.Diagnostics, shardCountIdentity)
	if e := protocol.CheckName("stream_prefix", req.ID); e != nil {
		resp.Diagnostics.AddError("Invalid import id", e.Message+"; the id of a redisstream_shard_count is its stream prefix")
		return
	}
	if r.conn.ready() {
		// Whatever else keeps it from being read, the reading that follows tells.
		if s, err := r.conn.client.Stream(r.conn.logContext(ctx), req.ID); err == nil && s.Status.ShardCount == 0 {
			detail := fmt.Sprintf("Stream %q has no shards: its creation was rolled back, or its removal has begun. There is nothing to import; create it, or remove it by the coordinator's API.", req.ID)
			if s.Status.ActiveReshardingID != "" && s.Spec.ShardCount != 0 {
				detail = fmt.Sprintf("Stream %q is being created: it will have %d shards, and has none yet. Import it when it is there.", req.ID, s.Spec.ShardCount)
			}
			resp.Diagnostics.AddError("Stream has no shards yet", detail)
			return
		}
	}
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("stream_prefix"), req.ID)...)
	resp.Diagnostics.Append(importOwn(ctx, &resp.State)...)
}

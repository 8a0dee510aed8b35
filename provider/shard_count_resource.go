package provider

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
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

func (r *shardCountResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.conn = configured(req.ProviderData, &resp.Diagnostics)
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

	claim, leave := r.conn.claim(ctx, what, streamName(prefix), twice, &resp.Diagnostics)
	if claim == nil {
		return
	}
	defer leave()

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
			claim.refused = true
			resp.Diagnostics.Append(exists("Stream", prefix, redact(foreign, r.conn.secrets), prefix))
			return
		}
		seen = &s
	}

	s, id, err := op.declare(ctx, prefix, want, seen, "terraform: "+what)
	if err != nil && ctx.Err() != nil { // what was asked for may be done all the same
		if made, on := op.lastLook(parent, prefix, want); made != nil {
			s, id, err = *made, on, nil
		}
	}
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}
	resp.Diagnostics.Append(rememberMade(parent, resp.Private, s.CreatedAt)...)
	claim.made = true
	declared := s.Generation // what the state rests on, whatever somebody else changes from here on
	save := func(s protocol.Stream, last *protocol.Resharding) {
		resp.Diagnostics.Append(rememberSeen(parent, resp.Private, plan.goesWith(), declared)...)
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

	s, resharding, err := op.follow(ctx, s, unread(prefix, id, s.Status.ShardCount, want.ShardCount), save)
	switch {
	case err != nil:
		// The stream is there and gets its shards without us. An error would taint it, and a
		// tainted stream is destroyed by the next apply; the next refresh finds the work undone.
		summary, detail := r.conn.stopped(ctx, resharding, err, "timeouts.create", wait)
		resp.Diagnostics.AddWarning(summary, detail)
	case !reached(resharding, want.ShardCount):
		// Undone again: there are no shards, and nothing to be kept in the state.
		resp.Diagnostics.Append(r.conn.ended(resharding))
		resp.State.RemoveResource(parent)
	default:
		save(op.readBack(ctx, s), &resharding)
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
	r.conn.claims.sawState(streamName(prefix))

	s, err := r.conn.client.Stream(ctx, prefix)
	for errors.Is(err, protocol.ErrStreamNotFound) && madeJustNow(ctx, req.Private) {
		if err = pause(ctx, askAgain); err == nil {
			s, err = r.conn.client.Stream(ctx, prefix)
		}
	}
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
	before := m
	m.observe(ctx, s, last)
	m.ShardCount = countOf(confirmed(s, last))
	resp.Diagnostics.Append(rememberMade(ctx, resp.Private, s.CreatedAt)...)
	resp.Diagnostics.Append(rememberSeen(ctx, resp.Private, m.goesWith(), s.Generation)...)
	if !reflect.DeepEqual(m, before) { // the state is there already, and writing it is what costs
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
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
		resp.Diagnostics.Append(rememberName(ctx, resp.Private, plan.goesWith())...)
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
	if errors.Is(err, protocol.ErrStreamNotFound) {
		resp.Diagnostics.Append(goneStream(ctx, req.Private, prefix))
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
	s, id, err := op.declare(ctx, prefix, want, &seen, "terraform: "+what)
	if err != nil {
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
		return
	}

	// From here on the coordinator has the desired state. Until the stream has converged the state
	// shows what it has: the new policy and resharding, but the shard count before. Then it shows the
	// plan, and rests on what was declared, whatever somebody else has changed meanwhile.
	declared := s.Generation
	resp.Diagnostics.Append(rememberMade(parent, resp.Private, s.CreatedAt)...) // one that was made anew as it is wanted is taken
	save := func(s protocol.Stream, last *protocol.Resharding) {
		resp.Diagnostics.Append(rememberSeen(parent, resp.Private, state.goesWith(), s.Generation)...)
		state.observe(parent, s, last)
		resp.Diagnostics.Append(resp.State.Set(parent, &state)...)
	}
	var last *protocol.Resharding
	if id != "" {
		var resharding protocol.Resharding
		s, resharding, err = op.follow(ctx, s, unread(prefix, id, int(state.ShardCount.ValueInt64()), want.ShardCount), save)
		if err != nil {
			resp.Diagnostics.AddError(r.conn.stopped(ctx, resharding, err, "timeouts.update", wait))
			return
		}
		s = op.readBack(ctx, s)
		if !reached(resharding, want.ShardCount) {
			resp.Diagnostics.Append(r.conn.ended(resharding))
			save(s, &resharding)
			return
		}
		last = &resharding
	} else if last, err = r.conn.lastResharding(ctx, s); err != nil {
		tflog.Warn(ctx, "last resharding not readable", map[string]any{"error": err.Error()})
		last = nil
	}
	state = plan.settled(parent, s, last, state.LastResharding)
	resp.Diagnostics.Append(rememberSeen(parent, resp.Private, state.goesWith(), declared)...)
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

	claim, leave := r.conn.claimToDestroy(ctx, what, streamName(prefix), &resp.Diagnostics)
	if claim == nil {
		return
	}
	defer leave()

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
			save := func(s protocol.Stream, last *protocol.Resharding) {
				resp.Diagnostics.Append(rememberSeen(parent, resp.Private, state.goesWith(), s.Generation)...)
				state.observe(parent, s, last)
				resp.Diagnostics.Append(resp.State.Set(parent, &state)...)
			}
			s, resharding, err := op.follow(ctx, s, unread(prefix, id, int(state.ShardCount.ValueInt64()), 0), save)
			switch {
			case errors.Is(err, protocol.ErrStreamNotFound): // somebody else has finished it
				return
			case err != nil:
				resp.Diagnostics.AddError(r.conn.stopped(ctx, resharding, err, "timeouts.delete", wait))
				return
			case !reached(resharding, 0):
				resp.Diagnostics.Append(r.conn.ended(resharding))
				save(op.readBack(ctx, s), &resharding)
				return
			}
		}
	}

	body := protocol.DeleteStreamRequest{RequestedBy: r.conn.requestedBy, Reason: op.why("terraform: " + what)}
	if state.forced() {
		body.Force, body.Confirm = true, state.ForceDestroy.ValueString()
	}
	left := r.conn.groupsOf(ctx, prefix)
	err = op.removeStream(ctx, seen, body)
	switch {
	case errors.Is(err, protocol.ErrStreamNotFound):
	case err != nil:
		resp.Diagnostics.Append(r.conn.diagnose(what, err))
	case len(left) > 0:
		resp.Diagnostics.AddWarning("Consumer groups went with the stream", redact(fmt.Sprintf(
			"Stream %q was removed with the groups that were still registered on it, and their positions: %s. A group that is a resource, here or in another configuration, is missing there now: "+
				"the next plan of it makes it anew, where the stream exists.", prefix, strings.Join(left, ", ")), r.conn.secrets))
	}
}

// streamName is what a stream is called in messages and claims.
func streamName(prefix string) string { return fmt.Sprintf("stream %q", prefix) }

// removeStream deletes the stream that was seen. A request whose answer was lost is looked after: it is
// done, or it is sent again.
func (o operation) removeStream(ctx context.Context, seen protocol.Stream, body protocol.DeleteStreamRequest) error {
	const rounds = 5 // of requests that were lost on their way
	call := o.call()
	for round := 1; ; round++ {
		err := o.conn.client.DeleteStream(ctx, seen.StreamPrefix, body, call)
		if err == nil {
			return o.confirmGone(ctx, seen)
		}
		if ctx.Err() != nil || !unclear(err) {
			return err
		}
		now, readErr := o.conn.client.Stream(ctx, seen.StreamPrefix)
		var refusal *protocol.Error
		switch {
		case errors.Is(readErr, protocol.ErrStreamNotFound):
			return nil
		case errors.As(err, &refusal), round == rounds, readErr != nil, !now.CreatedAt.Equal(seen.CreatedAt), pause(ctx, askAgain) != nil:
			return err
		}
	}
}

// groupsOf names the consumer groups that are registered on a stream. None are told when they cannot
// be read: they are only shown.
func (c *connection) groupsOf(ctx context.Context, prefix string) []string {
	s, err := c.client.Stream(ctx, prefix)
	if err != nil {
		tflog.Warn(ctx, "consumer groups not readable before the removal of their stream", map[string]any{"error": err.Error()})
	}
	return s.Groups
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

package provider

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// shardCountModel is a redisstream_shard_count in configuration, plan and state.
type shardCountModel struct {
	// What the coordinator is told.
	StreamPrefix types.String  `tfsdk:"stream_prefix"`
	ShardCount   types.Int64   `tfsdk:"shard_count"`
	Strategy     types.String  `tfsdk:"strategy"`
	DrainScope   types.String  `tfsdk:"drain_scope"`
	Retire       types.String  `tfsdk:"retire"`
	PauseTimeout durationValue `tfsdk:"pause_timeout"`
	DrainTimeout durationValue `tfsdk:"drain_timeout"`
	OnTimeout    types.String  `tfsdk:"on_timeout"`
	IgnoreGroups types.Set     `tfsdk:"ignore_groups"`
	Retention    types.Object  `tfsdk:"retention"`
	// What only Terraform knows; the reason goes along with a change, but is none itself.
	DeletionProtection types.Bool     `tfsdk:"deletion_protection"`
	SkipDestroy        types.Bool     `tfsdk:"skip_destroy"`
	ForceDestroy       types.String   `tfsdk:"force_destroy"`
	Reason             types.String   `tfsdk:"reason"`
	Timeouts           timeouts.Value `tfsdk:"timeouts"`
	// What the coordinator tells.
	MetadataVersion types.Int64  `tfsdk:"metadata_version"`
	LayoutEpoch     types.Int64  `tfsdk:"layout_epoch"`
	PublishState    types.String `tfsdk:"publish_state"`
	Shards          types.List   `tfsdk:"shards"`
	LastResharding  types.Object `tfsdk:"last_resharding"`
}

var (
	shardType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"index": types.Int64Type, "key": types.StringType, "slot": types.Int64Type,
	}}
	phaseType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"phase": types.StringType, "started_at": types.StringType, "ended_at": types.StringType,
	}}
	reshardingType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"id": types.StringType, "from_shard_count": types.Int64Type, "to_shard_count": types.Int64Type,
		"strategy": types.StringType, "phase": types.StringType, "phases": types.ListType{ElemType: phaseType},
		"paused_ms": types.Int64Type, "order": types.StringType, "error": types.StringType,
		"certificate": certificateType,
	}}
	certificateType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"taken_at": types.StringType, "barrier": types.StringType, "confirmed_replicas": types.Int64Type,
		"shards": types.ListType{ElemType: certifiedType},
	}}
	certifiedType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"index": types.Int64Type, "last_id": types.StringType, "entries_added": types.Int64Type, "verdict": types.StringType,
	}}
)

// spec is the desired state of the stream that the model stands for.
func (m *shardCountModel) spec(ctx context.Context, diags *diag.Diagnostics) protocol.StreamSpec {
	var ignore []string
	if !m.IgnoreGroups.IsNull() {
		diags.Append(m.IgnoreGroups.ElementsAs(ctx, &ignore, false)...)
		slices.Sort(ignore)
	}
	keep, _ := retention(ctx, m.Retention, diags)
	return protocol.StreamSpec{
		ShardCount: int(m.ShardCount.ValueInt64()), Retention: keep,
		Resharding: protocol.ReshardingPolicy{
			Strategy:       protocol.Strategy(strings.ToUpper(m.Strategy.ValueString())),
			DrainScope:     protocol.DrainScope(strings.ToUpper(m.DrainScope.ValueString())),
			Retire:         protocol.Retire(strings.ToUpper(m.Retire.ValueString())),
			PauseTimeoutMs: m.PauseTimeout.ms(),
			DrainTimeoutMs: m.DrainTimeout.ms(),
			OnTimeout:      protocol.OnTimeout(strings.ToUpper(m.OnTimeout.ValueString())),
			IgnoreGroups:   ignore,
		},
	}
}

// observe takes what the coordinator reports: the policy in its spec and everything computed.
// It does not touch the shard count, which only a converged stream may change. r is the
// resharding that runs or ended last, nil when there is none to show.
func (m *shardCountModel) observe(ctx context.Context, s protocol.Stream, r *protocol.Resharding) {
	p := s.Spec.Resharding.WithDefaults()
	m.StreamPrefix = types.StringValue(s.StreamPrefix)
	m.Strategy = types.StringValue(lower(p.Strategy))
	m.DrainScope = types.StringValue(lower(p.DrainScope))
	m.Retire = types.StringValue(lower(p.Retire))
	m.OnTimeout = types.StringValue(lower(p.OnTimeout))
	if d := durationOfMs(p.PauseTimeoutMs); !m.PauseTimeout.same(d) {
		m.PauseTimeout = d
	}
	if d := durationOfMs(p.DrainTimeoutMs); !m.DrainTimeout.same(d) {
		m.DrainTimeout = d
	}
	if len(p.IgnoreGroups) > 0 || len(m.IgnoreGroups.Elements()) > 0 {
		m.IgnoreGroups = stringSet(p.IgnoreGroups)
	}
	m.Retention = observedRetention(ctx, m.Retention, s.Spec.Retention)

	m.MetadataVersion = types.Int64Value(s.MetadataVersion)
	m.LayoutEpoch = types.Int64Value(s.Status.LayoutEpoch)
	m.PublishState = types.StringValue(string(s.Status.PublishState))
	shards := make([]attr.Value, 0, len(s.Shards))
	for _, sh := range s.Shards {
		shards = append(shards, types.ObjectValueMust(shardType.AttrTypes, map[string]attr.Value{
			"index": types.Int64Value(int64(sh.ShardIndex)),
			"key":   types.StringValue(sh.StreamKey),
			"slot":  types.Int64Value(int64(sh.RedisSlot)),
		}))
	}
	m.Shards = types.ListValueMust(shardType, shards)
	switch {
	case r != nil:
		m.LastResharding = reshardingObject(*r)
	case m.LastResharding.IsUnknown() || m.LastResharding.IsNull():
		m.LastResharding = types.ObjectNull(reshardingType.AttrTypes)
	}
}

func reshardingObject(r protocol.Resharding) types.Object {
	phases := make([]attr.Value, 0, len(r.Phases))
	for _, p := range r.Phases {
		ended := types.StringNull()
		if p.EndedAt != nil {
			ended = types.StringValue(timestamp(*p.EndedAt))
		}
		phases = append(phases, types.ObjectValueMust(phaseType.AttrTypes, map[string]attr.Value{
			"phase": types.StringValue(string(p.Phase)), "started_at": types.StringValue(timestamp(p.StartedAt)), "ended_at": ended,
		}))
	}
	return types.ObjectValueMust(reshardingType.AttrTypes, map[string]attr.Value{
		"id":               types.StringValue(r.ReshardingID),
		"from_shard_count": types.Int64Value(int64(r.FromShardCount)),
		"to_shard_count":   types.Int64Value(int64(r.ToShardCount)),
		"strategy":         types.StringValue(lower(r.Strategy)),
		"phase":            types.StringValue(string(r.Phase)),
		"phases":           types.ListValueMust(phaseType, phases),
		"paused_ms":        types.Int64Value(r.PausedMs),
		"order":            types.StringValue(r.Order),
		"error":            types.StringValue(r.Error),
		"certificate":      certificateObject(r.Certificate),
	})
}

func certificateObject(c *protocol.DrainCertificate) types.Object {
	if c == nil {
		return types.ObjectNull(certificateType.AttrTypes)
	}
	shards := make([]attr.Value, 0, len(c.Shards))
	for _, s := range c.Shards {
		shards = append(shards, types.ObjectValueMust(certifiedType.AttrTypes, map[string]attr.Value{
			"index": types.Int64Value(int64(s.ShardIndex)), "last_id": types.StringValue(s.LastID),
			"entries_added": types.Int64Value(s.EntriesAdded), "verdict": types.StringValue(s.Verdict),
		}))
	}
	return types.ObjectValueMust(certificateType.AttrTypes, map[string]attr.Value{
		"taken_at": types.StringValue(timestamp(c.TakenAt)), "barrier": types.StringValue(c.Barrier),
		"confirmed_replicas": types.Int64Value(int64(c.ConfirmedReplicas)), "shards": types.ListValueMust(certifiedType, shards),
	})
}

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

func stringSet(names []string) types.Set {
	values := make([]attr.Value, 0, len(names))
	for _, n := range names {
		values = append(values, types.StringValue(n))
	}
	return types.SetValueMust(types.StringType, values)
}

// sameRemote says whether both stand for the same desired state of the same stream: whether a
// change from one to the other leaves nothing to tell the coordinator. Unknown values differ
// from everything.
func (m *shardCountModel) sameRemote(ctx context.Context, o shardCountModel) bool {
	return sameRetention(ctx, m.Retention, o.Retention) && m.StreamPrefix.Equal(o.StreamPrefix) && m.ShardCount.Equal(o.ShardCount) &&
		m.Strategy.Equal(o.Strategy) && m.DrainScope.Equal(o.DrainScope) && m.Retire.Equal(o.Retire) &&
		m.PauseTimeout.same(o.PauseTimeout) && m.DrainTimeout.same(o.DrainTimeout) &&
		m.OnTimeout.Equal(o.OnTimeout) && sameSet(m.IgnoreGroups, o.IgnoreGroups)
}

// sameRetention takes no block and the policy "none" for the same.
func sameRetention(ctx context.Context, a, b types.Object) bool {
	var ignored diag.Diagnostics
	ra, knownA := retention(ctx, a, &ignored)
	rb, knownB := retention(ctx, b, &ignored)
	return knownA && knownB && ra == rb
}

// sameSet takes null and empty for the same.
func sameSet(a, b types.Set) bool {
	if a.IsUnknown() || b.IsUnknown() {
		return false
	}
	return len(a.Elements()) == 0 && len(b.Elements()) == 0 || a.Equal(b)
}

// declared says whether everything that the coordinator would be told is known.
func (m *shardCountModel) declared(ctx context.Context) bool {
	for _, v := range []attr.Value{m.StreamPrefix, m.ShardCount, m.Strategy, m.DrainScope, m.Retire, m.PauseTimeout, m.DrainTimeout, m.OnTimeout, m.IgnoreGroups} {
		if v.IsUnknown() {
			return false
		}
	}
	for _, v := range m.IgnoreGroups.Elements() {
		if v.IsUnknown() {
			return false
		}
	}
	var ignored diag.Diagnostics
	_, known := retention(ctx, m.Retention, &ignored)
	return known
}

// forced says whether a destroy does not wait for the drain.
func (m *shardCountModel) forced() bool {
	return m.ForceDestroy.ValueString() != "" && m.ForceDestroy.ValueString() == m.StreamPrefix.ValueString()
}

// shows says whether the state already has the resharding that ended last, as it ended.
func (m *shardCountModel) shows(s protocol.Stream) bool {
	if s.Status.ActiveReshardingID != "" || m.LastResharding.IsNull() || m.LastResharding.IsUnknown() {
		return false
	}
	var last struct {
		ID    types.String
		Phase types.String
	}
	var ok bool
	if last.ID, ok = m.LastResharding.Attributes()["id"].(types.String); !ok {
		return false
	}
	if last.Phase, ok = m.LastResharding.Attributes()["phase"].(types.String); !ok {
		return false
	}
	return last.ID.ValueString() == s.Status.LastReshardingID && protocol.Phase(last.Phase.ValueString()).Terminal()
}

// keepComputed takes over from the state what a change that is Terraform's own business cannot
// alter, in the very form that the state has: nothing of it shows up as a difference.
func (m *shardCountModel) keepComputed(state shardCountModel) {
	m.PauseTimeout, m.DrainTimeout, m.Reason = state.PauseTimeout, state.DrainTimeout, state.Reason
	m.MetadataVersion, m.LayoutEpoch, m.PublishState = state.MetadataVersion, state.LayoutEpoch, state.PublishState
	m.Shards, m.LastResharding = state.Shards, state.LastResharding
}

// settle fills a plan that has been carried out. What was configured stays as it was written:
// should somebody have changed it since, the next refresh tells. before is the resharding to
// show when last is nil.
func (m *shardCountModel) settle(ctx context.Context, s protocol.Stream, last *protocol.Resharding, before types.Object) {
	inputs := *m
	m.LastResharding = before
	m.observe(ctx, s, last)
	m.StreamPrefix, m.Strategy, m.DrainScope, m.Retire = inputs.StreamPrefix, inputs.Strategy, inputs.DrainScope, inputs.Retire
	m.PauseTimeout, m.DrainTimeout, m.OnTimeout = inputs.PauseTimeout, inputs.DrainTimeout, inputs.OnTimeout
	m.IgnoreGroups, m.Retention = inputs.IgnoreGroups, inputs.Retention
}

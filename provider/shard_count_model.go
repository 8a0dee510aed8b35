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
	ShardCount   countValue    `tfsdk:"shard_count"`
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
	reshardingType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"id": types.StringType, "from_shard_count": types.Int64Type, "to_shard_count": types.Int64Type,
		"strategy": types.StringType, "phase": types.StringType,
		"paused_ms": types.Int64Type, "order": types.StringType, "error": types.StringType,
		"certificate": certificateType,
	}}
	certificateType = types.ObjectType{AttrTypes: map[string]attr.Type{
		"taken_at": types.StringType, "barrier": types.StringType, "confirmed_replicas": types.Int64Type,
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
		shards = append(shards, shardObject(sh.ShardIndex, sh.StreamKey, sh.RedisSlot))
	}
	m.Shards = types.ListValueMust(shardType, shards)
	switch {
	case r != nil:
		m.LastResharding = reshardingObject(*r)
	case m.LastResharding.IsUnknown() || m.LastResharding.IsNull():
		m.LastResharding = types.ObjectNull(reshardingType.AttrTypes)
	}
}

func shardObject(index int, key string, slot int) types.Object {
	return types.ObjectValueMust(shardType.AttrTypes, map[string]attr.Value{
		"index": types.Int64Value(int64(index)), "key": types.StringValue(key), "slot": types.Int64Value(int64(slot)),
	})
}

// layout is the shards of a stream that has converged to a count: they follow from its name.
func layout(prefix string, count int) types.List {
	shards := make([]attr.Value, count)
	for i := range shards {
		key := protocol.ShardKey(prefix, i)
		shards[i] = shardObject(i, key, protocol.RedisSlot(key))
	}
	return types.ListValueMust(shardType, shards)
}

func reshardingObject(r protocol.Resharding) types.Object {
	return types.ObjectValueMust(reshardingType.AttrTypes, map[string]attr.Value{
		"id":               types.StringValue(r.ReshardingID),
		"from_shard_count": types.Int64Value(int64(r.FromShardCount)),
		"to_shard_count":   types.Int64Value(int64(r.ToShardCount)),
		"strategy":         types.StringValue(lower(r.Strategy)),
		"phase":            types.StringValue(string(r.Phase)),
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
	return types.ObjectValueMust(certificateType.AttrTypes, map[string]attr.Value{
		"taken_at": types.StringValue(timestamp(c.TakenAt)), "barrier": types.StringValue(c.Barrier),
		"confirmed_replicas": types.Int64Value(int64(c.ConfirmedReplicas)),
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

// forgetObserved marks what the coordinator tells as known after apply, but for the shards, which
// follow from the count. Also a change of settings alone does that: what stood in the state may
// have moved on by the time of the apply.
func (m *shardCountModel) forgetObserved(count int) {
	m.MetadataVersion, m.LayoutEpoch, m.PublishState = types.Int64Unknown(), types.Int64Unknown(), types.StringUnknown()
	m.LastResharding = types.ObjectUnknown(reshardingType.AttrTypes)
	m.Shards = layout(m.StreamPrefix.ValueString(), count)
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

// goesWith names the stream that a destroy of this state removes; "" for one that only forgets.
func (m *shardCountModel) goesWith() string {
	if m.SkipDestroy.ValueBool() {
		return ""
	}
	return m.StreamPrefix.ValueString()
}

// resharding is the resharding in the state: its id, where it leads, and whether it was still
// running when it was seen.
func (m *shardCountModel) resharding() (id string, to int, running bool) {
	if m.LastResharding.IsNull() || m.LastResharding.IsUnknown() {
		return "", 0, false
	}
	a := m.LastResharding.Attributes()
	name, _ := a["id"].(types.String)
	count, _ := a["to_shard_count"].(types.Int64)
	phase, _ := a["phase"].(types.String)
	return name.ValueString(), int(count.ValueInt64()), name.ValueString() != "" && !protocol.Phase(phase.ValueString()).Terminal()
}

// ledAway says whether a resharding runs, as far as the state knows, that does not lead to the
// shard count of m: then asking for m changes something although the state has that count.
func (m *shardCountModel) ledAway(state shardCountModel) bool {
	_, to, running := state.resharding()
	return running && int64(to) != m.ShardCount.ValueInt64()
}

// shows says whether the state already has the resharding that ended last, as it ended.
func (m *shardCountModel) shows(s protocol.Stream) bool {
	id, _, running := m.resharding()
	return s.Status.ActiveReshardingID == "" && id != "" && !running && id == s.Status.LastReshardingID
}

// keepComputed takes over from the state what a change that is Terraform's own business cannot
// alter, in the very form that the state has: nothing of it shows up as a difference.
func (m *shardCountModel) keepComputed(state shardCountModel) {
	m.PauseTimeout, m.DrainTimeout, m.Reason = state.PauseTimeout, state.DrainTimeout, state.Reason
	m.MetadataVersion, m.LayoutEpoch, m.PublishState = state.MetadataVersion, state.LayoutEpoch, state.PublishState
	m.Shards, m.LastResharding = state.Shards, state.LastResharding
}

// settled is the state after a plan that has been carried out. What was configured, and what the
// plan showed, stays as it was: should somebody have changed it since, the next refresh tells.
// before is the resharding to show when last is nil.
func (m shardCountModel) settled(ctx context.Context, s protocol.Stream, last *protocol.Resharding, before types.Object) shardCountModel {
	out := m
	out.LastResharding = before
	out.observe(ctx, s, last)
	out.StreamPrefix, out.Strategy, out.DrainScope, out.Retire = m.StreamPrefix, m.Strategy, m.DrainScope, m.Retire
	out.PauseTimeout, out.DrainTimeout, out.OnTimeout = m.PauseTimeout, m.DrainTimeout, m.OnTimeout
	out.IgnoreGroups, out.Retention = m.IgnoreGroups, m.Retention
	if !m.Shards.IsUnknown() {
		out.Shards = m.Shards
	}
	return out
}

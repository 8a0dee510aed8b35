package provider

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// streamGroupModel is a redisstream_stream_group in configuration, plan and state.
type streamGroupModel struct {
	// What the coordinator is told.
	StreamPrefix      types.String  `tfsdk:"stream_prefix"`
	ConsumerGroup     types.String  `tfsdk:"consumer_group"`
	StartPosition     types.String  `tfsdk:"start_position"`
	MemberLease       durationValue `tfsdk:"member_lease"`
	HeartbeatInterval durationValue `tfsdk:"heartbeat_interval"`
	RebalanceTimeout  durationValue `tfsdk:"rebalance_timeout"`
	// What only Terraform knows.
	DeletionProtection types.Bool     `tfsdk:"deletion_protection"`
	SkipDestroy        types.Bool     `tfsdk:"skip_destroy"`
	ForceDestroy       types.Bool     `tfsdk:"force_destroy"`
	Reason             types.String   `tfsdk:"reason"`
	Timeouts           timeouts.Value `tfsdk:"timeouts"`
	// What the coordinator tells.
	State           types.String `tfsdk:"state"`
	GroupEpoch      types.Int64  `tfsdk:"group_epoch"`
	AssignmentEpoch types.Int64  `tfsdk:"assignment_epoch"`
	MetadataVersion types.Int64  `tfsdk:"metadata_version"`
	ShardCount      types.Int64  `tfsdk:"shard_count"`
}

// spec is the desired state of the group that the model stands for; what is null or unknown
// takes its default.
func (m *streamGroupModel) spec() protocol.GroupSpec {
	return protocol.GroupSpec{
		StartPosition:       protocol.StartPosition(strings.ToUpper(m.StartPosition.ValueString())),
		MemberLeaseMs:       m.MemberLease.ms(),
		HeartbeatIntervalMs: m.HeartbeatInterval.ms(),
		RebalanceTimeoutMs:  m.RebalanceTimeout.ms(),
	}.WithDefaults()
}

// wanted is the group that the model stands for, as it is to be.
func (m *streamGroupModel) wanted() protocol.Group {
	return protocol.Group{StreamPrefix: m.StreamPrefix.ValueString(), ConsumerGroup: m.ConsumerGroup.ValueString(), State: protocol.GroupEmpty, Spec: m.spec()}
}

// name is what the group is imported by; "" while it is not known.
func (m *streamGroupModel) name() string {
	if m.StreamPrefix.IsUnknown() || m.ConsumerGroup.IsUnknown() {
		return ""
	}
	return m.StreamPrefix.ValueString() + "/" + m.ConsumerGroup.ValueString()
}

// goesWith names the group that a destroy of this state removes; "" for one that only forgets.
func (m *streamGroupModel) goesWith() string {
	if m.SkipDestroy.ValueBool() {
		return ""
	}
	return m.name()
}

// declared says whether everything that the coordinator is told is known.
func (m *streamGroupModel) declared() bool {
	return !m.StreamPrefix.IsUnknown() && !m.ConsumerGroup.IsUnknown() && !m.StartPosition.IsUnknown() &&
		m.MemberLease.known() && m.HeartbeatInterval.known() && m.RebalanceTimeout.known()
}

// observe takes what the coordinator reports; durations that are only written in another way
// keep their form.
func (m *streamGroupModel) observe(g protocol.Group) {
	spec := g.Spec.WithDefaults()
	m.StreamPrefix = types.StringValue(g.StreamPrefix)
	m.ConsumerGroup = types.StringValue(g.ConsumerGroup)
	m.StartPosition = types.StringValue(lower(spec.StartPosition))
	for _, d := range []struct {
		mine *durationValue
		ms   int64
	}{{&m.MemberLease, spec.MemberLeaseMs}, {&m.HeartbeatInterval, spec.HeartbeatIntervalMs}, {&m.RebalanceTimeout, spec.RebalanceTimeoutMs}} {
		if reported := durationOfMs(d.ms); !d.mine.same(reported) {
			*d.mine = reported
		}
	}
	m.State = types.StringValue(string(g.State))
	m.GroupEpoch = types.Int64Value(g.GroupEpoch)
	m.AssignmentEpoch = types.Int64Value(g.AssignmentEpoch)
	m.MetadataVersion = types.Int64Value(g.MetadataVersion)
	m.ShardCount = types.Int64Value(int64(g.ShardCount))
}

// settle fills a plan that has been carried out; what was configured stays as it was written.
func (m *streamGroupModel) settle(g protocol.Group) {
	inputs := *m
	m.observe(g)
	m.StreamPrefix, m.ConsumerGroup, m.StartPosition = inputs.StreamPrefix, inputs.ConsumerGroup, inputs.StartPosition
	m.MemberLease, m.HeartbeatInterval, m.RebalanceTimeout = inputs.MemberLease, inputs.HeartbeatInterval, inputs.RebalanceTimeout
}

// sameRemote says whether a change from one to the other leaves nothing to tell the
// coordinator. Unknown values differ from everything.
func (m *streamGroupModel) sameRemote(o streamGroupModel) bool {
	return m.StreamPrefix.Equal(o.StreamPrefix) && m.ConsumerGroup.Equal(o.ConsumerGroup) && m.StartPosition.Equal(o.StartPosition) &&
		m.MemberLease.same(o.MemberLease) && m.HeartbeatInterval.same(o.HeartbeatInterval) && m.RebalanceTimeout.same(o.RebalanceTimeout)
}

// keepComputed takes over from the state what a change that is Terraform's own business cannot
// alter, in the form that the state has.
func (m *streamGroupModel) keepComputed(state streamGroupModel) {
	m.MemberLease, m.HeartbeatInterval, m.RebalanceTimeout = state.MemberLease, state.HeartbeatInterval, state.RebalanceTimeout
	m.Reason = state.Reason
	m.State, m.GroupEpoch, m.AssignmentEpoch = state.State, state.GroupEpoch, state.AssignmentEpoch
	m.MetadataVersion, m.ShardCount = state.MetadataVersion, state.ShardCount
}

// forgetComputed marks what the coordinator tells as known after apply.
func (m *streamGroupModel) forgetComputed() {
	m.State = types.StringUnknown()
	m.GroupEpoch, m.AssignmentEpoch = types.Int64Unknown(), types.Int64Unknown()
	m.MetadataVersion, m.ShardCount = types.Int64Unknown(), types.Int64Unknown()
}

// groupDifferences names what differs between what is and what is wanted, in the words of the
// configuration.
func groupDifferences(is, want protocol.GroupSpec) string {
	is, want = is.WithDefaults(), want.WithDefaults()
	var out []string
	differ := func(name, a, b string) {
		if a != b {
			out = append(out, name+" is "+a+", wanted "+b)
		}
	}
	differ("start_position", lower(is.StartPosition), lower(want.StartPosition))
	differ("member_lease", durationOfMs(is.MemberLeaseMs).ValueString(), durationOfMs(want.MemberLeaseMs).ValueString())
	differ("heartbeat_interval", durationOfMs(is.HeartbeatIntervalMs).ValueString(), durationOfMs(want.HeartbeatIntervalMs).ValueString())
	differ("rebalance_timeout", durationOfMs(is.RebalanceTimeoutMs).ValueString(), durationOfMs(want.RebalanceTimeoutMs).ValueString())
	return strings.Join(out, "; ")
}

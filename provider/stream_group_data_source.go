package provider

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func newStreamGroupDataSource() datasource.DataSource {
	return &streamGroupDataSource{dataSource{name: "stream_group"}}
}

func newStreamGroupsDataSource() datasource.DataSource {
	return &streamGroupsDataSource{dataSource{name: "stream_groups"}}
}

type (
	streamGroupDataSource  struct{ dataSource }
	streamGroupsDataSource struct{ dataSource }
)

// groupView is a redisstream_stream_group, and an element of a redisstream_stream_groups.
type groupView struct {
	StreamPrefix      string       `tfsdk:"stream_prefix"`
	ConsumerGroup     string       `tfsdk:"consumer_group"`
	State             string       `tfsdk:"state"`
	Converged         bool         `tfsdk:"converged"`
	Ready             bool         `tfsdk:"ready"`
	GroupEpoch        int64        `tfsdk:"group_epoch"`
	AssignmentEpoch   int64        `tfsdk:"assignment_epoch"`
	MetadataVersion   int64        `tfsdk:"metadata_version"`
	ShardCount        int          `tfsdk:"shard_count"`
	StartPosition     string       `tfsdk:"start_position"`
	MemberLease       string       `tfsdk:"member_lease"`
	HeartbeatInterval string       `tfsdk:"heartbeat_interval"`
	RebalanceTimeout  string       `tfsdk:"rebalance_timeout"`
	Members           []memberView `tfsdk:"members"`
}

type memberView struct {
	MemberID      string `tfsdk:"member_id"`
	TargetShards  int    `tfsdk:"target_shards"`
	CurrentShards int    `tfsdk:"current_shards"`
}

// groupsView is a redisstream_stream_groups.
type groupsView struct {
	StreamPrefix *string     `tfsdk:"stream_prefix"`
	Groups       []groupView `tfsdk:"groups"`
}

// groupAttributes are all but the two names.
func groupAttributes(more map[string]schema.Attribute) map[string]schema.Attribute {
	all := map[string]schema.Attribute{
		"state":              textOut("`EMPTY` without members, `RECONCILING` while shards move, `STABLE` otherwise."),
		"converged":          flagOut("Whether nothing moves: it is ready, and no shard is on its way between members."),
		"ready":              flagOut("Whether its Redis consumer group exists on every shard."),
		"group_epoch":        numberOut("Rises with every change of members or layout."),
		"assignment_epoch":   numberOut("Group epoch for which the target assignment was computed."),
		"metadata_version":   numberOut("Version of the layout that the group's clients see."),
		"shard_count":        numberOut("Shard count of the stream."),
		"start_position":     textOut("`earliest` or `latest`: where it began on the shards that existed at its creation."),
		"member_lease":       textOut("For how long a member may read after its last heartbeat, as a duration."),
		"heartbeat_interval": textOut("How often members send heartbeats, as a duration."),
		"rebalance_timeout":  textOut("How long a member may take to release a shard, as a duration."),
		"members": objectsOut("Its members, in the order of their id.", map[string]schema.Attribute{
			"member_id":      textOut("Id of the member."),
			"target_shards":  numberOut("How many shards it should own."),
			"current_shards": numberOut("How many it owns now."),
		}),
	}
	maps.Copy(all, more)
	return all
}

func (d *streamGroupDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "One consumer group of a stream as the coordinator has it now, with its members. A group that does not exist is an error.",
		Attributes: groupAttributes(map[string]schema.Attribute{
			"stream_prefix":  prefixArgument(),
			"consumer_group": schema.StringAttribute{Required: true, MarkdownDescription: "Name of the consumer group.", Validators: []validator.String{nameValidator{}}},
		}),
	}
}

func (d *streamGroupDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	prefix, group := argument(ctx, req, resp, "stream_prefix"), argument(ctx, req, resp, "consumer_group")
	lookUp(ctx, &d.dataSource, resp, reading("consumer group %q of stream %q", group, prefix), func(ctx context.Context) (groupView, error) {
		g, err := d.conn.client.Group(ctx, prefix, group)
		return viewGroup(g), err
	})
}

func (d *streamGroupsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The consumer groups of one stream, or of all. A stream that does not exist is an error.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Stream prefix of the stream. Default: the groups of all streams.", Validators: []validator.String{nameValidator{}},
			},
			"groups": objectsOut("The groups, in the order of stream prefix and name.", groupAttributes(map[string]schema.Attribute{
				"stream_prefix":  textOut("Stream prefix of its stream."),
				"consumer_group": textOut("Name of the consumer group."),
			})),
		},
	}
}

func (d *streamGroupsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	prefix := argument(ctx, req, resp, "stream_prefix")
	what := reading("consumer groups")
	if prefix != "" {
		what = reading("consumer groups of stream %q", prefix)
	}
	lookUp(ctx, &d.dataSource, resp, what, func(ctx context.Context) (groupsView, error) {
		v := groupsView{StreamPrefix: shownText(prefix)}
		if prefix != "" { // a stream without groups is not one that does not exist
			if _, err := d.conn.client.Stream(ctx, prefix); err != nil {
				return v, err
			}
		}
		list, err := d.conn.client.Groups(ctx)
		if err != nil {
			return v, err
		}
		all := slices.DeleteFunc(list.Groups, func(g protocol.Group) bool { return prefix != "" && g.StreamPrefix != prefix })
		slices.SortFunc(all, func(a, b protocol.Group) int {
			return cmp.Or(cmp.Compare(a.StreamPrefix, b.StreamPrefix), cmp.Compare(a.ConsumerGroup, b.ConsumerGroup))
		})
		v.Groups = each(all, viewGroup)
		return v, nil
	})
}

func viewGroup(g protocol.Group) groupView {
	spec := g.Spec.WithDefaults()
	members := map[string]memberView{}
	for id, n := range g.TargetAssignmentSummary {
		members[id] = memberView{MemberID: id, TargetShards: n}
	}
	for id, n := range g.CurrentAssignmentSummary {
		members[id] = memberView{MemberID: id, TargetShards: members[id].TargetShards, CurrentShards: n}
	}
	return groupView{
		StreamPrefix: g.StreamPrefix, ConsumerGroup: g.ConsumerGroup, State: string(g.State), Ready: g.Ready,
		Converged:  g.Ready && (g.State == protocol.GroupStable || g.State == protocol.GroupEmpty),
		GroupEpoch: g.GroupEpoch, AssignmentEpoch: g.AssignmentEpoch, MetadataVersion: g.MetadataVersion, ShardCount: g.ShardCount,
		StartPosition: lower(spec.StartPosition), MemberLease: shownDuration(spec.MemberLeaseMs),
		HeartbeatInterval: shownDuration(spec.HeartbeatIntervalMs), RebalanceTimeout: shownDuration(spec.RebalanceTimeoutMs),
		Members: each(slices.Sorted(maps.Keys(members)), func(id string) memberView { return members[id] }),
	}
}

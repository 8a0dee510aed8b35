package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Schema describes redisstream_stream_group: what is declared, what only Terraform knows, what the coordinator
// tells.
func (r *streamGroupResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	d := protocol.DefaultGroupSpec()
	text := func(ms int64) string { return durationOfMs(ms).ValueString() }
	resp.Schema = schema.Schema{
		Version: schemaVersion,
		MarkdownDescription: "A consumer group of a logical stream: its members share the shards, each shard being read by one member at a time. " +
			"Creating it makes the Redis consumer group on every shard, including those that are added later. " +
			"Destroying it removes the Redis consumer group from every shard; entries stay on the shards for the other groups. " +
			"While the group has live members, or entries that it has not read and acknowledged, the coordinator refuses that unless `force_destroy` is set.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Stream prefix of the stream. Refer to the `stream_prefix` of a `redisstream_shard_count`, so that Terraform makes the stream first. " +
					"A change replaces the group.",
				Validators:    []validator.String{nameValidator{}},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"consumer_group": schema.StringAttribute{
				Required: true,
				MarkdownDescription: "Name of the consumer group, also in Redis. 1 to 256 bytes without white space, control characters, braces and slashes. " +
					"A change replaces the group.",
				Validators:    []validator.String{nameValidator{}},
				PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
			},
			"start_position": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(lower(d.StartPosition)),
				MarkdownDescription: "Where the group begins on the shards that exist when it is created: `earliest` (default) reads everything that they hold, `latest` only what is " +
					"appended afterwards. On shards that are added later it always begins at the first entry. It cannot be changed afterwards: the plan says so.",
				Validators: []validator.String{choice{"earliest", "latest"}},
			},
			"member_lease": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true,
				MarkdownDescription: "For how long a member may read its shards after its last heartbeat, as a duration such as `\"15s\"`; 1s to 10m, at least 5 × `heartbeat_interval`. " +
					"When a member dies, its shards move after that time. Default: 5 × `heartbeat_interval` or 1s, whichever is longer; `\"" + text(d.MemberLeaseMs) + "\"` if neither is set. Members take up a change with their next heartbeat.",
				Validators: []validator.String{durationBetween{protocol.MinMemberLeaseMs * time.Millisecond, 10 * time.Minute}},
			},
			"heartbeat_interval": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true,
				MarkdownDescription: "How often a member sends a heartbeat, as a duration; 100ms to 2m, at most a fifth of `member_lease`. Default: a fifth of `member_lease`, `\"" +
					text(d.HeartbeatIntervalMs) + "\"` if neither is set. Members take up a change with their next heartbeat.",
				Validators: []validator.String{durationBetween{100 * time.Millisecond, 2 * time.Minute}},
			},
			"rebalance_timeout": schema.StringAttribute{
				CustomType: durationType{}, Optional: true, Computed: true, Default: stringdefault.StaticString(text(d.RebalanceTimeoutMs)),
				MarkdownDescription: "How long a member may take to release a shard that is revoked from it before it is fenced, as a duration; 100ms to 1h, default `\"" +
					text(d.RebalanceTimeoutMs) + "\"`. A change applies to later revocations.",
				Validators: []validator.String{durationBetween{100 * time.Millisecond, time.Hour}},
			},
			"deletion_protection": deletionProtection("group"),
			"skip_destroy":        skipDestroy("group"),
			"force_destroy": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(false),
				MarkdownDescription: "Whether the group may be destroyed while it has live members, which are then fenced, or entries that it has not read and acknowledged, **which are then lost to it**. " +
					"Default `false`: the coordinator refuses, and names shards and counts. It must be applied before the destroy.",
			},
			"reason": reasonArgument(),

			"timeouts": timeouts.Attributes(ctx, timeouts.Opts{
				Create: true, Update: true, Delete: true,
				CreateDescription: "How long a create waits until the group is ready on every shard, as a duration; default `\"5m\"`. When it passes, the group stays, with a warning.",
				UpdateDescription: "How long an update waits until the group is ready on every shard, as a duration; default `\"5m\"`. When it passes, the apply fails, and the new settings stay.",
				DeleteDescription: "How long a destroy waits until no shard has the Redis consumer group any more, as a duration; default `\"5m\"`. When it passes, the destroy fails, and the coordinator goes on.",
			}),

			"state": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "`EMPTY` without members, `RECONCILING` while shards move, `STABLE` otherwise.",
			},
			"group_epoch": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Rises with every change of members or layout.",
			},
			"assignment_epoch": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Group epoch for which the target assignment was computed.",
			},
			"metadata_version": schema.Int64Attribute{
				Computed:            true,
				MarkdownDescription: "Version of the layout that the group's clients see, as of the last refresh: a resharding in the same apply raises it, and this shows it one plan later.",
			},
			"shard_count": schema.Int64Attribute{
				Computed: true,
				MarkdownDescription: "Shard count of the stream, as of the last refresh: a resharding in the same apply changes it, and this shows it one plan later. " +
					"An output of it therefore differs after each resharding; take `shard_count` of `redisstream_shard_count` for one, or the data source `redisstream_stream_group`.",
			},
		},
	}
}

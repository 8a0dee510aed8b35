package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Schema describes redisstream_shard_count: what is declared, what only Terraform knows, what the coordinator
// tells.
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
				CustomType: countType{most: protocol.MaxShardCount},
				Required:   true,
				MarkdownDescription: fmt.Sprintf("Number of shards, 1 to %d. A change reshards the stream in place, as the other arguments say. "+
					"In the state it is the last confirmed count: while a resharding runs, and after one that failed, the count before it. Behind a create that was cut short it is the count that was asked for, and from the next refresh on 0 until the stream has its shards.", protocol.MaxShardCount),
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
				Validators: []validator.Set{setvalidator.SizeAtMost(protocol.MaxIgnoreGroups), setvalidator.NoNullValues(), setvalidator.ValueStringsAre(nameValidator{})},
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

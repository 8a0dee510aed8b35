package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func newRoutingDataSource() datasource.DataSource {
	return &routingDataSource{dataSource{name: "routing"}}
}

type routingDataSource struct{ dataSource }

// routingView is a redisstream_routing.
type routingView struct {
	StreamPrefix     string             `tfsdk:"stream_prefix"`
	MetadataVersion  int64              `tfsdk:"metadata_version"`
	RoutingVersion   int64              `tfsdk:"routing_version"`
	LayoutEpoch      int64              `tfsdk:"layout_epoch"`
	ShardCount       int                `tfsdk:"shard_count"`
	PublishState     string             `tfsdk:"publish_state"`
	PausedUntil      *string            `tfsdk:"paused_until"`
	Hash             string             `tfsdk:"hash"`
	StreamKeyPattern string             `tfsdk:"stream_key_pattern"`
	Lease            string             `tfsdk:"lease"`
	Shards           []routingShardView `tfsdk:"shards"`
}

type routingShardView struct {
	Index int    `tfsdk:"index"`
	Key   string `tfsdk:"key"`
	Slot  int    `tfsdk:"slot"`
}

func (d *routingDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The routing table of a stream, as its producers get it: which Redis key holds which shard. Reading it leaves no trace: Terraform is not " +
			"taken for a producer. A stream that does not exist is an error.\n\n" +
			"Do not hand it to producers as configuration: they would append by an old layout after the next resharding. They ask the coordinator themselves.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix":      prefixArgument(),
			"metadata_version":   numberOut("Version of the layout that clients see."),
			"routing_version":    numberOut("Changes with anything in this table."),
			"layout_epoch":       numberOut("Epoch of the layout in force."),
			"shard_count":        numberOut("Number of shards among which keys are spread."),
			"publish_state":      textOut("`OPEN` or `PAUSED`."),
			"paused_until":       textOut("When an operator's pause ends by itself, RFC 3339, UTC; null when there is none."),
			"hash":               textOut("Name of the hash by which a key finds its shard; the function `shard_index` computes it."),
			"stream_key_pattern": textOut("Pattern of the shards' Redis keys."),
			"lease":              textOut("How long a producer may use the table without asking again, as a duration."),
			"shards": objectsOut("The shards, in the order of their index.", map[string]schema.Attribute{
				"index": numberOut("Index, from 0."),
				"key":   textOut("Redis key of the shard."),
				"slot":  numberOut("Slot of the key on a Redis Cluster, 0 to 16383."),
			}),
		},
	}
}

func (d *routingDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	prefix := argument(ctx, req, resp, "stream_prefix")
	lookUp(ctx, &d.dataSource, resp, reading("routing of stream %q", prefix), func(ctx context.Context) (routingView, error) {
		// Fenced and without a producer's name: not taken for a producer, least of all for a plain
		// one, which would hold up the next resharding.
		r, err := d.conn.client.Routing(ctx, prefix, client.RoutingQuery{Fenced: true})
		return routingView{
			StreamPrefix: r.StreamPrefix, MetadataVersion: r.MetadataVersion, RoutingVersion: r.RoutingVersion, LayoutEpoch: r.LayoutEpoch,
			ShardCount: r.ShardCount, PublishState: string(r.PublishState), PausedUntil: shownTime(r.PausedUntil),
			Hash: r.Hash, StreamKeyPattern: r.StreamKeyPattern, Lease: shownDuration(r.LeaseMs),
			Shards: each(r.Shards, func(s protocol.RoutingShard) routingShardView {
				return routingShardView{Index: s.ShardIndex, Key: s.StreamKey, Slot: s.RedisSlot}
			}),
		}, err
	})
}

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func newStreamDataSource() datasource.DataSource {
	return &streamDataSource{dataSource{name: "stream"}}
}

type streamDataSource struct{ dataSource }

// streamView is a redisstream_stream.
type streamView struct {
	StreamPrefix       string          `tfsdk:"stream_prefix"`
	ShardCount         int             `tfsdk:"shard_count"`
	DesiredShardCount  int             `tfsdk:"desired_shard_count"`
	Converged          bool            `tfsdk:"converged"`
	PublishState       string          `tfsdk:"publish_state"`
	PausedUntil        *string         `tfsdk:"paused_until"`
	Generation         int64           `tfsdk:"generation"`
	MetadataVersion    int64           `tfsdk:"metadata_version"`
	LayoutEpoch        int64           `tfsdk:"layout_epoch"`
	ActiveReshardingID *string         `tfsdk:"active_resharding_id"`
	LastReshardingID   *string         `tfsdk:"last_resharding_id"`
	Strategy           string          `tfsdk:"strategy"`
	DrainScope         string          `tfsdk:"drain_scope"`
	Retire             string          `tfsdk:"retire"`
	PauseTimeout       string          `tfsdk:"pause_timeout"`
	DrainTimeout       string          `tfsdk:"drain_timeout"`
	OnTimeout          string          `tfsdk:"on_timeout"`
	IgnoreGroups       []string        `tfsdk:"ignore_groups"`
	Retention          retentionView   `tfsdk:"retention"`
	Shards             []shardView     `tfsdk:"shards"`
	Groups             []string        `tfsdk:"groups"`
	Conditions         []conditionView `tfsdk:"conditions"`
	CreatedAt          *string         `tfsdk:"created_at"`
	UpdatedAt          *string         `tfsdk:"updated_at"`
}

type retentionView struct {
	Policy string  `tfsdk:"policy"`
	MaxAge *string `tfsdk:"max_age"`
	MaxLen *int64  `tfsdk:"max_len"`
}

type shardView struct {
	Index int    `tfsdk:"index"`
	Key   string `tfsdk:"key"`
	Slot  int    `tfsdk:"slot"`
	State string `tfsdk:"state"`
}

type conditionView struct {
	Type    string  `tfsdk:"type"`
	Status  bool    `tfsdk:"status"`
	Reason  string  `tfsdk:"reason"`
	Message string  `tfsdk:"message"`
	Since   *string `tfsdk:"since"`
}

func (d *streamDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "One stream as the coordinator has it now, whoever manages it. `converged` is made for `check` blocks. " +
			"A stream that does not exist is an error.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix":        prefixArgument(),
			"shard_count":          numberOut("Shard count of the layout in force."),
			"desired_shard_count":  numberOut("Shard count that was last asked for."),
			"converged":            flagOut("Whether what was asked for is so on every shard: no resharding runs, and every consumer group exists everywhere."),
			"publish_state":        textOut("`OPEN`, or `PAUSED` while a resharding or an operator holds appends."),
			"paused_until":         textOut("When an operator's pause ends by itself, RFC 3339, UTC; null when there is none."),
			"generation":           numberOut("Rises with every change of the desired state."),
			"metadata_version":     numberOut("Version of the layout that clients see."),
			"layout_epoch":         numberOut("Epoch of the layout in force."),
			"active_resharding_id": textOut("Id of the resharding that is running; null when there is none."),
			"last_resharding_id":   textOut("Id of the resharding that ended last; null when there was none."),
			"strategy":             textOut("`quiesce` or `online`: how reshardings treat publishing."),
			"drain_scope":          textOut("`all` or `removed`: what a quiesced resharding drains first."),
			"retire":               textOut("`delete` or `archive`: what becomes of removed shards."),
			"pause_timeout":        textOut("Longest pause of a quiesced resharding, as a duration."),
			"drain_timeout":        textOut("Longest drain of removed shards, as a duration."),
			"on_timeout":           textOut("`rollback` or `fail`: how a resharding ends that runs into `pause_timeout`."),
			"ignore_groups":        textsOut("Consumer groups that no drain waits for."),
			"retention": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "What the coordinator removes from the shards.",
				Attributes: map[string]schema.Attribute{
					"policy":  textOut("`none`, `acked`, `max_age` or `max_len`."),
					"max_age": textOut("Age from which entries are removed, as a duration; null for other policies."),
					"max_len": numberOut("Entries that each shard keeps at most; null for other policies."),
				},
			},
			"shards": objectsOut("The shards, in the order of their index; while a resharding runs, with those that come and go.", map[string]schema.Attribute{
				"index": numberOut("Index, from 0."),
				"key":   textOut("Redis key of the shard."),
				"slot":  numberOut("Slot of the key on a Redis Cluster, 0 to 16383."),
				"state": textOut("`ACTIVE`, `ADDING` or `REMOVING`."),
			}),
			"groups": textsOut("Names of the registered consumer groups, sorted."),
			"conditions": objectsOut("Aspects of its status, as Kubernetes has them.", map[string]schema.Attribute{
				"type":    textOut("`Converged`, `Publishing` or `Progressing`."),
				"status":  flagOut("Whether it holds."),
				"reason":  textOut("One word for why."),
				"message": textOut("A sentence for people."),
				"since":   textOut("Since when, RFC 3339, UTC."),
			}),
			"created_at": textOut("When it was created, RFC 3339, UTC."),
			"updated_at": textOut("When its desired state last changed, RFC 3339, UTC."),
		},
	}
}

func (d *streamDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	prefix := argument(ctx, req, resp, "stream_prefix")
	lookUp(ctx, &d.dataSource, resp, reading("stream %q", prefix), func(ctx context.Context) (streamView, error) {
		s, err := d.conn.client.Stream(ctx, prefix)
		return viewStream(s), err
	})
}

func viewStream(s protocol.Stream) streamView {
	p := s.Spec.Resharding.WithDefaults()
	return streamView{
		StreamPrefix: s.StreamPrefix, ShardCount: s.Status.ShardCount, DesiredShardCount: s.Spec.ShardCount, Converged: convergedNow(s),
		PublishState: string(s.Status.PublishState), PausedUntil: shownTime(s.Status.PausedUntil),
		Generation: s.Generation, MetadataVersion: s.MetadataVersion, LayoutEpoch: s.Status.LayoutEpoch,
		ActiveReshardingID: shownText(s.Status.ActiveReshardingID), LastReshardingID: shownText(s.Status.LastReshardingID),
		Strategy: lower(p.Strategy), DrainScope: lower(p.DrainScope), Retire: lower(p.Retire), OnTimeout: lower(p.OnTimeout),
		PauseTimeout: shownDuration(p.PauseTimeoutMs), DrainTimeout: shownDuration(p.DrainTimeoutMs),
		IgnoreGroups: sortedTexts(p.IgnoreGroups), Retention: viewRetention(s.Spec.Retention),
		Shards: each(s.Shards, func(sh protocol.StreamShard) shardView {
			return shardView{Index: sh.ShardIndex, Key: sh.StreamKey, Slot: sh.RedisSlot, State: sh.State}
		}),
		Groups: sortedTexts(s.Groups),
		Conditions: each(s.Status.Conditions, func(c protocol.Condition) conditionView {
			return conditionView{Type: c.Type, Status: c.Status == "True", Reason: c.Reason, Message: c.Message, Since: shownTime(&c.Since)}
		}),
		CreatedAt: shownTime(&s.CreatedAt), UpdatedAt: shownTime(&s.UpdatedAt),
	}
}

// convergedNow believes the coordinator's own condition, and the counts where there is none.
func convergedNow(s protocol.Stream) bool {
	for _, c := range s.Status.Conditions {
		if c.Type == "Converged" {
			return c.Status == "True" && s.Status.ShardCount == s.Spec.ShardCount
		}
	}
	return s.Status.ActiveReshardingID == "" && s.Status.ShardCount == s.Spec.ShardCount
}

func viewRetention(r protocol.Retention) retentionView {
	v := retentionView{Policy: lower(r.Policy)}
	if r.Policy == "" {
		v.Policy = lower(protocol.RetentionNone)
	}
	if r.MaxAgeMs > 0 {
		v.MaxAge = shownText(shownDuration(r.MaxAgeMs))
	}
	if r.MaxLen > 0 {
		v.MaxLen = &r.MaxLen
	}
	return v
}

package provider

import (
	"context"
	"fmt"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func newReshardingDataSource() datasource.DataSource {
	return &reshardingDataSource{dataSource{name: "resharding"}}
}

func newReshardingsDataSource() datasource.DataSource {
	return &reshardingsDataSource{dataSource{name: "reshardings"}}
}

type (
	reshardingDataSource  struct{ dataSource }
	reshardingsDataSource struct{ dataSource }
)

// changeView is what a list of reshardings shows of each.
type changeView struct {
	ID             string      `tfsdk:"id"`
	FromShardCount int         `tfsdk:"from_shard_count"`
	ToShardCount   int         `tfsdk:"to_shard_count"`
	Strategy       string      `tfsdk:"strategy"`
	DrainScope     string      `tfsdk:"drain_scope"`
	Retire         string      `tfsdk:"retire"`
	Phase          string      `tfsdk:"phase"`
	Ended          bool        `tfsdk:"ended"`
	Phases         []phaseView `tfsdk:"phases"`
	PausedMs       int64       `tfsdk:"paused_ms"`
	WaitingFor     []string    `tfsdk:"waiting_for"`
	RequestedBy    string      `tfsdk:"requested_by"`
	Reason         string      `tfsdk:"reason"`
	Error          *string     `tfsdk:"error"`
	Order          *string     `tfsdk:"order"`
}

type phaseView struct {
	Phase     string  `tfsdk:"phase"`
	StartedAt *string `tfsdk:"started_at"`
	EndedAt   *string `tfsdk:"ended_at"`
}

// reshardingView is a redisstream_resharding.
type reshardingView struct {
	changeView
	StreamPrefix  string           `tfsdk:"stream_prefix"`
	FromEpoch     int64            `tfsdk:"from_epoch"`
	ToEpoch       int64            `tfsdk:"to_epoch"`
	PauseDeadline *string          `tfsdk:"pause_deadline"`
	IgnoreGroups  []string         `tfsdk:"ignore_groups"`
	Certificate   *certificateView `tfsdk:"certificate"`
	Recheck       *bool            `tfsdk:"recheck"`
	RecheckResult *recheckView     `tfsdk:"recheck_result"`
}

// recheckView is a certificate compared with Redis.
type recheckView struct {
	CheckedAt *string            `tfsdk:"checked_at"`
	Holds     bool               `tfsdk:"holds"`
	Shards    []recheckShardView `tfsdk:"shards"`
}

type recheckShardView struct {
	Index    int      `tfsdk:"index"`
	State    string   `tfsdk:"state"`
	Holds    bool     `tfsdk:"holds"`
	Problems []string `tfsdk:"problems"`
}

type certificateView struct {
	TakenAt           *string        `tfsdk:"taken_at"`
	Barrier           string         `tfsdk:"barrier"`
	ConfirmedReplicas int            `tfsdk:"confirmed_replicas"`
	Shards            []evidenceView `tfsdk:"shards"`
}

type evidenceView struct {
	Index        int                 `tfsdk:"index"`
	Sealed       bool                `tfsdk:"sealed"`
	LastID       string              `tfsdk:"last_id"`
	EntriesAdded int64               `tfsdk:"entries_added"`
	Verdict      string              `tfsdk:"verdict"`
	Groups       []groupEvidenceView `tfsdk:"groups"`
}

type groupEvidenceView struct {
	Group           string `tfsdk:"group"`
	Pending         int64  `tfsdk:"pending"`
	Undelivered     int64  `tfsdk:"undelivered"`
	LastDeliveredID string `tfsdk:"last_delivered_id"`
	EntryAfter      bool   `tfsdk:"entry_after"`
	Lag             *int64 `tfsdk:"lag"`
	PossibleLoss    *int64 `tfsdk:"possible_loss"`
	Trimmed         int64  `tfsdk:"trimmed"`
	Gone            int64  `tfsdk:"gone"`
	Ignored         bool   `tfsdk:"ignored"`
}

func changeAttributes(more map[string]schema.Attribute) map[string]schema.Attribute {
	all := map[string]schema.Attribute{
		"id":               textOut("Its id, as in the audit log."),
		"from_shard_count": numberOut("Shard count before it; 0 for a creation."),
		"to_shard_count":   numberOut("Shard count that it leads to; 0 for a removal."),
		"strategy":         textOut("`quiesce` or `online`."),
		"drain_scope":      textOut("`all` or `removed`."),
		"retire":           textOut("`delete` or `archive`."),
		"phase":            textOut("Phase in which it is; `COMPLETED`, `ROLLED_BACK` and `FAILED` are final."),
		"ended":            flagOut("Whether `phase` is final."),
		"phases": objectsOut("The phases that it went through, in order.", map[string]schema.Attribute{
			"phase":      textOut("Name of the phase."),
			"started_at": textOut("When it was entered, RFC 3339, UTC."),
			"ended_at":   textOut("When it was left; null while it lasts."),
		}),
		"paused_ms":    numberOut("For how long it has paused publishing, in milliseconds; up to now while the pause lasts."),
		"waiting_for":  textsOut("What holds it up, in sentences: shard, consumer group and counts."),
		"requested_by": textOut("Who asked for it."),
		"reason":       textOut("Why, as given with the request."),
		"error":        textOut("Why it did not complete; null if it did."),
		"order":        textOut("What was promised of the order of each key; null if nothing was recorded."),
	}
	maps.Copy(all, more)
	return all
}

func (d *reshardingDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "One resharding of a stream, with the evidence on which its layout change was decided. One that does not exist is an error.",
		Attributes: changeAttributes(map[string]schema.Attribute{
			"stream_prefix": prefixArgument(),
			"id": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Its id. Default: the one that is running, or else the one that ended last.", Validators: []validator.String{nameValidator{}},
			},
			"recheck": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether to compare the certificate with Redis as it is now: `recheck_result`. It looks at every shard that was drained. Default `false`. " +
					"What was certified stays so while the shards are those of then; removing entries or consumer groups by hand shows.",
			},
			"recheck_result": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "What `recheck` has found; null without it, and where there is no certificate to compare.",
				Attributes: map[string]schema.Attribute{
					"checked_at": textOut("When Redis was looked at, RFC 3339, UTC: another one with every plan."),
					"holds":      flagOut("Whether all that the certificate states can still be seen."),
					"shards": objectsOut("Each shard of the certificate.", map[string]schema.Attribute{
						"index":    numberOut("Index of the shard."),
						"state":    textOut("`KEPT`, `RETIRED` or `ARCHIVED` by this resharding, `REPLACED` when a later one made it anew, or `UNKNOWN`."),
						"holds":    flagOut("Whether it is as was certified, or was retired by this very resharding."),
						"problems": textsOut("What is otherwise, in sentences; empty when it holds."),
					}),
				},
			},
			"from_epoch":     numberOut("Layout epoch before it."),
			"to_epoch":       numberOut("Layout epoch that it leads to."),
			"pause_deadline": textOut("When the pause ends at the latest, RFC 3339, UTC; null when nothing is paused."),
			"ignore_groups":  textsOut("Consumer groups that its drain does not wait for."),
			"certificate": schema.SingleNestedAttribute{
				Computed: true, MarkdownDescription: "The evidence on which the layout change was decided; null before that, and where nothing is drained.",
				Attributes: map[string]schema.Attribute{
					"taken_at":           textOut("When it was taken, RFC 3339, UTC."),
					"barrier":            textOut("What kept appends out: `XSETID`, `LEASE` or `NONE`."),
					"confirmed_replicas": numberOut("How many Redis replicas had confirmed the seals."),
					"shards": objectsOut("The shards that were drained.", map[string]schema.Attribute{
						"index":         numberOut("Index of the shard."),
						"sealed":        flagOut("Whether it was sealed against appends."),
						"last_id":       textOut("Id of its last entry."),
						"entries_added": numberOut("Entries ever added to it."),
						"verdict":       textOut("`DRAINED`, `BUSY` or `UNKNOWN`."),
						"groups": objectsOut("What each Redis consumer group had left.", map[string]schema.Attribute{
							"group":             textOut("Name of the group."),
							"pending":           numberOut("Entries delivered, but not acknowledged."),
							"undelivered":       numberOut("Entries not yet delivered, counted up to a limit."),
							"last_delivered_id": textOut("Id of the entry that was delivered last."),
							"entry_after":       flagOut("Whether there is an entry after that one."),
							"lag":               numberOut("Lag as Redis shows it; null where it does not know. Never trusted."),
							"possible_loss":     numberOut("Entries that went before the group was given them, by Redis's counters; null where they do not tell."),
							"trimmed":           numberOut("Entries that retention removed before the group had acknowledged them."),
							"gone":              numberOut("Entries that were pending and had lost their body."),
							"ignored":           flagOut("Whether the drain did not wait for the group."),
						}),
					}),
				},
			},
		}),
	}
}

func (d *reshardingDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	prefix, id := argument(ctx, req, resp, "stream_prefix"), argument(ctx, req, resp, "id")
	var recheck types.Bool
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("recheck"), &recheck)...)
	what := reading("resharding %s of stream %q", id, prefix)
	if id == "" {
		what = reading("last resharding of stream %q", prefix)
	}
	lookUp(ctx, &d.dataSource, resp, what, func(ctx context.Context) (reshardingView, error) {
		r, err := d.find(ctx, prefix, id)
		if err == nil && recheck.ValueBool() && r.Certificate != nil {
			r, err = d.conn.client.RecheckResharding(ctx, prefix, r.ReshardingID)
		}
		if err != nil {
			return reshardingView{}, err
		}
		v := viewResharding(r)
		v.Recheck = recheck.ValueBoolPointer()
		return v, nil
	})
}

// find is the resharding of an id; without one, that which runs or ended last.
func (d *reshardingDataSource) find(ctx context.Context, prefix, id string) (protocol.Resharding, error) {
	if id != "" {
		return d.conn.client.Resharding(ctx, prefix, id, "", 0)
	}
	s, err := d.conn.client.Stream(ctx, prefix)
	if err != nil {
		return protocol.Resharding{}, err
	}
	r, err := d.conn.lastResharding(ctx, s)
	switch {
	case err != nil:
		return protocol.Resharding{}, err
	case r == nil:
		return protocol.Resharding{}, protocol.NewError(protocol.CodeMigrationNotFound, fmt.Sprintf("stream %q has no resharding on record", prefix))
	}
	return *r, nil
}

func (d *reshardingsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The reshardings of a stream that the coordinator has on record, newest first. A stream that does not exist is an error.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix": prefixArgument(),
			"reshardings":   objectsOut("The reshardings, newest first. The evidence of each is in `redisstream_resharding`.", changeAttributes(nil)),
		},
	}
}

// reshardingsView is a redisstream_reshardings.
type reshardingsView struct {
	StreamPrefix string       `tfsdk:"stream_prefix"`
	Reshardings  []changeView `tfsdk:"reshardings"`
}

func (d *reshardingsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	prefix := argument(ctx, req, resp, "stream_prefix")
	lookUp(ctx, &d.dataSource, resp, reading("reshardings of stream %q", prefix), func(ctx context.Context) (reshardingsView, error) {
		list, err := d.conn.client.Reshardings(ctx, prefix)
		return reshardingsView{StreamPrefix: prefix, Reshardings: each(list.Reshardings, viewChange)}, err
	})
}

func viewChange(r protocol.Resharding) changeView {
	return changeView{
		ID: r.ReshardingID, FromShardCount: r.FromShardCount, ToShardCount: r.ToShardCount,
		Strategy: lower(r.Strategy), DrainScope: lower(r.DrainScope), Retire: lower(r.Retire),
		Phase: string(r.Phase), Ended: r.Phase.Terminal(), PausedMs: r.PausedMs, WaitingFor: each(r.WaitingFor, same),
		Phases: each(r.Phases, func(p protocol.PhaseSpan) phaseView {
			return phaseView{Phase: string(p.Phase), StartedAt: shownTime(&p.StartedAt), EndedAt: shownTime(p.EndedAt)}
		}),
		RequestedBy: r.RequestedBy, Reason: r.Reason, Error: shownText(r.Error), Order: shownText(r.Order),
	}
}

func viewResharding(r protocol.Resharding) reshardingView {
	v := reshardingView{
		changeView: viewChange(r), StreamPrefix: r.StreamPrefix, FromEpoch: r.FromEpoch, ToEpoch: r.ToEpoch,
		PauseDeadline: shownTime(r.PauseDeadline), IgnoreGroups: sortedTexts(r.IgnoreGroups),
	}
	if r.Certificate != nil {
		v.Certificate = &certificateView{
			TakenAt: shownTime(&r.Certificate.TakenAt), Barrier: r.Certificate.Barrier, ConfirmedReplicas: r.Certificate.ConfirmedReplicas,
			Shards: each(r.Certificate.Shards, viewEvidence),
		}
	}
	if c := r.Recheck; c != nil {
		v.RecheckResult = &recheckView{
			CheckedAt: shownTime(&c.CheckedAt), Holds: c.Holds,
			Shards: each(c.Shards, func(s protocol.ShardCheck) recheckShardView {
				return recheckShardView{Index: s.ShardIndex, State: s.State, Holds: s.Holds, Problems: each(s.Problems, same)}
			}),
		}
	}
	return v
}

func viewEvidence(e protocol.ShardEvidence) evidenceView {
	return evidenceView{
		Index: e.ShardIndex, Sealed: e.Sealed, LastID: e.LastID, EntriesAdded: e.EntriesAdded, Verdict: e.Verdict,
		Groups: each(e.Groups, func(g protocol.GroupEvidence) groupEvidenceView {
			return groupEvidenceView{
				Group: g.Group, Pending: g.Pending, Undelivered: g.Undelivered, LastDeliveredID: g.LastDeliveredID, EntryAfter: g.EntryAfter,
				Lag: g.Lag, PossibleLoss: g.PossibleLoss, Trimmed: g.Trimmed, Gone: g.Gone, Ignored: g.Ignored,
			}
		}),
	}
}

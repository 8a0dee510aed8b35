package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Bounds of a redisstream_audit_events. A page is what the coordinator gives at most.
const (
	defaultAuditLimit = 100
	mostAuditLimit    = 10_000
	auditPage         = 1000
)

func newAuditEventsDataSource() datasource.DataSource {
	return &auditEventsDataSource{dataSource{name: "audit_events"}}
}

type auditEventsDataSource struct{ dataSource }

// auditView is a redisstream_audit_events: its filters as they were given, and the events.
type auditView struct {
	StreamPrefix  types.String     `tfsdk:"stream_prefix"`
	ConsumerGroup types.String     `tfsdk:"consumer_group"`
	Principal     types.String     `tfsdk:"principal"`
	Action        types.String     `tfsdk:"action"`
	Outcome       types.String     `tfsdk:"outcome"`
	RequestID     types.String     `tfsdk:"request_id"`
	ReshardingID  types.String     `tfsdk:"resharding_id"`
	Fingerprint   types.String     `tfsdk:"fingerprint"`
	From          types.String     `tfsdk:"from"`
	To            types.String     `tfsdk:"to"`
	Limit         countValue       `tfsdk:"limit"`
	More          types.Bool       `tfsdk:"more"`
	Events        []auditEventView `tfsdk:"events"`
}

type auditEventView struct {
	ID              string   `tfsdk:"id"`
	Timestamp       *string  `tfsdk:"timestamp"`
	CoordinatorID   string   `tfsdk:"coordinator_id"`
	Action          string   `tfsdk:"action"`
	Outcome         string   `tfsdk:"outcome"`
	Status          int      `tfsdk:"status"`
	ErrorCode       *string  `tfsdk:"error_code"`
	Method          string   `tfsdk:"method"`
	Route           string   `tfsdk:"route"`
	Principal       *string  `tfsdk:"principal"`
	Roles           []string `tfsdk:"roles"`
	RequestID       string   `tfsdk:"request_id"`
	ClientRequestID *string  `tfsdk:"client_request_id"`
	RequestedBy     *string  `tfsdk:"requested_by"`
	Reason          *string  `tfsdk:"reason"`
	StreamPrefix    *string  `tfsdk:"stream_prefix"`
	ConsumerGroup   *string  `tfsdk:"consumer_group"`
	ReshardingID    *string  `tfsdk:"resharding_id"`
	ClientAddress   *string  `tfsdk:"client_address"`
	UserAgent       *string  `tfsdk:"user_agent"`
	Fingerprint     *string  `tfsdk:"fingerprint"`
	IdempotencyKey  *string  `tfsdk:"idempotency_key"`
	Summary         *string  `tfsdk:"summary"`
	Hash            *string  `tfsdk:"hash"`
}

func (d *auditEventsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	filter := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description, Validators: []validator.String{filterValidator{}}}
	}
	name := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description, Validators: []validator.String{nameValidator{}}}
	}
	instant := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description, Validators: []validator.String{instantValidator{}}}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Events of the coordinator's audit log, newest first: every request that changed something or was refused, with who made it and why. " +
			"Filters are combined; without any, all events are given, up to `limit`.\n\n" +
			"It shows what was recorded before it was read: an apply that changes something and reads the log gets its own events only if the data source depends on that resource. " +
			"The log grows with every change and every refused request, so an output of it differs from plan to plan, unless `to` lies in the past or a filter selects what has ended.",
		Attributes: map[string]schema.Attribute{
			"stream_prefix":  name("Only events of this stream, also after it was deleted."),
			"consumer_group": name("Only events of consumer groups of this name."),
			"principal":      filter("Only requests of this authenticated user."),
			"action":         filter("Only this action, such as `PUT_STREAM`, `PUT_GROUP`, `DELETE_GROUP`, `PAUSE_PUBLISHING` or `ROLLBACK_RESHARDING`."),
			"outcome": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Only this outcome: `SUCCESS`, `FAILED`, `UNAUTHORIZED`, `FORBIDDEN` or `ERROR`.",
				Validators: []validator.String{choice{"SUCCESS", "FAILED", "UNAUTHORIZED", "FORBIDDEN", "ERROR"}},
			},
			"request_id":    filter("Only requests of this id, the coordinator's (`request_id` of an event) or the client's own (`client_request_id`), which all requests of one create, update or destroy share."),
			"resharding_id": name("Only events of this resharding."),
			"fingerprint":   filter("Only requests whose body has this SHA-256, in lower-case hex."),
			"from":          instant("Only events from this time on, RFC 3339, such as `2026-01-31T12:00:00Z`."),
			"to":            instant("Only events up to this time, RFC 3339."),
			"limit": schema.Int64Attribute{
				CustomType: countType{most: mostAuditLimit}, Optional: true, MarkdownDescription: fmt.Sprintf("How many events are given at most, the newest ones, 1 to %d; default %d. `more` says that there are others.", mostAuditLimit, defaultAuditLimit),
				Validators: []validator.Int64{int64validator.Between(1, mostAuditLimit)},
			},
			"more": flagOut("Whether there are older events that match, beyond `limit`."),
			"events": objectsOut("The events, newest first. What is not known of one is null.", map[string]schema.Attribute{
				"id":                textOut("Its id in the log."),
				"timestamp":         textOut("When it was recorded, RFC 3339, UTC."),
				"coordinator_id":    textOut("The replica that recorded it."),
				"action":            textOut("What was asked for."),
				"outcome":           textOut("How it ended."),
				"status":            numberOut("HTTP status that was answered."),
				"error_code":        textOut("Error code of a refusal."),
				"method":            textOut("HTTP method."),
				"route":             textOut("Path, as a template."),
				"principal":         textOut("The authenticated user."),
				"roles":             textsOut("Roles of `principal`."),
				"request_id":        textOut("Id that the coordinator gave the request."),
				"client_request_id": textOut("Id that the client gave it; with this provider, `request_id_prefix` and a UUID, the same for all requests of one operation."),
				"requested_by":      textOut("Who asked, by their own account: `terraform:<workspace>` with this provider."),
				"reason":            textOut("Why, by their own account."),
				"stream_prefix":     textOut("The stream that it is about."),
				"consumer_group":    textOut("The consumer group that it is about."),
				"resharding_id":     textOut("The resharding that it is about."),
				"client_address":    textOut("Where it came from."),
				"user_agent":        textOut("What sent it."),
				"fingerprint":       textOut("SHA-256 of the request's body, in hex."),
				"idempotency_key":   textOut("Key under which it was repeated."),
				"summary":           textOut("Numbers of the request, such as the shard count."),
				"hash":              textOut("Link in the chain that makes later changes of the log evident."),
			}),
		},
	}
}

// ValidateConfig checks what one attribute alone does not show.
func (d *auditEventsDataSource) ValidateConfig(ctx context.Context, req datasource.ValidateConfigRequest, resp *datasource.ValidateConfigResponse) {
	var v auditView
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("from"), &v.From)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("to"), &v.To)...)
	if q := v.query(); !q.To.IsZero() && q.From.After(q.To) {
		resp.Diagnostics.AddAttributeError(path.Root("from"), "Invalid from", fmt.Sprintf("from: %s is after to (%s): nothing can lie between them", v.From.ValueString(), v.To.ValueString()))
	}
}

func (d *auditEventsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var v auditView
	for name, into := range map[string]any{
		"stream_prefix": &v.StreamPrefix, "consumer_group": &v.ConsumerGroup, "principal": &v.Principal, "action": &v.Action, "outcome": &v.Outcome,
		"request_id": &v.RequestID, "resharding_id": &v.ReshardingID, "fingerprint": &v.Fingerprint, "from": &v.From, "to": &v.To, "limit": &v.Limit,
	} {
		resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(name), into)...)
	}
	lookUp(ctx, &d.dataSource, resp, reading("audit events"), func(ctx context.Context) (auditView, error) {
		limit := defaultAuditLimit
		if !v.Limit.IsNull() {
			limit = int(v.Limit.ValueInt64())
		}
		events, more, err := d.conn.auditEvents(ctx, v.query(), limit)
		v.Events, v.More = each(events, viewAuditEvent), types.BoolValue(more)
		return v, err
	})
}

func (v auditView) query() client.AuditQuery {
	at := func(s types.String) time.Time {
		t, err := time.Parse(time.RFC3339Nano, s.ValueString())
		if err != nil {
			return time.Time{} // left out: the validator lets nothing else through
		}
		return t
	}
	return client.AuditQuery{
		StreamPrefix: v.StreamPrefix.ValueString(), ConsumerGroup: v.ConsumerGroup.ValueString(), Principal: v.Principal.ValueString(),
		Action: v.Action.ValueString(), Outcome: v.Outcome.ValueString(), RequestID: v.RequestID.ValueString(),
		ReshardingID: v.ReshardingID.ValueString(), Fingerprint: v.Fingerprint.ValueString(), From: at(v.From), To: at(v.To),
	}
}

// auditEvents reads page after page until it has limit events, and says whether there are more. A
// page may be empty though there are more: the coordinator bounds how far it looks for each.
func (c *connection) auditEvents(ctx context.Context, q client.AuditQuery, limit int) (events []protocol.AuditEvent, more bool, err error) {
	for {
		q.Limit = min(limit+1-len(events), auditPage) // one more than wanted tells whether there are more
		page, err := c.client.AuditEvents(ctx, q)
		if err != nil {
			return nil, false, err
		}
		events = append(events, page.Events...)
		switch {
		case len(events) > limit:
			return events[:limit], true, nil
		case page.NextCursor == nil || *page.NextCursor == "":
			return events, false, nil
		case *page.NextCursor == q.Cursor:
			return nil, false, fmt.Errorf("the coordinator's cursor does not move on from %q", q.Cursor)
		}
		q.Cursor = *page.NextCursor
	}
}

func viewAuditEvent(e protocol.AuditEvent) auditEventView {
	return auditEventView{
		ID: e.ID, Timestamp: shownTime(&e.Timestamp), CoordinatorID: e.CoordinatorID, Action: e.Action, Outcome: e.Outcome, Status: e.Status,
		ErrorCode: shownText(e.ErrorCode), Method: e.Method, Route: e.Route, Principal: shownText(e.Principal), Roles: each(e.Roles, same),
		RequestID: e.RequestID, ClientRequestID: shownText(e.ClientRequest), RequestedBy: shownText(e.RequestedBy), Reason: shownText(e.Reason),
		StreamPrefix: shownText(e.StreamPrefix), ConsumerGroup: shownText(e.ConsumerGroup), ReshardingID: shownText(e.ReshardingID),
		ClientAddress: shownText(e.ClientAddress), UserAgent: shownText(e.UserAgent), Fingerprint: shownText(e.Fingerprint),
		IdempotencyKey: shownText(e.IdempotencyKey), Summary: shownText(e.Summary), Hash: shownText(e.Hash),
	}
}

package httpapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

func (h *Handler) getSession(_ context.Context, c *call) (reply, error) {
	return ok(protocol.Session{Authenticated: true, Username: c.principal.name, Roles: roleNames(c.principal.roles)}), nil
}

func (h *Handler) getHealth(context.Context, *call) (reply, error) {
	state := protocol.Health{Status: "UP", CoordinatorID: h.cfg.CoordinatorID, Redis: "UP", Loop: "UP", Version: h.cfg.Version}
	if h.engine.Ready() != nil {
		state.Status, state.Redis = "DEGRADED", "DOWN"
	}
	return ok(state), nil
}

func (h *Handler) getCompatibility(context.Context, *call) (reply, error) {
	const v = protocol.HeartbeatVersion
	return ok(protocol.Compatibility{
		Current: v, Supported: protocol.VersionRange{Min: v, Max: v},
		Versions: []protocol.CoordinationVersion{{
			Version: v, Status: "ACTIVE",
			IntroducedIn:          protocol.ReleaseVersion{Minor: 1, Version: "0.1.0"},
			MinimumSupportedUntil: protocol.ReleaseVersion{Major: 1, Version: "1.0.0"},
			TimingDefaults:        protocol.TimingDefaults{HeartbeatInterval: "PT3S", MemberLeaseTTL: "PT15S", RebalanceTimeout: "PT1M"},
		}},
	}), nil
}

func (h *Handler) listGroups(ctx context.Context, _ *call) (reply, error) {
	groups, err := h.engine.Groups(ctx)
	if groups == nil {
		groups = []protocol.Group{}
	}
	return ok(protocol.GroupList{Groups: groups}), err
}

// getRetention tells what the groups of a stream have lost, counted by the shards.
func (h *Handler) getRetention(ctx context.Context, c *call) (reply, error) {
	prefix, err := c.stream()
	if err != nil {
		return reply{}, err
	}
	report, err := h.engine.Retention(ctx, prefix)
	return ok(report), err
}

func (h *Handler) listMembers(ctx context.Context, c *call) (reply, error) {
	prefix, group, err := c.group()
	if err != nil {
		return reply{}, err
	}
	members, err := h.engine.Members(ctx, prefix, group)
	if members == nil {
		members = []protocol.MemberView{}
	}
	return ok(protocol.MemberList{Members: members}), err
}

func (h *Handler) getAssignments(ctx context.Context, c *call) (reply, error) {
	prefix, group, err := c.group()
	if err != nil {
		return reply{}, err
	}
	assignments, err := h.engine.Assignments(ctx, prefix, group)
	return ok(assignments), err
}

// consumption answers GET /monitoring/…/consumption: what members said of their reading.
type consumption struct {
	Progress []consumptionRow `json:"progress"`
}

type consumptionRow struct {
	StreamPrefix    string               `json:"streamPrefix"`
	ConsumerGroup   string               `json:"consumerGroup"`
	MemberID        string               `json:"memberId"`
	MemberName      string               `json:"memberName"`
	MemberState     protocol.MemberState `json:"memberState"`
	Shard           protocol.Shard       `json:"shard"`
	StreamKey       string               `json:"streamKey"`
	LastDeliveredID *string              `json:"lastDeliveredId"`
	LastAckedID     *string              `json:"lastAckedId"`
	PendingCount    int64                `json:"pendingCount"`
	UpdatedAt       *time.Time           `json:"updatedAt"`
}

func (h *Handler) getConsumption(ctx context.Context, c *call) (reply, error) {
	prefix, group, err := c.group()
	if err != nil {
		return reply{}, err
	}
	members, err := h.engine.Members(ctx, prefix, group)
	if err != nil {
		return reply{}, err
	}
	rows := []consumptionRow{}
	for _, m := range members {
		for _, p := range m.ShardProgress {
			rows = append(rows, consumptionRow{
				StreamPrefix: prefix, ConsumerGroup: group, MemberID: m.MemberID, MemberName: m.MemberName, MemberState: m.State,
				Shard: p.Shard, StreamKey: p.StreamKey, LastDeliveredID: p.LastDeliveredID, LastAckedID: p.LastAckedID,
				PendingCount: p.PendingCount, UpdatedAt: p.UpdatedAt,
			})
		}
	}
	slices.SortStableFunc(rows, func(a, b consumptionRow) int {
		return cmp.Or(cmp.Compare(a.MemberID, b.MemberID), cmp.Compare(a.Shard.ShardIndex, b.Shard.ShardIndex))
	})
	return ok(consumption{Progress: rows}), nil
}

const maxAuditPage = 1000

func (h *Handler) listAuditEvents(ctx context.Context, c *call) (reply, error) {
	q := c.query()
	filter := redisstore.AuditQuery{
		Prefix: q.text("streamPrefix"), Group: q.text("consumerGroup"), Principal: q.text("principal"),
		Action: q.text("action"), Outcome: q.text("outcome"), RequestID: q.text("requestId"),
		ReshardingID: q.text("reshardingId"), Fingerprint: q.text("fingerprint"),
		From: q.time("from"), To: q.time("to"), Cursor: q.long("cursor"), Limit: int(min(q.number("limit", 1), maxAuditPage)),
	}
	if q.err != nil {
		return reply{}, q.err
	}
	if filter.Prefix != "" {
		if refused := protocol.CheckName("streamPrefix", filter.Prefix); refused != nil {
			return reply{}, refused
		}
	}
	list, err := h.engine.AuditEvents(ctx, filter)
	if list.Events == nil {
		list.Events = []protocol.AuditEvent{}
	}
	return ok(list), err
}

package httpapi

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/redisstore"
)

// session answers GET /monitoring/session: who the caller is.
type session struct {
	Authenticated bool     `json:"authenticated"`
	Username      string   `json:"username"`
	Roles         []string `json:"roles"`
}

func (h *Handler) getSession(_ context.Context, c *call) (reply, error) {
	return ok(session{Authenticated: true, Username: c.principal.name, Roles: roleNames(c.principal.roles)}), nil
}

// health answers GET /monitoring/health, always with 200; /readyz is for load balancers.
type health struct {
	Status        string `json:"status"` // UP, DEGRADED
	CoordinatorID string `json:"coordinatorId"`
	Redis         string `json:"redis"` // UP, DOWN
	Loop          string `json:"loop"`
}

func (h *Handler) getHealth(context.Context, *call) (reply, error) {
	state := health{Status: "UP", CoordinatorID: h.cfg.CoordinatorID, Redis: "UP", Loop: "UP"}
	if h.engine.Ready() != nil {
		state.Status, state.Redis = "DEGRADED", "DOWN"
	}
	return ok(state), nil
}

// releaseVersion, coordinationVersion and compatibility answer GET /monitoring/compatibility.
type releaseVersion struct {
	Major     int     `json:"major"`
	Minor     int     `json:"minor"`
	Patch     int     `json:"patch"`
	Qualifier *string `json:"qualifier"`
	Version   string  `json:"version"`
}

type timingDefaults struct {
	HeartbeatInterval string `json:"heartbeatInterval"` // ISO 8601
	MemberLeaseTTL    string `json:"memberLeaseTtl"`
	RebalanceTimeout  string `json:"rebalanceTimeout"`
}

type coordinationVersion struct {
	Version               int             `json:"version"`
	Status                string          `json:"status"`
	IntroducedIn          releaseVersion  `json:"introducedIn"`
	DeprecatedIn          *releaseVersion `json:"deprecatedIn"`
	MinimumSupportedUntil releaseVersion  `json:"minimumSupportedUntil"`
	RemovedIn             *releaseVersion `json:"removedIn"`
	TimingDefaults        timingDefaults  `json:"timingDefaults"`
}

type versionRange struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

type compatibility struct {
	Current   int                   `json:"currentCoordinationVersion"`
	Supported versionRange          `json:"supportedCoordinationVersions"`
	Versions  []coordinationVersion `json:"coordinationVersions"`
}

func (h *Handler) getCompatibility(context.Context, *call) (reply, error) {
	const v = protocol.HeartbeatVersion
	return ok(compatibility{
		Current: v, Supported: versionRange{Min: v, Max: v},
		Versions: []coordinationVersion{{
			Version: v, Status: "ACTIVE",
			IntroducedIn:          releaseVersion{Minor: 1, Version: "0.1.0"},
			MinimumSupportedUntil: releaseVersion{Major: 1, Version: "1.0.0"},
			TimingDefaults:        timingDefaults{HeartbeatInterval: "PT3S", MemberLeaseTTL: "PT15S", RebalanceTimeout: "PT1M"},
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

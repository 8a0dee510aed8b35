package httpapi

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// heartbeatBody mirrors protocol.HeartbeatRequest where absence must be told from zero: a shard
// without an index is not shard 0.
type heartbeatBody struct {
	protocol.HeartbeatRequest
	OwnedShards    []shardBody    `json:"ownedShards"`
	RevokingShards []revokingBody `json:"revokingShards"`
	ShardProgress  []progressBody `json:"shardProgress"`
	OwnershipSeen  []seenBody     `json:"ownershipSeen"`
}

type shardBody struct {
	ShardIndex *int `json:"shardIndex"`
}

type revokingBody struct {
	Shard    shardBody              `json:"shard"`
	State    protocol.RevokingState `json:"state"`
	InFlight int                    `json:"inFlight"`
	AckedAt  *time.Time             `json:"ackedAt"`
}

type progressBody struct {
	Shard           shardBody  `json:"shard"`
	StreamKey       *string    `json:"streamKey"`
	LastDeliveredID *string    `json:"lastDeliveredId"`
	LastAckedID     *string    `json:"lastAckedId"`
	PendingCount    int64      `json:"pendingCount"`
	UpdatedAt       *time.Time `json:"updatedAt"`
}

type seenBody struct {
	Shard shardBody `json:"shard"`
	Epoch *int64    `json:"epoch"`
}

// heartbeat answers 200 to every well-formed report; the outcome is its status. Clients of the
// reference end for good on anything else.
func (h *Handler) heartbeat(ctx context.Context, c *call) (reply, error) {
	prefix, group, err := c.group()
	if err != nil {
		return reply{}, err
	}
	member, err := c.name("memberId")
	if err != nil {
		return reply{}, err
	}
	req, err := decodeHeartbeat(c.body)
	if err != nil {
		return reply{}, err
	}
	wait := time.Duration(min(req.MaxWaitMs, MaxHold.Milliseconds())) * time.Millisecond
	answer, err := hold(ctx, h, wait, func(ctx context.Context, wait time.Duration) (protocol.HeartbeatResponse, error) {
		again := *req
		again.MaxWaitMs = wait.Milliseconds()
		return h.engine.Heartbeat(ctx, prefix, group, member, &again), nil
	})
	return ok(answer), err
}

// decodeHeartbeat reads a report and checks its form; unknown fields are ignored.
func decodeHeartbeat(data []byte) (*protocol.HeartbeatRequest, error) {
	if len(data) == 0 {
		return nil, protocol.Invalid("body", "is missing; a JSON object is required")
	}
	var body heartbeatBody
	body.ProtocolVersion, body.MemberEpoch, body.MetadataVersion = missing, missing, missing
	body.RuntimeConsumerCapacity = protocol.Capacity{RuntimeMaxConcurrency: missing, AvailableConcurrency: missing}
	if err := decodeJSON(data, &body, lenient); err != nil {
		return nil, err
	}
	if err := body.checkScalars(); err != nil {
		return nil, err
	}
	if err := body.fillLists(); err != nil {
		return nil, err
	}
	return &body.HeartbeatRequest, nil
}

func (b *heartbeatBody) checkScalars() error {
	required := "is required"
	capacity := b.RuntimeConsumerCapacity
	switch {
	case b.ProtocolVersion == missing:
		return protocol.Invalid("protocolVersion", required)
	case b.ProtocolVersion < 1:
		return protocol.Invalid("protocolVersion", fmt.Sprintf("is %d; it must be at least 1", b.ProtocolVersion))
	case strings.TrimSpace(b.RequestID) == "":
		return protocol.Invalid("requestId", "must not be blank")
	case len(b.RequestID) > protocol.MaxNameBytes:
		return protocol.Invalid("requestId", fmt.Sprintf("is longer than %d bytes", protocol.MaxNameBytes))
	case strings.TrimSpace(b.MemberID) == "":
		return protocol.Invalid("memberId", "must not be blank")
	case b.MemberName != nil && len(*b.MemberName) > protocol.MaxNameBytes:
		return protocol.Invalid("memberName", fmt.Sprintf("is longer than %d bytes", protocol.MaxNameBytes))
	case b.MemberEpoch == missing:
		return protocol.Invalid("memberEpoch", required)
	case b.MetadataVersion == missing:
		return protocol.Invalid("metadataVersion", required)
	case capacity.RuntimeMaxConcurrency == missing:
		return protocol.Invalid("runtimeConsumerCapacity.runtimeMaxConcurrency", required)
	case capacity.RuntimeMaxConcurrency < 1:
		return protocol.Invalid("runtimeConsumerCapacity.runtimeMaxConcurrency", fmt.Sprintf("is %d; it must be at least 1", capacity.RuntimeMaxConcurrency))
	case capacity.AvailableConcurrency == missing:
		return protocol.Invalid("runtimeConsumerCapacity.availableConcurrency", required)
	case capacity.AvailableConcurrency < 0:
		return protocol.Invalid("runtimeConsumerCapacity.availableConcurrency", fmt.Sprintf("is %d; it must not be negative", capacity.AvailableConcurrency))
	case len(b.Incarnation) > protocol.MaxNameBytes:
		return protocol.Invalid("incarnation", fmt.Sprintf("is longer than %d bytes", protocol.MaxNameBytes))
	case len(b.Replaces) > protocol.MaxNameBytes:
		return protocol.Invalid("replaces", fmt.Sprintf("is longer than %d bytes", protocol.MaxNameBytes))
	case b.MaxWaitMs < 0:
		return protocol.Invalid("maxWaitMs", "must not be negative")
	}
	return nil
}

// fillLists moves the checked lists into the request. A list that is null or absent is empty.
func (b *heartbeatBody) fillLists() error {
	req := &b.HeartbeatRequest
	for name, n := range map[string]int{
		"ownedShards": len(b.OwnedShards), "revokingShards": len(b.RevokingShards),
		"shardProgress": len(b.ShardProgress), "ownershipSeen": len(b.OwnershipSeen),
	} {
		if n > protocol.MaxShardCount {
			return protocol.Invalid(name, fmt.Sprintf("has %d entries; a stream has at most %d shards", n, protocol.MaxShardCount))
		}
	}
	incomplete := func(list string, i int, what string) error {
		return protocol.Invalid(fmt.Sprintf("%s[%d].%s", list, i, what), "is required")
	}
	req.OwnedShards = make([]protocol.Shard, len(b.OwnedShards))
	for i, s := range b.OwnedShards {
		if s.ShardIndex == nil {
			return incomplete("ownedShards", i, "shardIndex")
		}
		req.OwnedShards[i].ShardIndex = *s.ShardIndex
	}
	req.RevokingShards = make([]protocol.RevokingShard, len(b.RevokingShards))
	for i, s := range b.RevokingShards {
		switch s.State {
		case protocol.RevokingRevoking, protocol.RevokingDraining, protocol.RevokingRevoked:
		default:
			return protocol.Invalid(fmt.Sprintf("revokingShards[%d].state", i), "must be one of REVOKING, DRAINING, REVOKED")
		}
		if s.Shard.ShardIndex == nil {
			return incomplete("revokingShards", i, "shard.shardIndex")
		}
		req.RevokingShards[i] = protocol.RevokingShard{
			Shard: protocol.Shard{ShardIndex: *s.Shard.ShardIndex}, State: s.State, InFlight: s.InFlight, AckedAt: s.AckedAt,
		}
	}
	req.ShardProgress = make([]protocol.ShardProgress, len(b.ShardProgress))
	for i, p := range b.ShardProgress {
		switch {
		case p.Shard.ShardIndex == nil:
			return incomplete("shardProgress", i, "shard.shardIndex")
		case p.StreamKey == nil:
			return incomplete("shardProgress", i, "streamKey")
		}
		req.ShardProgress[i] = protocol.ShardProgress{
			Shard: protocol.Shard{ShardIndex: *p.Shard.ShardIndex}, StreamKey: *p.StreamKey,
			LastDeliveredID: p.LastDeliveredID, LastAckedID: p.LastAckedID, PendingCount: p.PendingCount, UpdatedAt: p.UpdatedAt,
		}
	}
	req.OwnershipSeen = make([]protocol.OwnershipSeen, len(b.OwnershipSeen))
	for i, s := range b.OwnershipSeen {
		if s.Shard.ShardIndex == nil || s.Epoch == nil {
			return incomplete("ownershipSeen", i, "shard and epoch")
		}
		req.OwnershipSeen[i] = protocol.OwnershipSeen{Shard: protocol.Shard{ShardIndex: *s.Shard.ShardIndex}, Epoch: *s.Epoch}
	}
	return nil
}

package membership

import (
	"fmt"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// report is what a call says of the member. Two calls with equal reports say the same, so the
// second one is only due to keep the lease.
type report struct {
	epoch, version  int64
	incarnation     string
	owned, draining []int
	seen            []protocol.OwnershipSeen
}

func (r report) equal(o report) bool {
	return r.epoch == o.epoch && r.version == o.version && r.incarnation == o.incarnation &&
		slices.Equal(r.owned, o.owned) && slices.Equal(r.draining, o.draining) && slices.Equal(r.seen, o.seen)
}

// report draws up what the member has to say now.
func (m *Machine) report() report {
	r := report{epoch: m.epoch, version: m.version, incarnation: m.incarnation}
	switch m.phase {
	case joining:
		r.epoch, r.version = protocol.EpochJoin, 0
		return r
	case leaving:
		r.epoch = protocol.EpochLeave
	case gone:
		r.epoch = protocol.EpochAway
	default: // the epochs of the session
	}
	r.owned, r.draining, r.seen = m.list(false), m.list(true), sortedSeen(m.seen)
	return r
}

// request puts a report on the wire.
func (m *Machine) request(c *call, hold time.Duration) protocol.HeartbeatRequest {
	r := c.report
	req := protocol.HeartbeatRequest{
		ProtocolVersion: protocol.HeartbeatVersion,
		RequestID:       fmt.Sprintf("%s-%d", m.incarnation, c.id),
		MemberID:        m.cfg.MemberID,
		MemberEpoch:     r.epoch,
		MetadataVersion: r.version,
		RuntimeConsumerCapacity: protocol.Capacity{
			RuntimeMaxConcurrency: m.cfg.MaxConcurrency, AvailableConcurrency: m.cfg.MaxConcurrency,
		},
		OwnedShards:    protocol.Shards(r.owned),
		RevokingShards: make([]protocol.RevokingShard, len(r.draining)),
		ShardProgress:  []protocol.ShardProgress{},
		Incarnation:    r.incarnation,
		MaxWaitMs:      hold.Milliseconds(),
		OwnershipSeen:  r.seen,
	}
	if m.cfg.MemberName != "" {
		name := m.cfg.MemberName
		req.MemberName = &name
	}
	for i, s := range r.draining {
		req.RevokingShards[i] = protocol.RevokingShard{
			Shard: protocol.Shard{ShardIndex: s}, State: protocol.RevokingDraining, InFlight: 1,
		}
	}
	if r.epoch == protocol.EpochJoin {
		req.Replaces = m.replaces
	}
	return req
}

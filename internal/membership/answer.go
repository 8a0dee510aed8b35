package membership

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// answered applies the answer to the newest call; any other is ignored (M1).
func (m *Machine) answered(in Answered) {
	c := m.inFlight
	if c == nil || in.Call != c.id {
		return
	}
	resp := in.Response
	if resp.MemberID != m.cfg.MemberID {
		m.failed(Failed{Call: in.Call, Err: fmt.Errorf("the answer is for member %q", resp.MemberID)})
		return
	}
	if resp.HeartbeatIntervalMs > 0 {
		m.interval = time.Duration(resp.HeartbeatIntervalMs) * time.Millisecond
	}
	if resp.MemberLeaseMs > 0 {
		m.lease = time.Duration(resp.MemberLeaseMs) * time.Millisecond
	}
	switch resp.Status {
	case protocol.StatusOK, protocol.StatusRevokePending, protocol.StatusSyncMetadata:
		m.accepted(c, resp)
	case protocol.StatusFencedMemberEpoch, protocol.StatusUnknownMemberID:
		m.sessionOver(c, resp)
	case protocol.StatusInvalidRequest:
		m.refused(c, resp)
	case protocol.StatusUnsupportedProtocol:
		m.dropAll(Refused)
		m.end(ErrUnsupportedProtocol)
	case protocol.StatusRetry:
		m.failed(Failed{Call: c.id, Err: fmt.Errorf("the coordinator asks to try again")})
	default:
		m.failed(Failed{Call: c.id, Err: fmt.Errorf("unknown status %q", resp.Status)})
	}
}

// accepted is M4: the lease first, since what has no lease may not be read.
func (m *Machine) accepted(c *call, resp protocol.HeartbeatResponse) {
	m.settle(c)
	m.lastErr, m.fencedJoins = nil, 0
	if end := c.sent + m.lease - protocol.LeaseMargin(m.lease); end > m.leaseEnd {
		m.leaseEnd = end
		m.do(Lease{End: end})
	}
	switch m.phase {
	case leaving, gone: // no answer brings a shard back
		if c.report.epoch != protocol.EpochLeave && c.report.epoch != protocol.EpochAway {
			m.nextSend = m.now
		} else if len(c.report.draining) == 0 && len(m.shards) == 0 {
			m.end(nil)
		}
		return
	case joining:
		m.phase = member
		m.replaces = "" // the commit that admitted this session has freed it (S4)
		m.do(Joined{Incarnation: m.incarnation, Epoch: resp.MemberEpoch})
	default: // the session goes on
	}
	m.epoch, m.version = resp.MemberEpoch, resp.MetadataVersion
	m.assign(c, resp.Assignment)
}

// assign brings the shards in line with an assignment: what is left out is let go, what is
// new is taken over.
func (m *Machine) assign(c *call, a protocol.Assignment) {
	assigned := make(map[int]int64, len(a.AssignedShards))
	for _, s := range a.AssignedShards {
		assigned[s.ShardIndex] = a.OwnershipEpochs[strconv.Itoa(s.ShardIndex)]
	}
	for _, s := range m.Owned() {
		if _, ok := assigned[s]; !ok {
			m.revoke(s)
		}
	}
	for s, seen := range c.seen {
		if epoch, ok := assigned[s]; m.seen[s] == seen && (!ok || epoch > seen) {
			delete(m.seen, s)
		}
	}
	if m.phase != member || m.now >= m.leaseEnd {
		return
	}
	for _, shard := range a.AssignedShards {
		s := shard.ShardIndex
		epoch := assigned[s]
		o, have := m.shards[s]
		switch {
		case have && (o.draining || epoch <= o.epoch):
			continue // drains first (S10), or nothing new
		case have:
			m.do(Drop{Shard: s, Epoch: o.epoch, Cause: NewEpoch})
		case epoch <= 0:
			continue // no ownership epoch, nothing to fence reads and acknowledgements with
		}
		m.shards[s] = ownership{epoch: epoch}
		m.do(Own{Shard: s, Epoch: epoch})
	}
}

// sessionOver is M7.
func (m *Machine) sessionOver(c *call, resp protocol.HeartbeatResponse) {
	m.lastErr = fmt.Errorf("%s %s", resp.Status, resp.Reason)
	m.dropAll(Fenced)
	m.dropLease()
	if m.stopping() {
		m.settle(c)
		m.end(nil)
		return
	}
	if c.report.epoch == protocol.EpochJoin && resp.Status == protocol.StatusUnknownMemberID {
		// There is no such group (yet): the same join again, at the pace of heartbeats.
		m.settle(c)
		m.refuse(fmt.Errorf("%w: no such consumer group", ErrRefused), false)
		return
	}
	m.settle(c)
	if c.report.epoch == protocol.EpochJoin {
		m.fencedJoins++
	}
	m.rejoin()
	if m.fencedJoins > 1 { // never a tight loop
		m.failures = m.fencedJoins
		m.nextSend = m.now + m.backoff()
	}
}

// rejoin opens another session in place of the one that is over.
func (m *Machine) rejoin() {
	m.phase = joining
	m.replaces = m.incarnation
	m.newIncarnation()
	m.epoch, m.version = 0, 0
	m.nextSend = m.now
}

func (m *Machine) dropLease() {
	if m.leaseEnd > m.now {
		m.leaseEnd = m.now
		m.do(Lease{End: m.now})
	}
}

// refused is M8 and every other INVALID_REQUEST.
func (m *Machine) refused(c *call, resp protocol.HeartbeatResponse) {
	if m.stopping() {
		m.settle(c)
		m.end(nil)
		return
	}
	err := fmt.Errorf("%w: %s %s", ErrRefused, resp.Status, resp.Reason)
	if resp.Reason == protocol.ReasonIDInUse {
		err = fmt.Errorf("%w: %q", ErrDuplicateID, m.cfg.MemberID)
	}
	if c.report.epoch != protocol.EpochJoin && m.now >= m.leaseEnd {
		// The session is of no more use, and nothing is held under it.
		m.dropAll(LeaseEnded)
		m.settle(c)
		m.rejoin()
		m.nextSend = m.lastSent + m.interval
		m.failures = 1
		return
	}
	m.refuse(err, true)
}

// refuse tries again each interval, and stops when it was refused for a whole lease.
func (m *Machine) refuse(err error, final bool) {
	m.inFlight = nil
	m.lastErr, m.refusal = err, err
	if m.refusedSince < 0 {
		m.refusedSince = m.lastSent
	}
	if final && m.now-m.refusedSince >= m.lease {
		m.end(err)
		return
	}
	m.failures = max(m.failures, 1)
	m.nextSend = m.lastSent + m.interval
}

// settle ends the call in flight, an answer to it being applied.
func (m *Machine) settle(c *call) {
	m.inFlight = nil
	m.failures, m.refusedSince, m.refusal = 0, -1, nil
	m.nextSend = c.sent + m.interval
}

// failed is M11: nothing changes, the lease runs.
func (m *Machine) failed(in Failed) {
	if m.inFlight == nil || in.Call != m.inFlight.id {
		return
	}
	if in.Permanent && !m.stopping() {
		m.dropAll(Refused)
		m.dropLease()
		m.refuse(fmt.Errorf("%w: %w", ErrRefused, in.Err), true)
		return
	}
	if errors.Is(m.refusal, ErrDuplicateID) {
		// M8 counts anew: where Redis was away, leases are made to last longer, those of the dead
		// too, so that what kept the id all the while need not be a live process.
		m.refusedSince, m.refusal = -1, nil
	}
	m.lastErr = in.Err
	m.inFlight = nil
	m.failures++
	m.nextSend = m.now + m.backoff()
}

// backoff is H/16 after the first failure, doubled by each up to H, spread over its upper
// half so that members which lost the same coordinator do not come back together.
func (m *Machine) backoff() time.Duration {
	d := m.interval
	if m.failures < 5 {
		d = m.interval >> (5 - m.failures)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.cfg.MemberID)) // never fails
	_, _ = h.Write(strconv.AppendInt(nil, m.calls, 10))
	return d/2 + d/2*time.Duration(h.Sum64()%1024)/1024
}

package appendflow

import "github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"

// routing takes the coordinator's word, but a lower layout only from shard 0: an answer may
// come from a replica that is a moment behind.
func (m *Machine) routing(in Routing) {
	m.refreshing, m.wantRefresh = false, false
	m.err = in.Err
	if in.Err != nil {
		m.unrouted = m.drain()
		return
	}
	m.asked = 0
	current := m.layout
	if m.next != nil {
		current = *m.next
	}
	switch {
	case !m.known && m.next == nil, in.Layout.Epoch > current.Epoch,
		in.Layout.Epoch == current.Epoch && in.Layout.Count != current.Count:
		m.adopt(in.Layout)
	case in.Layout.Epoch < current.Epoch:
		m.wantLook = true
		return
	}
	switch {
	case !in.Awaited:
		m.firstBy = 0
	case m.firstBy == 0:
		m.firstBy = m.now + FirstLayoutWait
	}
	m.open, m.leaseEnd = in.Open, in.LeaseEnd
	if in.Open {
		m.probeSealed()
	}
}

// routingFailed turns to shard 0.
func (m *Machine) routingFailed(in RoutingFailed) {
	m.refreshing = false
	m.asked++
	if in.Permanent && !m.known {
		for _, e := range m.drain() {
			m.done(e, in.Err)
		}
	}
	m.askAt = m.now + m.backoff(m.asked, -1)
	m.wantLook = true
	if !m.known {
		m.wantRefresh = true
	}
}

// shard0 takes the word of shard 0, up or down.
func (m *Machine) shard0(in Shard0) {
	m.looking = false
	if !in.Found {
		m.asked++
		m.askAt = m.now + m.backoff(m.asked, -2)
		m.wantRefresh = true
		for s := range m.lanes {
			if l := &m.lanes[s]; l.wait == waitShard0 {
				m.retryIn(s, m.backoff(l.failures, s))
			}
		}
		return
	}
	asked := m.asked
	m.adopt(in.Layout)
	m.asked = asked // it is still the coordinator that is away
	for s := range m.lanes {
		l := &m.lanes[s]
		if l.wait != waitShard0 {
			continue
		}
		if m.next != nil {
			m.retryIn(s, 0) // under the next layout
			continue
		}
		l.wait = waitBring
		m.do(Bring{Shard: s, Layout: m.layout, Gate: l.met.Gate})
	}
}

// resolved goes on with a pause that is overdue.
func (m *Machine) resolved(in Resolved) {
	if in.Shard >= len(m.lanes) || m.lanes[in.Shard].wait != waitResolve {
		return
	}
	l := &m.lanes[in.Shard]
	if in.Code != shardscript.InForce {
		m.retryIn(in.Shard, m.backoff(l.failures, in.Shard))
		return
	}
	layout := in.Layout
	l.then, l.wait = &layout, waitBring
	m.do(Bring{Shard: in.Shard, Layout: layout, Gate: l.met.Gate})
}

// brought tries the append again, under the layout that was brought.
func (m *Machine) brought(in Brought) {
	if in.Shard >= len(m.lanes) || m.lanes[in.Shard].wait != waitBring {
		return
	}
	l := &m.lanes[in.Shard]
	then := l.then
	l.then = nil
	if in.Failed || l.failures > 2 {
		m.retryIn(in.Shard, m.backoff(l.failures, in.Shard))
	} else {
		m.retryIn(in.Shard, 0)
	}
	if then != nil && !in.Failed {
		m.adopt(*then)
	}
}

package appendflow

import (
	"fmt"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// replied takes the answer to a batch.
func (m *Machine) replied(b *Batch, r Reply) {
	if b.generation != m.generation || m.lanes[b.Shard].batch != b {
		return // the machine never changes its layout with a batch in flight
	}
	l := &m.lanes[b.Shard]
	l.batch = nil
	m.inFlight--
	m.touch(b.Shard)
	if r.Fates != nil {
		m.fates(b, l, r.Fates)
		return
	}
	rest := b.Entries
	switch r.Code {
	case shardscript.OK:
		m.landed(l, rest)
		return
	case shardscript.Failed:
		m.landed(l, rest[:r.Landed])
		rest = rest[r.Landed:]
		if !r.Sealed {
			for _, e := range rest {
				m.done(e, fmt.Errorf("not appended: %w", r.Err))
			}
			return
		}
		m.requeue(l, rest)
		m.sealed(b.Shard, Reply{Remaining: -1})
		return
	case "":
		m.unanswered(b, l, r)
		return
	default: // refused as a whole: nothing has landed
	}
	m.requeue(l, rest)
	l.failures++
	l.met = r
	switch r.Code {
	case shardscript.Stale, shardscript.Retired:
		if r.InForce.Epoch > m.layout.Epoch {
			if m.next == nil || r.InForce.Epoch > m.next.Epoch {
				m.adopt(r.InForce)
			}
			return
		}
		m.refresh(b.Shard)
	case shardscript.Behind:
		// Either this shard missed the opening, or we follow a history that Redis has lost.
		l.wait = waitShard0
		m.wantLook = true
	case shardscript.Sealed:
		m.sealed(b.Shard, r)
	case shardscript.Overdue:
		if r.Until == 0 { // an operator's pause alone is over without anybody's decision
			l.wait = waitBring
			m.do(Bring{Shard: b.Shard, Layout: r.InForce})
			return
		}
		l.wait = waitResolve
		m.do(Resolve{Shard: b.Shard, Gate: r.Gate, Until: r.Until, Epoch: r.InForce.Epoch})
	default: // NOSHARD, UNFENCED, and what a newer script may say
		m.refresh(b.Shard)
	}
}

// refresh asks for the routing and tries the shard again later.
func (m *Machine) refresh(shard int) {
	m.wantRefresh = true
	m.retryIn(shard, m.backoff(m.lanes[shard].failures, shard))
}

func (m *Machine) landed(l *lane, entries []*Entry) {
	for _, e := range entries {
		m.done(e, nil)
	}
	if len(entries) == 0 {
		return
	}
	l.failures, l.fenced = 0, false
	if l.sealed { // so the others may be open as well
		l.sealed = false
		m.probeSealed()
	}
}

// probeSealed tries all sealed shards now.
func (m *Machine) probeSealed() {
	for s := range m.lanes {
		if o := &m.lanes[s]; o.sealed && o.wait == waitTime {
			o.retryAt = m.now
			m.touch(s)
		}
	}
}

// sealed keeps the queue until a routing answer or the deadline, or fails what was refused.
func (m *Machine) sealed(shard int, r Reply) {
	l := &m.lanes[shard]
	l.fenced = true
	if m.cfg.FailFast {
		for _, e := range l.queue {
			m.done(e, ErrPaused)
		}
		l.queue = nil
		return
	}
	l.sealed = true
	d := sealedProbe
	if r.Remaining >= 0 {
		d = min(d, r.Remaining+time.Millisecond)
	}
	switch {
	case m.open: // the shard is a moment behind the routing answer, or the answer behind the shard
		d = min(d, m.backoff(l.failures, shard))
	case m.asked > 0: // nobody would tell us
		d = min(d, lastRetry)
	}
	m.retryIn(shard, max(d, firstRetry))
}

// unanswered is a batch that no script answered.
func (m *Machine) unanswered(b *Batch, l *lane, r Reply) {
	switch {
	case r.Lost:
		for _, e := range b.Entries {
			m.done(e, fmt.Errorf("%w: %w", ErrOutcomeUnknown, r.Err))
		}
	case r.Retriable:
		m.requeue(l, b.Entries)
	default:
		for _, e := range b.Entries {
			m.done(e, fmt.Errorf("not appended: %w", r.Err))
		}
		return
	}
	l.failures++
	m.retryIn(b.Shard, m.backoff(l.failures, b.Shard))
}

// fates ends what a plain batch appended, and leaves what was refused to the script.
func (m *Machine) fates(b *Batch, l *lane, fates []Fate) {
	var refused, landed []*Entry
	lost := false
	for i, f := range fates {
		e := b.Entries[i]
		switch {
		case f.Refused:
			refused = append(refused, e)
		case f.Err == nil:
			landed = append(landed, e)
		case f.Lost:
			lost = true
			m.done(e, fmt.Errorf("%w: %w", ErrOutcomeUnknown, f.Err))
		default:
			m.done(e, fmt.Errorf("not appended: %w", f.Err))
		}
	}
	m.landed(l, landed)
	if len(refused) > 0 {
		m.requeue(l, refused)
		l.fenced = true
	}
	if lost {
		l.failures++
		m.retryIn(b.Shard, m.backoff(l.failures, b.Shard))
	}
}

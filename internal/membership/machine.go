package membership

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// ErrDuplicateID ends a member whose id another live process keeps for a whole lease (M8).
var ErrDuplicateID = errors.New("another live process has this member id")

// ErrRefused ends a member that the coordinator refused for a whole lease for another reason.
var ErrRefused = errors.New("the coordinator refuses this member")

// ErrUnsupportedProtocol ends a member that the coordinator is too old or too new for.
var ErrUnsupportedProtocol = errors.New("the coordinator does not speak this protocol version")

// Never is the instant of a Wake that has nothing to wait for.
const Never = time.Duration(math.MaxInt64)

// Config of a Machine.
type Config struct {
	MemberID, MemberName string
	// MaxConcurrency is reported as capacity; observation only. At least 1.
	MaxConcurrency int
	// Lease and Interval are presumed until the first answer tells them. Default 15 s and 3 s.
	Lease, Interval time.Duration
	// Hold is the longest time that a call may be held; never more than the interval is used.
	// Negative: calls are not held. Default: the interval.
	Hold time.Duration
	// Replaces is an incarnation whose death the driver can prove (M9); "" if none.
	Replaces string
	// NewIncarnation makes a random incarnation. Required; called once for each session.
	NewIncarnation func() string
}

type phase int

const (
	joining phase = iota // no session: the next call is a join
	member               // a session is, or was, open under m.incarnation
	leaving              // −1 was decided
	away                 // drains before −2
	gone                 // −2 was decided
	stopped
)

// ownership is one shard that the member reads or drains.
type ownership struct {
	epoch    int64
	draining bool
}

// call is the one in flight.
type call struct {
	id       int64
	sent     time.Duration
	deadline time.Duration
	report   report
	seen     map[int]int64
}

// Machine is one member. It is not safe for concurrent use.
type Machine struct {
	cfg   Config
	now   time.Duration
	phase phase

	incarnation, replaces string
	epoch, version        int64 // of the newest applied answer
	lease, interval       time.Duration
	leaseEnd              time.Duration
	shards                map[int]ownership
	seen                  map[int]int64

	calls    int64
	inFlight *call
	sent     *report // of the newest call, answered or not
	lastSent time.Duration
	nextSend time.Duration // when the next call is due, its report unchanged
	failures int           // calls in a row that changed nothing

	refusedSince time.Duration // of the run of refusals; -1: none
	refusal      error
	fencedJoins  int // joins in a row that met a session that was over
	lastErr      error

	out []Action
}

// New makes a machine that joins at its first Step.
func New(cfg Config) *Machine {
	if cfg.Lease <= 0 {
		cfg.Lease = time.Duration(protocol.DefaultGroupSpec().MemberLeaseMs) * time.Millisecond
	}
	if cfg.Interval <= 0 {
		cfg.Interval = time.Duration(protocol.DefaultGroupSpec().HeartbeatIntervalMs) * time.Millisecond
	}
	cfg.MaxConcurrency = max(cfg.MaxConcurrency, 1)
	return &Machine{
		cfg: cfg, replaces: cfg.Replaces, lease: cfg.Lease, interval: cfg.Interval,
		shards: map[int]ownership{}, seen: map[int]int64{}, refusedSince: -1,
	}
}

// Step takes what happened at the instant now and returns what is to be done, in order.
func (m *Machine) Step(now time.Duration, inputs ...Input) []Action {
	m.now = max(m.now, now)
	m.out = nil
	if m.phase == stopped {
		return nil
	}
	if m.incarnation == "" {
		m.newIncarnation()
	}
	m.endLease() // before anything that arrived late
	for _, in := range inputs {
		if m.phase == stopped {
			break
		}
		switch in := in.(type) {
		case Answered:
			m.answered(in)
		case Failed:
			m.failed(in)
		case Drained:
			if o, ok := m.shards[in.Shard]; ok && o.draining && o.epoch == in.Epoch {
				delete(m.shards, in.Shard)
			}
		case Seen:
			if o, ok := m.shards[in.Shard]; ok && in.Epoch > o.epoch && in.Epoch > m.seen[in.Shard] {
				m.seen[in.Shard] = in.Epoch
			}
		case Stop:
			m.stop(in.Static)
		}
	}
	m.advance()
	return m.out
}

// Wake is the instant at which Step is due at the latest, or Never.
func (m *Machine) Wake() time.Duration {
	if m.phase == stopped {
		return Never
	}
	at := m.nextSend
	if m.inFlight != nil {
		at = m.inFlight.deadline
	}
	if m.leaseEnd > m.now && (len(m.shards) > 0 || m.stopping()) {
		at = min(at, m.leaseEnd)
	}
	return at
}

// LeaseEnd is the instant from which the member may do nothing with its shards.
func (m *Machine) LeaseEnd() time.Duration { return m.leaseEnd }

// Incarnation is that of the session that is open or asked for.
func (m *Machine) Incarnation() string { return m.incarnation }

// Epoch is the epoch of the newest applied answer, 0 without a session.
func (m *Machine) Epoch() int64 { return m.epoch }

// Owned lists the shards that the member reads, ascending.
func (m *Machine) Owned() []int { return m.list(false) }

// Draining lists the shards that were revoked and are not drained, ascending.
func (m *Machine) Draining() []int { return m.list(true) }

// Health is nil while the member has a lease, else why it has none.
func (m *Machine) Health() error {
	switch {
	case m.refusal != nil:
		return m.refusal
	case m.leaseEnd > m.now:
		return nil
	case m.lastErr != nil:
		return fmt.Errorf("no lease: %w", m.lastErr)
	default:
		return errors.New("no lease yet")
	}
}

// Stopped says whether the machine has given its last action.
func (m *Machine) Stopped() bool { return m.phase == stopped }

func (m *Machine) stopping() bool { return m.phase == leaving || m.phase == away || m.phase == gone }

func (m *Machine) list(draining bool) []int {
	out := make([]int, 0, len(m.shards))
	for s, o := range m.shards {
		if o.draining == draining {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) newIncarnation() {
	m.incarnation = m.cfg.NewIncarnation()
	m.do(Session{Incarnation: m.incarnation})
}

// dropAll ends every ownership at once.
func (m *Machine) dropAll(cause Cause) {
	all := make([]int, 0, len(m.shards))
	for s := range m.shards {
		all = append(all, s)
	}
	slices.Sort(all)
	for _, s := range all {
		m.do(Drop{Shard: s, Epoch: m.shards[s].epoch, Cause: cause})
	}
	clear(m.shards)
	clear(m.seen)
}

func (m *Machine) endLease() {
	if m.now >= m.leaseEnd && len(m.shards) > 0 {
		m.dropAll(LeaseEnded)
	}
}

func (m *Machine) revokeAll() {
	for _, s := range m.Owned() {
		m.revoke(s)
	}
}

func (m *Machine) revoke(s int) {
	o := m.shards[s]
	o.draining = true
	m.shards[s] = o
	delete(m.seen, s)
	m.do(Revoke{Shard: s, Epoch: o.epoch})
}

// stop is the first half of M10; advance does the rest.
func (m *Machine) stop(static bool) {
	if m.stopping() {
		return
	}
	if m.calls == 0 { // nobody knows of this member
		m.end(nil)
		return
	}
	m.revokeAll()
	m.failures = 0
	switch {
	case !static:
		m.phase = leaving
	case m.phase == joining: // the session, if there is one, holds nothing that it uses
		m.phase = gone
	default:
		m.phase = away
	}
}

func (m *Machine) end(err error) {
	m.dropAll(Left)
	m.phase, m.inFlight = stopped, nil
	m.do(Stopped{Err: err})
}

// advance sends the call that is due.
func (m *Machine) advance() {
	if m.phase == stopped {
		return
	}
	if m.phase == away && len(m.shards) == 0 {
		m.phase = gone
	}
	if (m.phase == gone || m.phase == leaving) && m.failures > 0 && m.now >= m.leaseEnd && len(m.shards) == 0 {
		// Nobody answers, and the coordinator's own row ends without us.
		m.end(nil)
		return
	}
	if c := m.inFlight; c != nil && m.now >= c.deadline {
		m.failed(Failed{Call: c.id, Err: errors.New("no answer in time")})
	}
	r := m.report()
	changed := m.sent == nil || !r.equal(*m.sent)
	switch {
	case changed && (m.failures == 0 || m.inFlight != nil): // M6, also in place of a call that is being held
	case m.inFlight != nil || m.now < m.nextSend:
		return
	}
	m.send(r)
}

func (m *Machine) send(r report) {
	m.calls++
	hold := m.hold()
	timeout := protocol.RequestTimeout(hold, m.lease)
	c := &call{id: m.calls, sent: m.now, deadline: m.now + timeout, report: r, seen: map[int]int64{}}
	for _, s := range r.seen {
		c.seen[s.Shard.ShardIndex] = s.Epoch
	}
	m.inFlight, m.sent, m.lastSent = c, &r, m.now
	m.do(Send{Call: c.id, Request: m.request(c, hold), Timeout: timeout})
}

// hold is how long the call may be held: not at all while the member is on its way out.
func (m *Machine) hold() time.Duration {
	if m.cfg.Hold < 0 || m.phase == leaving || m.phase == gone {
		return 0
	}
	if m.cfg.Hold == 0 {
		return m.interval
	}
	return min(m.cfg.Hold, m.interval)
}

func sortedSeen(seen map[int]int64) []protocol.OwnershipSeen {
	out := make([]protocol.OwnershipSeen, 0, len(seen))
	for s, e := range seen {
		out = append(out, protocol.OwnershipSeen{Shard: protocol.Shard{ShardIndex: s}, Epoch: e})
	}
	slices.SortFunc(out, func(a, b protocol.OwnershipSeen) int {
		return cmp.Compare(a.Shard.ShardIndex, b.Shard.ShardIndex)
	})
	return out
}

package appendflow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Never is the instant of a Wake that has nothing to wait for.
const Never = time.Duration(math.MaxInt64)

// Back-off of a shard that refuses, and of the questions asked about it.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
	// sealedProbe is how long a sealed shard is left alone when neither a routing answer nor
	// its deadline says that it may be open again.
	sealedProbe = 5 * time.Second
)

// FirstLayoutWait is how long entries are kept for a stream whose first layout is being made.
const FirstLayoutWait = 30 * time.Second

// Config of a Machine.
type Config struct {
	MaxBatch int           // entries in a batch; default 100
	Linger   time.Duration // how long an entry may wait for company; default 0
	FailFast bool          // a pause ends entries with ErrPaused, a wait for the first layout with ErrNoShards
	Plain    bool          // bare appends while the routing lease lasts
	Seed     uint64        // spreads back-off of producers
}

// lane is the queue of one shard under the layout in use.
type lane struct {
	queue    []*Entry
	oldest   time.Duration // when the first of the queue was pushed
	batch    *Batch        // in flight
	wait     wait
	retryAt  time.Duration // waitTime
	failures int
	sealed   bool // the last answer was a seal
	fenced   bool // a bare append was refused: the script is asked
	met      Reply
	then     *Layout // in force, once it is brought
	dirty    bool
}

type wait int

const (
	ready wait = iota
	waitTime
	waitShard0  // BEHIND: shard 0 is asked
	waitResolve // OVERDUE: shard 0 decides
	waitBring
)

// Machine is one producer. It is not safe for concurrent use.
type Machine struct {
	cfg        Config
	now        time.Duration
	seq        uint64
	generation int

	known  bool
	layout Layout  // in use
	next   *Layout // to be used once nothing is in flight
	err    error   // why nothing can be routed

	firstBy  time.Duration // until when entries wait for the first layout; 0: it is not awaited
	open     bool          // what the newest routing answer says
	leaseEnd time.Duration // of it, for bare appends
	lanes    []lane
	dirty    []int
	timed    []int // lanes that wait for an instant
	inFlight int
	unrouted []*Entry

	wantRefresh, refreshing bool
	wantLook, looking       bool
	askAt                   time.Duration // when the next question about the layout may be asked
	asked                   int           // questions in a row without a useful answer

	out []Action
}

// New makes a machine that asks for a routing at its first Step.
func New(cfg Config) *Machine {
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = 100
	}
	return &Machine{cfg: cfg, wantRefresh: true}
}

// Push takes an entry. Step is due.
func (m *Machine) Push(now time.Duration, e *Entry) {
	m.now = max(m.now, now)
	m.seq++
	e.seq, e.sent, e.cancelled = m.seq, false, false
	if !m.known || m.err != nil || m.layout.Count == 0 {
		m.unrouted = append(m.unrouted, e)
		return
	}
	m.enqueue(e)
}

func (m *Machine) enqueue(e *Entry) {
	shard, _ := protocol.ShardIndex(e.Key, m.layout.Count)
	l := &m.lanes[shard]
	if len(l.queue) == 0 {
		l.oldest = m.now
	}
	l.queue = append(l.queue, e)
	m.touch(shard)
}

// Cancel takes an entry back. It is false when the entry is in flight or ended.
func (m *Machine) Cancel(e *Entry) bool {
	if e.sent {
		return false
	}
	e.cancelled = true
	return true
}

// Layout is the one in use, and whether there is one.
func (m *Machine) Layout() (Layout, bool) { return m.layout, m.known }

// Step takes what was learnt until now and returns what is to be done, in order.
func (m *Machine) Step(now time.Duration, inputs ...Input) []Action {
	m.now = max(m.now, now)
	m.out = nil
	for _, in := range inputs {
		switch in := in.(type) {
		case Routing:
			m.routing(in)
		case RoutingFailed:
			m.routingFailed(in)
		case Shard0:
			m.shard0(in)
		case Replied:
			m.replied(in.Batch, in.Reply)
		case Resolved:
			m.resolved(in)
		case Brought:
			m.brought(in)
		}
	}
	m.advance()
	return m.out
}

// Abort ends everything that is not in flight with err.
func (m *Machine) Abort(err error) []Action {
	m.out = nil
	for _, e := range m.drain() {
		m.done(e, err)
	}
	return m.out
}

// Wake is the instant at which Step is due at the latest, or Never.
func (m *Machine) Wake() time.Duration {
	at := Never
	for _, s := range m.timed {
		at = min(at, m.dueAt(&m.lanes[s]))
	}
	if len(m.unrouted) > 0 && m.layoutAwaited() {
		at = min(at, m.firstBy)
	}
	if (m.wantRefresh && !m.refreshing) || (m.wantLook && !m.looking) {
		at = min(at, m.askAt)
	}
	return at
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) done(e *Entry, err error) {
	if e.cancelled {
		return
	}
	e.sent = true // it can no longer be cancelled
	m.do(Done{Entry: e, Err: err})
}

func (m *Machine) touch(shard int) {
	if l := &m.lanes[shard]; !l.dirty {
		l.dirty = true
		m.dirty = append(m.dirty, shard)
	}
}

// drain empties all queues, in the order of pushing.
func (m *Machine) drain() []*Entry {
	all := m.unrouted
	m.unrouted = nil
	for i := range m.lanes {
		all = append(all, m.lanes[i].queue...)
		m.lanes[i].queue = nil
	}
	slices.SortFunc(all, func(a, b *Entry) int { return cmp.Compare(a.seq, b.seq) })
	return all
}

// adopt makes a layout the next one to be used.
func (m *Machine) adopt(l Layout) {
	m.asked = 0
	if m.known && l == m.layout {
		m.next = nil
		return
	}
	m.next = &l
}

// relayout uses the next layout once nothing is in flight under the one in use.
func (m *Machine) relayout() {
	if m.next == nil || m.inFlight > 0 {
		return
	}
	all := m.drain()
	m.known, m.layout, m.next = true, *m.next, nil
	m.generation++
	m.lanes = make([]lane, m.layout.Count)
	m.dirty, m.timed = m.dirty[:0], m.timed[:0]
	m.unrouted = all
}

// route moves what waits for a layout into the queues of its shards.
func (m *Machine) route() {
	if len(m.unrouted) == 0 || m.next != nil {
		return
	}
	switch {
	case m.err != nil:
		for _, e := range m.drain() {
			m.done(e, m.err)
		}
	case !m.known, m.layoutAwaited():
	case m.layout.Count == 0:
		for _, e := range m.drain() {
			m.done(e, ErrNoShards)
		}
	default:
		all := m.unrouted
		m.unrouted = nil
		for _, e := range all {
			m.enqueue(e)
		}
	}
}

// layoutAwaited says that entries are kept for the first layout of the stream.
func (m *Machine) layoutAwaited() bool {
	return m.known && m.layout.Count == 0 && m.now < m.firstBy && !m.cfg.FailFast
}

// advance asks and sends what is due.
func (m *Machine) advance() {
	m.relayout()
	m.route()
	for _, s := range m.timed {
		if m.now >= m.dueAt(&m.lanes[s]) {
			m.touch(s)
		}
	}
	m.timed = slices.DeleteFunc(m.timed, func(s int) bool { return m.lanes[s].dirty })
	if m.next == nil {
		for _, s := range m.dirty {
			m.lanes[s].dirty = false
			m.examine(s)
		}
		m.dirty = m.dirty[:0]
	}
	if m.now < m.askAt {
		return
	}
	if m.wantRefresh && !m.refreshing {
		m.wantRefresh, m.refreshing = false, true
		m.do(Refresh{})
	}
	if m.wantLook && !m.looking {
		m.wantLook, m.looking = false, true
		m.do(Look{})
	}
}

// dueAt is when a lane that waits for an instant may send again.
func (m *Machine) dueAt(l *lane) time.Duration {
	if l.wait == waitTime {
		return l.retryAt
	}
	return l.oldest + m.cfg.Linger
}

// examine sends the next batch of a shard, if it may.
func (m *Machine) examine(shard int) {
	l := &m.lanes[shard]
	if l.batch != nil || len(l.queue) == 0 {
		return
	}
	switch l.wait {
	case ready:
		if len(l.queue) < m.cfg.MaxBatch && m.now < l.oldest+m.cfg.Linger {
			m.timed = append(m.timed, shard)
			return
		}
	case waitTime:
		if m.now < l.retryAt {
			m.timed = append(m.timed, shard)
			return
		}
		l.wait = ready
	case waitShard0, waitResolve, waitBring:
		return
	}
	b := &Batch{Shard: shard, Layout: m.layout, generation: m.generation}
	b.Plain = m.cfg.Plain && !l.fenced && m.now < m.leaseEnd
	taken := 0
	b.Entries = make([]*Entry, 0, min(len(l.queue), m.cfg.MaxBatch))
	for _, e := range l.queue {
		if len(b.Entries) == m.cfg.MaxBatch {
			break
		}
		taken++
		if !e.cancelled {
			e.sent = true
			b.Entries = append(b.Entries, e)
		}
	}
	l.queue = l.queue[taken:]
	l.oldest = m.now
	if len(l.queue) == 0 {
		l.queue = nil // the array goes with the batch
	}
	if len(b.Entries) == 0 {
		return
	}
	l.batch = b
	m.inFlight++
	m.do(Send{Batch: b})
}

// requeue puts entries back before everything that was pushed after them.
func (m *Machine) requeue(l *lane, entries []*Entry) {
	for _, e := range entries {
		e.sent = false
	}
	l.queue = append(slices.Clone(entries), l.queue...)
	l.oldest = m.now - m.cfg.Linger // they have waited long enough
}

func (m *Machine) retryIn(shard int, d time.Duration) {
	l := &m.lanes[shard]
	l.wait, l.retryAt = waitTime, m.now+d
	m.touch(shard)
}

// backoff doubles from firstRetry to lastRetry, spread over its upper half.
func (m *Machine) backoff(failures int, salt int) time.Duration {
	d := lastRetry
	if failures < 7 {
		d = min(d, firstRetry<<max(failures-1, 0))
	}
	x := m.cfg.Seed + uint64(salt)*0x9e3779b97f4a7c15 + uint64(failures)*0xbf58476d1ce4e5b9
	x ^= x >> 31
	x *= 0x94d049bb133111eb
	x ^= x >> 29
	return d/2 + d/2*time.Duration(x%1024)/1024
}

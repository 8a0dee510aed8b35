package group_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// start is the Redis time at which every test begins.
const start protocol.Instant = 1_700_000_000_000

// tb is what testing.T and rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// world is one group in a modeled Redis, with the processes that call it. It enforces what
// the commit script enforces, and after every step what must always hold.
type world struct {
	t      tb
	now    protocol.Instant
	stored *group.State
	rev    int
	rows   group.Leases // the truth; what a replica knows may be older
	procs  []*process
	// lost says that Redis has lost writes: epochs jump, and who reads need not be the holder.
	lost bool
	made int // names given out
	// over has the incarnations whose sessions the group has fenced: what they acknowledged to
	// have stopped reading may go on to others while they still work on it.
	over map[string]bool
}

func newWorld(t tb, shards int) *world {
	return &world{t: t, now: start, rev: 1, rows: group.Leases{}, over: map[string]bool{}, stored: group.New("orders", "billing", protocol.GroupSpec{}, shards, start)}
}

// at moves the clock to so many seconds after the start; processes keep their own leases.
func (w *world) at(seconds float64) {
	w.t.Helper()
	to := start.Add(time.Duration(seconds * float64(time.Second)))
	if to < w.now {
		w.t.Fatalf("the clock is at %s, not before %vs", w.clock(), seconds)
	}
	w.now = to
	for _, p := range w.procs {
		p.expire(w.now)
	}
	w.check()
}

func (w *world) advance(d time.Duration) { w.at((w.now.Sub(start) + d).Seconds()) }

func (w *world) clock() string { return w.now.Sub(start).String() }

// replica is what one coordinator knows: a state, its revision, and lease rows.
type replica struct {
	state  *group.State
	rev    int
	leases group.Leases
}

func (w *world) replica() replica {
	return replica{state: w.stored, rev: w.rev, leases: maps.Clone(w.rows)}
}

// commit is the script: token, row checks, then everything at once. It says why it refused.
func (w *world) commit(rev int, turn *group.Turn, reset bool) error {
	if rev != w.rev {
		return fmt.Errorf("conflict: revision %d is not %d", rev, w.rev)
	}
	rows := turn.Rows()
	for _, c := range rows.Check {
		end, ok := w.rows[c.Row]
		switch {
		case !ok:
			return fmt.Errorf("row %s is missing", c.Row)
		case end.Sub(w.now) > c.MaxRemaining:
			return fmt.Errorf("row %s has %s left, at most %s expected", c.Row, end.Sub(w.now), c.MaxRemaining)
		}
	}
	before := w.stored
	next := turn.State()
	if !w.lost && (next.GroupEpoch < before.GroupEpoch || next.MetadataVersion < before.MetadataVersion || next.OwnershipCounter < before.OwnershipCounter) {
		w.t.Fatalf("an epoch fell: %s", dump(next))
	}
	if turn.Changed() {
		w.stored = next
		w.rev++
	}
	for _, row := range rows.Drop {
		delete(w.rows, row)
	}
	for _, row := range rows.Renew {
		end := w.now.Add(next.Config().MemberLease)
		if !reset {
			end = max(end, w.rows[row])
		}
		w.rows[row] = end
	}
	w.check()
	return nil
}

// batch applies requests as a coordinator does: first the tick, sparing who is present, then
// the requests one after the other; it answers once all is committed.
func (w *world) batch(reqs ...*protocol.HeartbeatRequest) []protocol.HeartbeatResponse {
	w.t.Helper()
	answers, err := w.batchFrom(w.replica(), reqs...)
	if err != nil {
		w.t.Fatalf("at %s: commit refused: %v", w.clock(), err)
	}
	return answers
}

func (w *world) batchFrom(r replica, reqs ...*protocol.HeartbeatRequest) ([]protocol.HeartbeatResponse, error) {
	w.t.Helper()
	before := dump(r.state)
	present := map[string]bool{}
	for _, req := range reqs {
		present[req.MemberID] = true
	}
	turn := group.Begin(r.state)
	turn.Tick(w.now, r.leases, present)
	w.noteFenced(turn.State())
	answers := make([]protocol.HeartbeatResponse, len(reqs))
	for i, req := range reqs {
		answers[i] = turn.Heartbeat(req, w.now, r.leases)
		w.noteFenced(turn.State())
		w.checkAnswer(turn.State(), req, &answers[i])
	}
	if after := dump(r.state); after != before {
		w.t.Fatalf("a turn modified the state that it began with:\nbefore %s\nafter  %s", before, after)
	}
	return answers, w.commit(r.rev, turn, false)
}

// tick is the periodic work, with nobody calling.
func (w *world) tick() { w.t.Helper(); w.batch() }

// checkAnswer is what every answer must be, whatever it decides.
func (w *world) checkAnswer(s *group.State, req *protocol.HeartbeatRequest, a *protocol.HeartbeatResponse) {
	w.t.Helper()
	if a.ResponseTo != req.RequestID || a.MemberID != req.MemberID || a.HeartbeatIntervalMs == 0 || a.RebalanceTimeoutMs == 0 {
		w.t.Fatalf("incomplete answer %+v", a)
	}
	if a.Assignment.AssignedShards == nil || a.Assignment.PendingShards == nil {
		w.t.Fatalf("null shards in answer %+v", a)
	}
	assigned, pending := protocol.Indexes(a.Assignment.AssignedShards), protocol.Indexes(a.Assignment.PendingShards)
	if !slices.IsSorted(assigned) || !slices.IsSorted(pending) {
		w.t.Fatalf("shards are not ascending: %v %v", assigned, pending)
	}
	if a.Status.ExtendsLease() != (a.MemberLeaseMs != 0) {
		w.t.Fatalf("%s answers a lease of %d ms", a.Status, a.MemberLeaseMs)
	}
	if a.AssignmentEpoch != a.GroupEpoch || a.Assignment.MetadataVersion != a.MetadataVersion {
		w.t.Fatalf("numbers of one answer differ: %+v", a)
	}
	if len(a.Assignment.OwnershipEpochs) != len(assigned) {
		w.t.Fatalf("%d ownership epochs for %v", len(a.Assignment.OwnershipEpochs), assigned)
	}
	for _, i := range assigned {
		sh := s.Shards[i]
		if sh.Holder == nil || sh.Holder.MemberID != req.MemberID || sh.RevokedAt != 0 || sh.Orphaned || sh.Target != req.MemberID {
			w.t.Fatalf("%s is told %d, which the state does not give it: %s", req.MemberID, i, dump(s))
		}
		if a.Assignment.OwnershipEpochs[strconv.Itoa(i)] != sh.OwnershipEpoch {
			w.t.Fatalf("ownership epoch of %d is told as %v: %s", i, a.Assignment.OwnershipEpochs, dump(s))
		}
	}
}

func (w *world) noteFenced(s *group.State) {
	for _, m := range s.Members {
		if m.State == group.Fenced {
			w.over[m.Incarnation] = true
		}
	}
}

// check is what must hold after every step.
func (w *world) check() {
	w.t.Helper()
	if bad := group.Check(w.stored); len(bad) > 0 {
		w.t.Fatalf("at %s: %v\n%s", w.clock(), bad, dump(w.stored))
	}
	w.noteFenced(w.stored)
	for _, p := range w.procs {
		for shard := range p.drains {
			if p.plain || w.lost || w.over[p.incarnation] {
				continue
			}
			if shard >= len(w.stored.Shards) {
				w.t.Fatalf("at %s: %s works on shard %d, which is gone\n%s", w.clock(), p.name, shard, dump(w.stored))
			}
			if h := w.stored.Shards[shard].Holder; h == nil || h.Incarnation != p.incarnation {
				w.t.Fatalf("at %s: %s works on shard %d, which it does not hold\n%s", w.clock(), p.name, shard, dump(w.stored))
			}
		}
	}
	for shard := range w.stored.Shards {
		var readers []*process
		for _, p := range w.procs {
			if _, ok := p.reads[shard]; ok {
				readers = append(readers, p)
			}
		}
		if len(readers) > 1 {
			w.t.Fatalf("at %s: %s and %s both read shard %d\n%s", w.clock(), readers[0].name, readers[1].name, shard, dump(w.stored))
		}
		if len(readers) == 1 && !w.lost {
			h := w.stored.Shards[shard].Holder
			if p := readers[0]; h == nil || h.MemberID != p.id || h.Incarnation != p.incarnation {
				w.t.Fatalf("at %s: %s reads shard %d, which it does not hold\n%s", w.clock(), p.name, shard, dump(w.stored))
			}
		}
	}
}

// process is one client process: the member's half of the protocol, as far as these tests need
// it. It calls when told to.
type process struct {
	w           *world
	name        string // of the process, for messages
	id          string // of the member
	incarnation string
	replaces    string
	plain       bool // a client of the reference: no incarnation

	epoch, mv int64
	reads     map[int]int64 // shard → ownership epoch
	drains    map[int]bool
	slow      bool // lets go only when drained is called
	left      int64
	lease     protocol.Instant
	newest    *protocol.HeartbeatRequest
	sent      protocol.Instant
	last      protocol.HeartbeatResponse // last applied answer
	inUse     protocol.Instant           // since when it is refused as a duplicate
	dead      bool
}

// join starts a process of member id, and makes its first call.
func (w *world) join(name, id string) *process { return w.startProcess(name, id, false) }

// plain starts a process of a reference client.
func (w *world) plain(name, id string) *process { return w.startProcess(name, id, true) }

// process makes one that has not called yet.
func (w *world) process(name, id string, plain bool) *process {
	p := &process{w: w, name: name, id: id, plain: plain, reads: map[int]int64{}, drains: map[int]bool{}}
	if !plain {
		p.incarnation = w.fresh(name)
	}
	w.procs = append(w.procs, p)
	return p
}

func (w *world) startProcess(name, id string, plain bool) *process {
	w.t.Helper()
	p := w.process(name, id, plain)
	p.call()
	return p
}

func (w *world) fresh(what string) string {
	w.made++
	return what + "-" + strconv.Itoa(w.made)
}

// request is what the process would send now. It becomes the newest call: answers to older
// ones are not applied (M1).
func (p *process) request() *protocol.HeartbeatRequest {
	req := &protocol.HeartbeatRequest{
		ProtocolVersion: 1, RequestID: p.w.fresh("request"), MemberID: p.id, MemberEpoch: p.epoch, MetadataVersion: p.mv,
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
		OwnedShards:             []protocol.Shard{}, RevokingShards: []protocol.RevokingShard{}, ShardProgress: []protocol.ShardProgress{},
		Incarnation: p.incarnation,
	}
	if p.epoch == protocol.EpochJoin {
		req.Replaces = p.replaces
	} else {
		req.OwnedShards = protocol.Shards(slices.Sorted(maps.Keys(p.reads)))
		for _, i := range slices.Sorted(maps.Keys(p.drains)) {
			req.RevokingShards = append(req.RevokingShards, protocol.RevokingShard{Shard: protocol.Shard{ShardIndex: i}, State: protocol.RevokingDraining, InFlight: 1})
		}
	}
	if p.left != 0 {
		req.MemberEpoch = p.left
	}
	p.newest, p.sent = req, p.w.now
	return req
}

// call sends, has it decided, and applies the answer.
func (p *process) call() protocol.HeartbeatResponse {
	p.w.t.Helper()
	req := p.request()
	answer := p.w.batch(req)[0]
	p.apply(req, answer)
	return answer
}

// apply takes an answer over, if it is to the newest call.
func (p *process) apply(req *protocol.HeartbeatRequest, a protocol.HeartbeatResponse) {
	p.w.t.Helper()
	if req != p.newest || p.dead {
		return
	}
	p.newest = nil
	p.last = a
	p.expire(p.w.now)
	if a.Status != protocol.StatusInvalidRequest {
		p.inUse = 0
	}
	switch a.Status {
	case protocol.StatusOK, protocol.StatusSyncMetadata, protocol.StatusRevokePending:
		cfg := p.w.stored.Config()
		lease := p.sent.Add(time.Duration(a.MemberLeaseMs)*time.Millisecond - cfg.Margin())
		p.lease = max(p.lease, lease)
		if p.left != 0 || p.lease <= p.w.now {
			break // after a leave no answer brings a shard back; a lease that has ended neither
		}
		if a.GroupEpoch < p.epoch {
			p.w.t.Fatalf("group epoch fell from %d to %d in the eyes of %s", p.epoch, a.GroupEpoch, p.name)
		}
		p.epoch, p.mv = a.MemberEpoch, a.MetadataVersion
		next := map[int]int64{}
		for _, sh := range a.Assignment.AssignedShards {
			if _, reading := p.reads[sh.ShardIndex]; reading || a.Status == protocol.StatusOK {
				next[sh.ShardIndex] = a.Assignment.OwnershipEpochs[strconv.Itoa(sh.ShardIndex)]
			}
		}
		for i := range p.reads {
			if _, kept := next[i]; !kept && p.slow {
				p.drains[i] = true
			}
		}
		p.reads = next
	case protocol.StatusFencedMemberEpoch, protocol.StatusUnknownMemberID:
		if p.left != 0 {
			break
		}
		p.dropAll()
		p.epoch, p.mv = protocol.EpochJoin, 0
		if !p.plain {
			p.replaces, p.incarnation = p.incarnation, p.w.fresh(p.name)
		}
	case protocol.StatusInvalidRequest:
		if a.Reason == protocol.ReasonIDInUse && p.inUse == 0 {
			p.inUse = p.w.now
		}
	}
	p.w.check()
}

// drained ends the handlers of all shards that the process was told to let go.
func (p *process) drained() { p.drains = map[int]bool{} }

// expire is the end of the process's own lease: everything is dropped, the epoch is kept (M3).
func (p *process) expire(now protocol.Instant) {
	if p.lease <= now {
		p.dropAll()
	}
}

func (p *process) dropAll() { p.reads, p.drains = map[int]int64{}, map[int]bool{} }

// kill is SIGKILL.
func (p *process) kill() {
	p.dead = true
	p.dropAll()
}

// leave stops for good, with what is read now still in hand when the process is slow.
func (p *process) leave() protocol.HeartbeatResponse {
	p.w.t.Helper()
	if p.slow {
		for i := range p.reads {
			p.drains[i] = true
		}
	}
	p.reads = map[int]int64{}
	p.left = protocol.EpochLeave
	return p.call()
}

// away stops and will be back: everything is drained before it says so.
func (p *process) away() protocol.HeartbeatResponse {
	p.w.t.Helper()
	p.dropAll()
	p.left = protocol.EpochAway
	return p.call()
}

// want compares what the process reads now.
func (p *process) want(shards ...int) {
	p.w.t.Helper()
	if got := slices.Sorted(maps.Keys(p.reads)); !slices.Equal(got, shards) {
		p.w.t.Fatalf("at %s: %s reads %v, want %v\n%s", p.w.clock(), p.name, got, shards, dump(p.w.stored))
	}
}

// wantAnswer compares an answer's status and shards.
func (w *world) wantAnswer(a protocol.HeartbeatResponse, status protocol.HeartbeatStatus, assigned, pending []int) {
	w.t.Helper()
	if a.Status != status || !slices.Equal(protocol.Indexes(a.Assignment.AssignedShards), assigned) || !slices.Equal(protocol.Indexes(a.Assignment.PendingShards), pending) {
		w.t.Fatalf("at %s: got %s assigned %v pending %v, want %s %v %v\n%s", w.clock(), a.Status,
			protocol.Indexes(a.Assignment.AssignedShards), protocol.Indexes(a.Assignment.PendingShards), status, assigned, pending, dump(w.stored))
	}
}

// wantRefused compares status and reason of a refusal.
func (w *world) wantRefused(a protocol.HeartbeatResponse, status protocol.HeartbeatStatus, reason string) {
	w.t.Helper()
	w.wantAnswer(a, status, nil, nil)
	if a.Reason != reason {
		w.t.Fatalf("at %s: %s with reason %q, want %q", w.clock(), a.Status, a.Reason, reason)
	}
}

// unchanged runs f and demands that the state is the same after it.
func (w *world) unchanged(f func()) {
	w.t.Helper()
	before := dump(w.stored)
	f()
	if after := dump(w.stored); after != before {
		w.t.Fatalf("at %s: the state changed:\nbefore %s\nafter  %s", w.clock(), before, after)
	}
}

// holder is the member that has the shard, "" when it is free.
func (w *world) holder(shard int) string {
	if h := w.stored.Shards[shard].Holder; h != nil {
		return h.MemberID
	}
	return ""
}

func (w *world) member(id string) *group.Member {
	w.t.Helper()
	m := w.stored.Members[id]
	if m == nil {
		w.t.Fatalf("at %s: no member %s\n%s", w.clock(), id, dump(w.stored))
	}
	return m
}

func (w *world) wantState(id string, state group.MemberState) {
	w.t.Helper()
	if got := w.member(id).State; got != state {
		w.t.Fatalf("at %s: member %s is %s, want %s\n%s", w.clock(), id, got, state, dump(w.stored))
	}
}

// retarget makes the target of the shard be the member, as a change of the set of members
// would: epochs rise, deadlines start or stop. The other targets follow by swapping.
func (w *world) retarget(shard int, id string) {
	w.t.Helper()
	s := decode(w.t, dump(w.stored))
	s.GroupEpoch++
	s.MetadataVersion++
	deadline := w.now.Add(s.Config().RebalanceTimeout)
	move := func(i int, to string) {
		sh := &s.Shards[i]
		sh.Target = to
		if sh.Holder == nil || sh.Orphaned {
			return
		}
		switch {
		case to != sh.Holder.MemberID:
			if sh.Deadline == 0 {
				sh.Deadline = deadline
			}
		case sh.RevokedAt == 0:
			sh.Deadline = 0
		}
	}
	from := s.Shards[shard].Target
	for i := range s.Shards {
		if i != shard && s.Shards[i].Target == id {
			move(i, from)
			break
		}
	}
	move(shard, id)
	w.stored = s
	w.rev++
	w.check()
}

func dump(s *group.State) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func decode(t tb, text string) *group.State {
	t.Helper()
	s := new(group.State)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatalf("decode: %v", err)
	}
	return s
}

var _ tb = (*testing.T)(nil)

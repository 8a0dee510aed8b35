package stream_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

// The model: shards with a control hash, and what the scripts of docs/protocol/resharding.md 1.4
// do to them. Entries are numbers that count up. It is written from the page, not from the Lua.

const effectLease = protocol.Instant(2000)

type group struct {
	last    int
	pending map[int]bool
}

type shard struct {
	// control hash
	present, fenced bool
	epoch           int64
	count           int
	rev             int64
	by, gate        string
	until, hold     protocol.Instant
	aborted         string
	retired         string
	high            int
	// stream
	exists  bool
	sealed  bool
	entries []int
	last    int
	added   int64
	groups  map[string]*group
}

func (s *shard) clone() *shard {
	c := *s
	c.entries = slices.Clone(s.entries)
	c.groups = map[string]*group{}
	for name, g := range s.groups {
		c.groups[name] = &group{last: g.last, pending: maps.Clone(g.pending)}
	}
	return &c
}

func (s *shard) control() stream.Control {
	return stream.Control{
		Present: s.present, HasEpoch: s.fenced, Epoch: s.epoch, Count: s.count, Rev: s.rev, By: s.by, Gate: s.gate,
		Until: s.until, Hold: s.hold, Aborted: s.aborted, Retired: s.retired, High: s.high,
		StreamExists: s.exists, Sealed: s.sealed, Length: int64(len(s.entries)), EntriesAdded: s.added,
	}
}

func (s *shard) settle(index int) {
	if s.exists {
		s.sealed = s.until != 0 || s.hold != 0 || index >= s.count
	}
}

func (s *shard) make(groups []string) {
	if !s.exists {
		s.exists, s.sealed, s.entries, s.last, s.added, s.groups = true, false, nil, 0, 0, map[string]*group{}
	}
	for _, name := range groups {
		if s.groups[name] == nil {
			s.groups[name] = &group{pending: map[int]bool{}}
		}
	}
}

func (s *shard) unlink() {
	s.exists, s.sealed, s.entries, s.groups = false, false, nil, nil
}

func (s *shard) after(last int) int64 {
	n := int64(0)
	for _, e := range s.entries {
		if e > last {
			n++
		}
	}
	return n
}

func (s *shard) evidence(st stream.Step) (shardscript.Code, *protocol.ShardEvidence) {
	if !s.exists {
		return shardscript.Unknown, nil
	}
	ev := &protocol.ShardEvidence{ShardIndex: st.Index, Sealed: s.sealed, LastID: fmt.Sprintf("%d-0", s.last), EntriesAdded: s.added}
	code := shardscript.Drained
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[name]
		e := protocol.GroupEvidence{
			Group: name, Pending: int64(len(g.pending)), LastDeliveredID: fmt.Sprintf("%d-0", g.last),
			EntryAfter: g.last < s.last && len(s.entries) > 0, Undelivered: s.after(g.last), Ignored: slices.Contains(st.Ignored, name),
		}
		if !e.Ignored && (e.Pending > 0 || e.EntryAfter) {
			code = shardscript.Busy
		}
		ev.Groups = append(ev.Groups, e)
	}
	for _, name := range st.Groups {
		if s.groups[name] == nil && !slices.Contains(st.Ignored, name) {
			code = shardscript.Unknown
		}
	}
	ev.Verdict = string(code)
	return code, ev
}

// world is Redis.
type world struct {
	now    protocol.Instant
	shards []*shard
}

func newWorld(n int) *world {
	w := &world{now: 1_700_000_000_000}
	for range n {
		w.shards = append(w.shards, &shard{})
	}
	return w
}

func (w *world) snapshot() []*shard {
	var all []*shard
	for _, s := range w.shards {
		all = append(all, s.clone())
	}
	return all
}

// run is one script, at its arrival.
func (w *world) run(st stream.Step, rev int64, notAfter protocol.Instant) stream.Reply {
	s := w.shards[st.Index]
	code, ev := w.script(s, st, rev, notAfter)
	return stream.Reply{Step: st, Code: code, At: w.now, Control: s.control(), Evidence: ev}
}

func (w *world) script(s *shard, st stream.Step, rev int64, notAfter protocol.Instant) (shardscript.Code, *protocol.ShardEvidence) {
	if st.NotAfter != 0 {
		notAfter = min(notAfter, st.NotAfter)
	}
	stamp := func() { s.present, s.rev, s.by = true, rev, st.ID+"/"+string(st.Script) }
	guard := func(epoch bool, behind shardscript.Code, unfenced bool) shardscript.Code {
		switch {
		case rev < s.rev:
			return shardscript.Ahead
		case epoch && s.fenced && st.Epoch < s.epoch:
			return behind
		case !s.fenced && !unfenced:
			return shardscript.Unfenced
		case w.now >= notAfter:
			return shardscript.Late
		}
		return ""
	}
	switch st.Script {
	case shardscript.Prepare:
		if c := guard(true, shardscript.Ahead, true); c != "" {
			return c, nil
		}
		switch {
		case s.retired != "":
			return shardscript.Ahead, nil
		case !s.exists:
			return shardscript.Unknown, nil
		}
		if s.gate != st.ID {
			s.until = 0
		}
		stamp()
		s.fenced, s.epoch, s.count, s.gate = true, st.Epoch, st.Count, st.ID
		s.high = max(s.high, st.High)
		return shardscript.OK, nil
	case shardscript.Provision:
		if c := guard(true, shardscript.Ahead, true); c != "" {
			return c, nil
		}
		if s.exists && !s.fenced {
			return shardscript.Foreign, nil
		}
		removed := s.retired == "" && s.epoch == st.Epoch && s.count == st.Count
		if s.exists && len(s.entries) > 0 && s.gate != st.ID && !removed {
			return shardscript.Leftover, nil
		}
		if s.gate != st.ID {
			s.until = 0
		}
		stamp()
		s.fenced, s.epoch, s.count, s.gate = true, st.Epoch, st.Count, st.ID
		if st.Until != 0 {
			s.until = st.Until
		}
		s.retired, s.aborted = "", ""
		s.high = max(s.high, st.High)
		s.make(st.Groups)
		s.settle(st.Index)
		return shardscript.OK, nil
	case shardscript.Seal:
		if c := guard(true, shardscript.Ahead, false); c != "" {
			return c, nil
		}
		switch {
		case s.epoch < st.Epoch:
			return shardscript.NotHeld, nil
		case s.aborted == st.ID:
			return shardscript.Aborted, nil
		case w.now >= st.Until:
			return shardscript.Late, nil
		case !s.exists:
			return shardscript.Unknown, nil
		}
		stamp()
		s.gate, s.until = st.ID, st.Until
		s.settle(st.Index)
		return shardscript.OK, nil
	case shardscript.Evidence:
		if c := guard(false, "", false); c != "" {
			return c, nil
		}
		if s.retired != "" && !s.exists {
			return shardscript.Retired, nil
		}
		return s.evidence(st)
	case shardscript.Decide:
		if s.fenced && s.epoch == st.ToEpoch && s.count == st.ToCount {
			return shardscript.Decided, nil
		}
		if c := guard(true, shardscript.Ahead, false); c != "" {
			return c, nil
		}
		switch {
		case s.aborted == st.ID:
			return shardscript.Aborted, nil
		case s.gate != st.ID, s.epoch < st.Epoch:
			return shardscript.NotHeld, nil
		case s.until != 0 && w.now >= s.until:
			return shardscript.Late, nil
		case st.Quiesced && !s.sealed:
			return shardscript.Unsealed, nil
		}
		if st.Drained {
			if code, ev := s.evidence(st); code != shardscript.Drained {
				return code, ev
			}
		}
		stamp()
		s.epoch, s.count, s.gate, s.until = st.ToEpoch, st.ToCount, "", 0
		s.settle(0)
		return shardscript.OK, nil
	case shardscript.Look:
		if !s.fenced {
			return shardscript.Unfenced, nil
		}
		return shardscript.OK, nil
	case shardscript.Open:
		if c := guard(true, shardscript.Ahead, true); c != "" {
			return c, nil
		}
		stamp()
		s.fenced, s.epoch, s.count, s.gate, s.until = true, st.Epoch, st.Count, "", 0
		if st.Index >= st.Count {
			if s.retired != "" || !s.exists {
				if s.retired == "" {
					s.retired = st.ID
				}
				s.hold = 0
				return shardscript.Gone, nil
			}
			s.settle(st.Index)
			return shardscript.OK, nil
		}
		s.hold, s.retired = st.Hold, ""
		if !s.exists {
			s.make(st.Groups)
		}
		s.settle(st.Index)
		return shardscript.OK, nil
	case shardscript.Release:
		if c := guard(true, shardscript.Decided, false); c != "" {
			return c, nil
		}
		stamp()
		s.aborted, s.gate, s.until = st.ID, "", 0
		s.settle(st.Index)
		return shardscript.OK, nil
	case shardscript.Undo:
		if c := guard(true, shardscript.Decided, true); c != "" {
			return c, nil
		}
		if s.exists && !s.fenced {
			stamp()
			s.aborted = st.ID
			return shardscript.OK, nil
		}
		if s.added > 0 && s.exists {
			return shardscript.NotEmpty, nil
		}
		stamp()
		s.retired, s.aborted, s.gate, s.until = st.ID, st.ID, "", 0
		if !s.fenced {
			s.fenced, s.epoch, s.count = true, st.Epoch, st.Count
		}
		s.unlink()
		return shardscript.OK, nil
	case shardscript.RetireOne:
		if c := guard(true, shardscript.Ahead, false); c != "" {
			return c, nil
		}
		switch {
		case s.retired != "" && !s.exists:
			stamp()
			return shardscript.OK, nil
		case s.epoch != st.Epoch || s.count != st.Count || st.Index < s.count:
			return shardscript.NotFenced, nil
		case !s.sealed:
			return shardscript.Unsealed, nil
		}
		if code, ev := s.evidence(st); code != shardscript.Drained {
			return code, ev
		}
		stamp()
		s.retired, s.gate, s.until, s.hold = st.ID, "", 0, 0
		s.unlink()
		return shardscript.OK, nil
	case shardscript.Hold:
		if c := guard(false, "", false); c != "" {
			return c, nil
		}
		stamp()
		if s.retired == "" {
			s.hold = st.Hold
			s.settle(st.Index)
		}
		return shardscript.OK, nil
	case shardscript.MkGroup:
		if c := guard(false, "", false); c != "" {
			return c, nil
		}
		if s.retired != "" {
			return shardscript.Retired, nil
		}
		if !s.exists {
			return shardscript.Unknown, nil
		}
		stamp()
		for _, name := range st.Groups {
			if s.groups[name] == nil {
				g := &group{pending: map[int]bool{}}
				if st.Start == "$" {
					g.last = s.last
				}
				s.groups[name] = g
			}
		}
		return shardscript.OK, nil
	case shardscript.RmGroup:
		if c := guard(false, "", false); c != "" {
			return c, nil
		}
		stamp()
		if s.retired != "" {
			return shardscript.Retired, nil
		}
		for _, name := range st.Groups {
			delete(s.groups, name)
		}
		return shardscript.OK, nil
	case shardscript.Survey:
		return shardscript.OK, nil
	case shardscript.Probe:
		if !s.exists {
			return shardscript.OK, nil
		}
		_, ev := s.evidence(st)
		return shardscript.OK, ev
	case shardscript.Purge:
		if !s.fenced {
			return shardscript.OK, nil
		}
		if c := guard(false, "", false); c != "" {
			return c, nil
		}
		stamp()
		s.unlink()
		s.retired = st.ID
		return shardscript.OK, nil
	}
	panic("no script " + string(st.Script))
}

// add is a fenced append under a layout; it says whether it landed.
func (w *world) add(index int, l stream.Layout) bool {
	s := w.shards[index]
	if !s.fenced || s.retired != "" || s.epoch != l.Epoch || s.count != l.Count || s.until != 0 || s.hold != 0 || !s.exists || s.sealed {
		return false
	}
	s.last++
	s.added++
	s.entries = append(s.entries, s.last)
	return true
}

// resolve is a producer that meets an overdue shard: RESOLVE at shard 0 (1.4).
func (w *world) resolve(id string, until protocol.Instant, epoch int64) bool {
	s := w.shards[0]
	if s.gate != "" && s.gate != id {
		return false
	}
	if s.gate == id || s.epoch == epoch && s.aborted != id {
		if w.now < until {
			return false
		}
		s.aborted, s.gate, s.until = id, "", 0
		s.settle(0)
	}
	return true
}

// work delivers and acknowledges everything on a shard.
func (w *world) work(index int) {
	s := w.shards[index]
	for _, g := range s.groups {
		g.last = max(g.last, s.last)
		g.pending = map[int]bool{}
	}
}

// read delivers without acknowledging.
func (w *world) read(index int) {
	s := w.shards[index]
	for _, g := range s.groups {
		for _, e := range s.entries {
			if e > g.last {
				g.pending[e] = true
			}
		}
		g.last = max(g.last, s.last)
	}
}

// tester is what the harness needs of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// harness is one replica on one aggregate: it commits turns and runs passes as the engine does.
type harness struct {
	t        tester
	w        *world
	s        *stream.State
	rev      int64
	seq      int
	progress func() []stream.GroupProgress
	trace    []string
	// faults: what becomes of one step. Nil: it is run and answered.
	fault       func(st stream.Step) fate
	unconfirmed func(p stream.Pass) bool
	lossy       bool // the aggregate may go back
}

type fate int

const (
	run fate = iota
	dropped
	unanswered
)

func newHarness(t tester, shards int) *harness {
	h := &harness{t: t, w: newWorld(24)}
	h.progress = func() []stream.GroupProgress {
		var all []stream.GroupProgress
		for _, name := range h.s.GroupNames() {
			all = append(all, stream.GroupProgress{Group: name, LiveMember: true})
		}
		return all
	}
	h.s = stream.New("orders", spec(shards), "redis-1", stream.Request{ID: h.id()}, h.w.now)
	h.rev = 1
	return h
}

func spec(n int) protocol.StreamSpec { return protocol.StreamSpec{ShardCount: n} }

// running is a stream of n shards at rest with the groups g and h.
func running(t tester, n int) *harness {
	t.Helper()
	h := newHarness(t, n)
	h.turn(func(x *stream.Turn) {
		x.RegisterGroup("g", protocol.StartEarliest, h.w.now)
		x.RegisterGroup("h", protocol.StartEarliest, h.w.now)
	})
	h.settle()
	if h.s.Active != nil || h.s.Layout != (stream.Layout{Epoch: 1, Count: n}) {
		t.Fatalf("stream is not running: %+v\n%s", h.s.Active, h.log())
	}
	return h
}

func (h *harness) id() string { h.seq++; return fmt.Sprintf("r%d", h.seq) }

func (h *harness) log() string {
	out := ""
	for _, line := range h.trace[max(0, len(h.trace)-60):] {
		out += line + "\n"
	}
	return out
}

func (h *harness) note(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// turn applies and commits.
func (h *harness) turn(f func(x *stream.Turn)) {
	h.t.Helper()
	before := h.s
	x := stream.Begin(h.s)
	f(x)
	if !x.Changed() {
		return
	}
	h.s = x.State()
	h.rev++
	if phaseOf(before) != phaseOf(h.s) {
		h.note("%s -> %s (rev %d) %s", phaseOf(before), phaseOf(h.s), h.rev, reason(h.s))
	}
	if bad := stream.Check(h.s); len(bad) > 0 {
		h.t.Fatalf("invariants after commit %d: %v\n%s", h.rev, bad, h.log())
	}
	if !h.lossy {
		switch {
		case h.s.Layout.Epoch < before.Layout.Epoch, h.s.LastEpoch < before.LastEpoch:
			h.t.Fatalf("epoch went back: %+v to %+v", before.Layout, h.s.Layout)
		case h.s.MetadataVersion < before.MetadataVersion, h.s.RoutingVersion < before.RoutingVersion, h.s.Generation < before.Generation:
			h.t.Fatalf("a version went back")
		}
	}
	if h.s.Layout != before.Layout && h.s.RoutingVersion == before.RoutingVersion || h.s.PublishState != before.PublishState && h.s.RoutingVersion == before.RoutingVersion {
		h.t.Fatalf("routing changed under the same version")
	}
}

func phaseOf(s *stream.State) string {
	if s.Active == nil {
		return "rest"
	}
	return s.Active.ID + " " + string(s.Active.Phase)
}

func reason(s *stream.State) string {
	if s.Active != nil {
		return s.Active.Error
	}
	if n := len(s.History); n > 0 {
		return string(s.History[n-1].Phase) + " " + s.History[n-1].Error
	}
	return ""
}

// pass runs p and returns its outcome; a shard that is ahead is not handled here.
func (h *harness) pass(p stream.Pass) stream.PassResult {
	rev, notAfter := h.rev, h.w.now+effectLease
	res := stream.PassResult{Pass: p, Confirmed: -1, StartedAt: h.w.now, Barrier: stream.BarrierSeal}
	if p.Confirm {
		res.Confirmed = 1
		if h.unconfirmed != nil && h.unconfirmed(p) {
			res.Confirmed, res.Unconfirmed = 0, true
		}
	}
	for i, stage := range p.Stages {
		ok := true
		if p.ConfirmFirst && i == 0 {
			res.Confirmed = 1
			if h.unconfirmed != nil && h.unconfirmed(p) {
				res.Confirmed, res.Unconfirmed = 0, true
			}
		}
		for _, st := range stage {
			what := run
			if h.fault != nil {
				what = h.fault(st)
			}
			rep := stream.Reply{Step: st, Err: "timeout"}
			switch what {
			case run:
				rep = h.w.run(st, rev, notAfter)
			case unanswered:
				h.w.run(st, rev, notAfter)
			}
			h.note("  %s %d: %s", st.Script, st.Index, rep.Code)
			ok = ok && (rep.Code == shardscript.OK || rep.Code == shardscript.Decided)
			res.Replies = append(res.Replies, rep)
		}
		if !ok || res.Unconfirmed {
			break
		}
	}
	return res
}

// apply hands a result in, as the engine does: a shard that is ahead is looked into first.
func (h *harness) apply(res stream.PassResult) {
	h.t.Helper()
	var seen stream.Control
	ahead := false
	for _, rep := range res.Replies {
		if rep.Code == shardscript.Ahead {
			ahead = true
			seen = newest(seen, rep.Control)
		}
	}
	if ahead && stream.Behind(h.s, h.rev, seen) {
		look := h.w.run(stream.PlanLook(h.s).Stages[0][0], 0, 0)
		seen = newest(seen, look.Control)
		h.note("adopt epoch %d of %d, rev %d", seen.Epoch, seen.Count, seen.Rev)
		var least int64
		id := h.id()
		h.turn(func(x *stream.Turn) { least = x.Adopt(seen, id, h.w.now) })
		h.rev = max(h.rev, least)
		return
	}
	id := h.id()
	h.turn(func(x *stream.Turn) {
		if res.Pass.Kind == stream.PassSurvey {
			x.ApplySurvey(res, id, h.w.now)
			return
		}
		x.Apply(res, h.w.now)
		x.Advance(h.progress(), h.w.now)
	})
}

func newest(a, b stream.Control) stream.Control {
	if b.Epoch > a.Epoch {
		a, b = b, a
	}
	a.Rev, a.High = max(a.Rev, b.Rev), max(a.High, b.High)
	return a
}

// step is one round of the engine: what is due by itself, then a pass.
func (h *harness) step() bool {
	h.t.Helper()
	if next := stream.Next(h.s); next != 0 && next <= h.w.now {
		before := h.s
		h.turn(func(x *stream.Turn) { x.Advance(h.progress(), h.w.now) })
		if h.s == before {
			h.t.Fatalf("Next says %s, but Advance at %s has nothing to do", next, h.w.now)
		}
	}
	p := stream.Plan(h.s, h.w.now)
	if p.Empty() {
		return false
	}
	h.apply(h.pass(p))
	return true
}

// until steps until the phase of the active record is reached.
func (h *harness) until(phase protocol.Phase) {
	h.t.Helper()
	for range 200 {
		if h.s.Active != nil && h.s.Active.Phase == phase {
			return
		}
		h.step()
		h.w.now += 5
	}
	h.t.Fatalf("%s was not reached, but %s\n%s", phase, phaseOf(h.s), h.log())
}

// settle steps until nothing is left to do. Time passes, members work.
func (h *harness) settle() {
	h.t.Helper()
	for range 400 {
		if !h.step() {
			if next := stream.Next(h.s); next == 0 || h.s.RetryAt == 0 {
				return
			}
		}
		h.w.now += 20
	}
	h.t.Fatalf("does not come to rest: %s, waiting for %v\n%s", phaseOf(h.s), waiting(h.s), h.log())
}

func waiting(s *stream.State) []string {
	if s.Active == nil {
		return nil
	}
	return s.Active.WaitingFor
}

// sweep runs a survey at rest.
func (h *harness) sweep() {
	h.t.Helper()
	h.apply(h.pass(stream.PlanSurvey(h.s)))
}

func (h *harness) put(n int) string {
	h.t.Helper()
	return h.putSpec(spec(n))
}

func (h *harness) putSpec(sp protocol.StreamSpec) string {
	h.t.Helper()
	var id string
	h.turn(func(x *stream.Turn) {
		var err *protocol.Error
		if id, _, err = x.Put(sp, stream.Request{ID: h.id(), RequestedBy: "ann"}, h.w.now); err != nil {
			h.t.Fatalf("put %d: %v", sp.ShardCount, err)
		}
	})
	return id
}

func (h *harness) rollback(id string) *protocol.Error {
	var err *protocol.Error
	h.turn(func(x *stream.Turn) {
		err = x.Rollback(id, stream.Request{RequestedBy: "ann", Reason: "test"}, h.w.now)
	})
	return err
}

// work lets the groups acknowledge everything on all shards.
func (h *harness) work() {
	for i := range h.w.shards {
		h.w.work(i)
	}
}

// add appends under the layout, which must land.
func (h *harness) add(index int, l stream.Layout) {
	h.t.Helper()
	if !h.w.add(index, l) {
		h.t.Fatalf("append to shard %d under %v was refused: %+v", index, l, h.w.shards[index].control())
	}
}

// open asserts that the layout l is in force on every shard, all are open, and no other exists.
func (h *harness) open(l stream.Layout) {
	h.t.Helper()
	if h.s.Layout != l || h.s.PublishState != protocol.PublishOpen {
		h.t.Fatalf("layout %v, %s; want %v, OPEN\n%s", h.s.Layout, h.s.PublishState, l, h.log())
	}
	for i, sh := range h.w.shards {
		if i < l.Count {
			if !sh.exists || sh.sealed || sh.epoch != l.Epoch || sh.count != l.Count || sh.gate != "" || sh.until != 0 || sh.hold != 0 {
				h.t.Fatalf("shard %d is not open at %v: %+v\n%s", i, l, sh.control(), h.log())
			}
		} else if sh.exists {
			h.t.Fatalf("shard %d still exists: %+v\n%s", i, sh.control(), h.log())
		}
	}
}

// ended asserts how a resharding ended.
func (h *harness) ended(id string, phase protocol.Phase) *protocol.Resharding {
	h.t.Helper()
	r := stream.ReshardingOf(h.s, id, h.s.UpdatedAt)
	if r == nil || r.Phase != phase {
		h.t.Fatalf("resharding %s is %+v, want %s\n%s", id, r, phase, h.log())
	}
	return r
}

func seconds(n int) protocol.Instant {
	return protocol.Instant(time.Duration(n) * time.Second / time.Millisecond)
}

func policy(change func(*protocol.ReshardingPolicy)) func(n int) protocol.StreamSpec {
	return func(n int) protocol.StreamSpec {
		p := protocol.DefaultPolicy()
		change(&p)
		return protocol.StreamSpec{ShardCount: n, Resharding: p}
	}
}

func TestReshardCompletes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		from, to int
		spec     func(int) protocol.StreamSpec
	}{
		{"out", 2, 5, spec},
		{"in", 5, 2, spec},
		{"to zero", 3, 0, spec},
		{"one to zero", 1, 0, spec},
		{"online out", 2, 5, policy(func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline })},
		{"online in", 5, 2, policy(func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline })},
		{"online to zero", 3, 0, policy(func(p *protocol.ReshardingPolicy) { p.Strategy = protocol.StrategyOnline })},
		{"removed only", 5, 2, policy(func(p *protocol.ReshardingPolicy) { p.DrainScope = protocol.DrainRemoved })},
		{"archive", 5, 2, policy(func(p *protocol.ReshardingPolicy) { p.Retire = protocol.RetireArchive })},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := running(t, c.from)
			metadata := h.s.MetadataVersion
			id := h.putSpec(c.spec(c.to))
			h.settle()
			r := h.ended(id, protocol.PhaseCompleted)
			h.open(stream.Layout{Epoch: 2, Count: c.to})
			if h.s.MetadataVersion != metadata+1 {
				t.Errorf("metadata version went from %d to %d", metadata, h.s.MetadataVersion)
			}
			quiesced := c.spec(c.to).Resharding.WithDefaults().Strategy == protocol.StrategyQuiesce
			if (r.Certificate != nil) != quiesced {
				t.Errorf("certificate %+v for %s", r.Certificate, r.Strategy)
			}
			// and from there to something else
			id = h.put(4)
			h.settle()
			h.ended(id, protocol.PhaseCompleted)
			h.open(stream.Layout{Epoch: 3, Count: 4})
			h.sweep()
			if h.s.Active != nil {
				t.Errorf("the sweep finds %s", h.s.Active.Reason)
			}
		})
	}
}

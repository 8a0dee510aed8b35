package aggregate_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
	"github.com/redisstream/terraform-provider-redisstream/server/aggregate"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
	"github.com/redisstream/terraform-provider-redisstream/server/stream"
)

const start = protocol.Instant(1_800_000_000_000)

// store is what the engine does around a turn: it keeps what was committed.
type store struct {
	t    *testing.T
	unit aggregate.Unit
	now  protocol.Instant
}

func newStore(t *testing.T) *store {
	return &store{t: t, unit: aggregate.Unit{Groups: map[string]*group.State{}, Leases: map[string]group.Leases{}}, now: start}
}

// turn applies f, and keeps what it came to.
func (s *store) turn(f func(t *aggregate.Turn)) aggregate.Outcome {
	s.t.Helper()
	s.now++
	t := aggregate.Begin(s.unit, s.now, nil)
	f(t)
	out := t.Finish()
	next := aggregate.Unit{Stream: s.unit.Stream, Groups: map[string]*group.State{}, Leases: map[string]group.Leases{}}
	maps.Copy(next.Groups, s.unit.Groups)
	maps.Copy(next.Leases, s.unit.Leases)
	if out.Stream != nil {
		next.Stream = out.Stream
	}
	if out.StreamDeleted {
		next.Stream = nil
	}
	for name, g := range out.Groups {
		switch {
		case g.Deleted:
			delete(next.Groups, name)
			continue
		case g.Next != nil:
			next.Groups[name] = g.Next
		}
		known := group.Leases{}
		maps.Copy(known, next.Leases[name])
		for _, row := range g.Rows.Renew {
			known[row] = s.now.Add(next.Groups[name].Config().MemberLease)
		}
		for _, row := range g.Rows.Drop {
			delete(known, row)
		}
		next.Leases[name] = known
	}
	s.unit = next
	for _, text := range stream.Check(orEmpty(next.Stream)) {
		s.t.Errorf("stream: %s", text)
	}
	for name, g := range next.Groups {
		for _, text := range group.Check(g) {
			s.t.Errorf("group %s: %s", name, text)
		}
	}
	return out
}

func orEmpty(s *stream.State) *stream.State {
	if s == nil {
		return stream.New("none", protocol.StreamSpec{}, "", stream.Request{ID: "none"}, start)
	}
	return s
}

// settle answers every pass that the state calls for with OK, until there is none.
func (s *store) settle() {
	s.t.Helper()
	for range 50 {
		p := stream.Plan(s.unit.Stream, s.now)
		if p.Empty() || s.unit.Stream.Active != nil && s.unit.Stream.Active.Phase == protocol.PhaseConverging && p.Kind == stream.PassPhase && !s.converging(p) {
			return
		}
		s.pass(p)
	}
	s.t.Fatalf("the resharding does not end: %+v", s.unit.Stream.Active)
}

// converging applies the pass of CONVERGING once and says whether that ended it.
func (s *store) converging(p stream.Pass) bool {
	s.pass(p)
	return s.unit.Stream.Active == nil || s.unit.Stream.Active.Phase != protocol.PhaseConverging
}

func (s *store) pass(p stream.Pass) {
	s.t.Helper()
	res := stream.PassResult{Pass: p, Confirmed: -1, StartedAt: s.now, Barrier: "XSETID"}
	active := s.unit.Stream.Active
	for _, steps := range p.Stages {
		for _, st := range steps {
			c := stream.Control{Present: true, HasEpoch: true, Epoch: st.Epoch, Count: st.Count, StreamExists: true}
			r := stream.Reply{Step: st, Code: shardscript.OK, At: s.now}
			if active != nil && (st.Script == shardscript.Evidence || st.Script == shardscript.Seal) {
				c.Gate, c.Until, c.Sealed = active.ID, active.Deadline, true
				r.Evidence = &protocol.ShardEvidence{ShardIndex: st.Index, Sealed: true, Verdict: "DRAINED", Groups: []protocol.GroupEvidence{}}
			}
			if st.Script == shardscript.Evidence {
				r.Code = shardscript.Drained
			}
			r.Control = c
			res.Replies = append(res.Replies, r)
		}
	}
	s.turn(func(t *aggregate.Turn) { t.ApplyPass(res) })
}

func (s *store) put(count int) {
	s.t.Helper()
	s.turn(func(t *aggregate.Turn) {
		if _, _, err := t.PutStream("orders", protocol.StreamSpec{ShardCount: count}, "redis-1", stream.Request{ID: "reshard-" + string(rune('a'+count))}); err != nil {
			s.t.Fatal(err)
		}
	})
}

func beat(id string, epoch, version int64, owned ...int) *protocol.HeartbeatRequest {
	return &protocol.HeartbeatRequest{ProtocolVersion: 1, RequestID: id, MemberID: id, MemberEpoch: epoch, MetadataVersion: version, Incarnation: "i-" + id,
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1}, OwnedShards: protocol.Shards(owned)}
}

func TestTheLayoutAndItsAssignmentAreOneCommit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.put(2)
	s.turn(func(t *aggregate.Turn) {
		if created, err := t.PutGroup("g", protocol.GroupSpec{}, 0); err != nil || !created {
			s.t.Fatalf("created %v, %v", created, err)
		}
	})
	if got := s.unit.Groups["g"].Assignable; got != 0 {
		t.Fatalf("%d shards are assignable before the layout is there", got)
	}
	s.settle()
	if s.unit.Stream.Layout.Count != 2 || s.unit.Groups["g"].Assignable != 2 {
		t.Fatalf("layout %+v, assignable %d", s.unit.Stream.Layout, s.unit.Groups["g"].Assignable)
	}
	var joined protocol.HeartbeatResponse
	s.turn(func(t *aggregate.Turn) { joined = t.Heartbeat("g", "m", beat("m", 0, 0)) })
	if len(joined.Assignment.AssignedShards) != 2 {
		t.Fatalf("join: %+v", joined)
	}
	s.put(4)
	for s.unit.Stream.Layout.Count != 4 {
		before := s.unit.Groups["g"].Assignable
		if before != 2 {
			t.Fatalf("%d shards are assignable in phase %s", before, s.unit.Stream.Active.Phase)
		}
		s.pass(stream.Plan(s.unit.Stream, s.now))
	}
	if got := s.unit.Groups["g"].Assignable; got != 4 {
		t.Fatalf("the commit of the layout left %d shards assignable", got)
	}
}

func TestASteadyHeartbeatTouchesOnlyItsGroup(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.put(2)
	s.turn(func(t *aggregate.Turn) { _, _ = t.PutGroup("g", protocol.GroupSpec{}, 0) })
	s.settle()
	var r protocol.HeartbeatResponse
	s.turn(func(t *aggregate.Turn) { r = t.Heartbeat("g", "m", beat("m", 0, 0)) })
	out := s.turn(func(t *aggregate.Turn) {
		r = t.Heartbeat("g", "m", beat("m", r.MemberEpoch, r.MetadataVersion, 0, 1))
	})
	if r.Status != protocol.StatusOK || out.Writes() || out.StreamTouched || len(out.Groups["g"].Rows.Renew) != 1 {
		t.Fatalf("answer %+v, outcome %+v", r, out)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.turn(func(t *aggregate.Turn) {
		if _, err := t.PutGroup("g", protocol.GroupSpec{}, 0); !errors.Is(err, protocol.ErrStreamNotFound) {
			s.t.Errorf("a group without a stream: %v", err)
		}
		if _, _, err := t.PutStream("orders", protocol.StreamSpec{ShardCount: 1}, "", stream.Request{ID: "x", IfMatch: 3}); !errors.Is(err, protocol.ErrGenerationMismatch) {
			s.t.Errorf("a generation of a stream that does not exist: %v", err)
		}
	})
	s.put(1)
	s.turn(func(t *aggregate.Turn) { _, _ = t.PutGroup("g", protocol.GroupSpec{}, 0) })
	s.settle()
	s.turn(func(t *aggregate.Turn) {
		t.Heartbeat("g", "m", beat("m", 0, 0))
		t.Heartbeat("g", "l", beat("l", 0, 0))
	})
	out := s.turn(func(t *aggregate.Turn) {
		if err := t.DeleteGroup("g", false, 0, nil); err == nil || err.Code != protocol.CodeGroupHasMembers || !strings.Contains(err.Message, `has 2 live members ("l", "m")`) {
			s.t.Errorf("a group with live members: %v", err)
		}
		if _, err := t.PutGroup("g", protocol.GroupSpec{StartPosition: protocol.StartLatest}, 0); err == nil {
			s.t.Error("the start position of a group was changed")
		}
		if got := t.Heartbeat("nobody", "m", beat("m", 0, 0)).Status; got != protocol.StatusUnknownMemberID {
			s.t.Errorf("a heartbeat to an unknown group: %s", got)
		}
		odd := beat("m", 0, 0)
		odd.ProtocolVersion = 2
		if got := t.Heartbeat("g", "m", odd).Status; got != protocol.StatusUnsupportedProtocol {
			s.t.Errorf("a newer protocol: %s", got)
		}
		if got := t.Heartbeat("g", "other", beat("m", 0, 0)).Status; got != protocol.StatusInvalidRequest {
			s.t.Errorf("a member id that is not the path's: %s", got)
		}
	})
	if out.Writes() {
		t.Errorf("refusals wrote %+v", out)
	}
	s.turn(func(t *aggregate.Turn) {
		if err := t.ChangeStream(func(st *stream.Turn) *protocol.Error { return st.Delete(true, stream.Request{}, t.Now()) }); err != nil {
			s.t.Fatal(err)
		}
		if _, err := t.PutGroup("late", protocol.GroupSpec{}, 0); err == nil || err.Code != protocol.CodeStateVersionConflict {
			s.t.Errorf("a group of a stream that is being deleted: %v", err)
		}
	})
}

// A group is changed only from the generation that the request presupposes.
func TestPutGroupPresupposesAGeneration(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.put(1)
	quick, slow := protocol.GroupSpec{RebalanceTimeoutMs: 1000}, protocol.GroupSpec{RebalanceTimeoutMs: 9000}
	mismatch := func(err *protocol.Error) bool { return err != nil && err.Code == protocol.CodeGenerationMismatch }
	type request struct {
		spec    protocol.GroupSpec
		ifMatch int64
		refused bool
		after   int64 // generation, 0: no group
	}
	put := func(steps ...request) {
		t.Helper()
		for _, r := range steps {
			out := s.turn(func(turn *aggregate.Turn) {
				_, err := turn.PutGroup("g", r.spec, r.ifMatch)
				if got := mismatch(err); got != r.refused || err != nil && !got {
					t.Errorf("%+v: %v", r, err)
				}
			})
			if r.refused && out.Writes() {
				t.Errorf("%+v: refused, and wrote %+v", r, out)
			}
			var now int64
			if g := s.unit.Groups["g"]; g != nil {
				now = g.SpecGeneration()
			}
			if now != r.after {
				t.Errorf("%+v: generation %d", r, now)
			}
		}
	}
	put(
		request{quick, 1, true, 0},
		request{quick, stream.MustBeNew, false, 1},
		request{quick, stream.MustBeNew, true, 1},
		request{slow, stream.MustBeNew, true, 1},
		request{quick, 1, false, 1},
		request{slow, 1, false, 2},
		request{quick, 1, true, 2},
		request{slow, 1, true, 2},
		request{quick, 3, true, 2},
		request{quick, 2, false, 3},
		request{slow, 0, false, 4},
	)
	s.turn(func(turn *aggregate.Turn) { // both in one batch: the second meets what the first has made
		_, first := turn.PutGroup("g", quick, 4)
		_, second := turn.PutGroup("g", protocol.GroupSpec{}, 4)
		if first != nil || !mismatch(second) {
			t.Errorf("%v, %v", first, second)
		}
	})
	for _, ifMatch := range []int64{1, 6, stream.MustBeNew} {
		s.turn(func(turn *aggregate.Turn) {
			if err := turn.DeleteGroup("g", true, ifMatch, nil); !mismatch(err) {
				t.Errorf("deletion of generation %d: %v", ifMatch, err)
			}
		})
	}
	s.turn(func(turn *aggregate.Turn) {
		if err := turn.DeleteGroup("g", false, 5, nil); err != nil {
			t.Error(err)
		}
		if err := turn.DeleteGroup("g", false, 5, nil); err == nil || err.Code != protocol.CodeGroupNotFound {
			t.Errorf("a second deletion: %v", err)
		}
		if _, err := turn.PutGroup("g", quick, 5); !mismatch(err) {
			t.Errorf("a deleted group came back: %v", err)
		}
	})
	if s.unit.Groups["g"] != nil {
		t.Error("the group is still there")
	}
}

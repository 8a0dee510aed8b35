package shardscript_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// The scenarios of docs/protocol/resharding.md that are about the scripts alone, by their names
// there. "Frozen" is a command that was computed at one revision and is sent much later.
func TestScenario(t *testing.T) {
	t.Parallel()
	for name, scenario := range map[string]func(*shards){
		"late-seal": lateSeal, "late-open": lateOpen, "late-release": lateRelease, "late-provision": lateProvision,
		"late-retire": lateRetire, "split-activation": splitActivation, "skewed-clocks": skewedClocks, "epoch-again": epochAgain,
		"operator-and-resharding": operatorAndResharding, "ids-and-groups": idsAndGroups, "opening-lost": openingLost,
		"retirement-lost": retirementLost, "rollback-or-decision": rollbackOrDecision, "retire-refused": retireRefused,
		"seal-lost": sealLost, "no-coordinator-before": noCoordinatorBefore, "no-coordinator-after": noCoordinatorAfter,
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, c redis.UniversalClient) { scenario(newShards(t, c)) })
		})
	}
	t.Run("full-or-forbidden", func(t *testing.T) {
		t.Parallel()
		t.Run("full", full)
		t.Run("forbidden", forbidden)
	})
}

var groups = []string{"g", "h"}

// scale is a change between layouts that lets its deadline be set by hand: never, unless pass is called.
func scale(id string, fromEpoch int64, from int, toEpoch int64, to int) change {
	return change{id: id, from: layout(fromEpoch, from), to: layout(toEpoch, to), groups: groups, until: never}
}

// pass makes the deadline of the change that holds the shards one that has passed.
func (s *shards) pass(indexes ...int) int64 {
	s.t.Helper()
	at := s.now(0)
	for _, i := range indexes {
		s.do("HSET", s.control(i), "until", at)
	}
	return at
}

func (s *shards) allOpen(count int, epoch int64) {
	s.t.Helper()
	for i := range count {
		s.sealed(i, false)
		s.expectAppend(shardscript.OK, i, epoch, count, "open")
	}
}

func lateSeal(s *shards) {
	// B completes 3 → 2 while A is frozen before SEAL s0.
	s.create(3, groups...)
	in := scale("in", 1, 3, 2, 2)
	frozen := in.at(11)
	rev := s.complete(in, 10)
	s.untouched(shardscript.Ahead, shardscript.Seal, 0, frozen)
	s.allOpen(2, 2)
	// B rolls the next one back before it sealed s0. A's command carries a revision of before, or,
	// had it one of after, the end of the change itself stops it.
	out := scale("out", 2, 2, 3, 3)
	s.provision(out, rev)
	frozen = out.at(rev + 1)
	s.rollback(out, rev+2)
	s.untouched(shardscript.Ahead, shardscript.Seal, 0, frozen)
	s.untouched(shardscript.Aborted, shardscript.Seal, 0, out.at(rev+2))
	frozen.NotAfter = s.now(0)
	frozen.Revision = rev + 2
	s.untouched(shardscript.Late, shardscript.Seal, 0, frozen)
	s.allOpen(2, 2)
}

func lateOpen(s *shards) {
	s.create(2, groups...)
	out := scale("out", 1, 2, 2, 3)
	rev := s.complete(out, 10)
	frozen := out.after(13)
	in := scale("in", 2, 3, 3, 2)
	s.provision(in, rev)
	s.seal(in, rev+1)
	s.untouched(shardscript.Ahead, shardscript.Open, 2, frozen)
	s.sealed(2, true)
	s.decide(in, rev+2)
	s.expectAppend(shardscript.OK, 0, 3, 2, "e3")
	s.untouched(shardscript.Ahead, shardscript.Open, 2, frozen)
	s.expectAppend(shardscript.Sealed, 2, 2, 3, "e2")
	s.open(in, rev+3)
	s.expectAppend(shardscript.Stale, 2, 2, 3, "e2")
}

func lateRelease(s *shards) {
	s.create(2, groups...)
	first := scale("first", 1, 2, 2, 3)
	s.provision(first, 10)
	s.seal(first, 11)
	s.rollback(first, 12)
	frozen := first.at(12)
	second := scale("second", 1, 2, 3, 3)
	s.provision(second, 20)
	s.seal(second, 21)
	s.untouched(shardscript.Ahead, shardscript.Release, 1, frozen)
	s.sealed(1, true)
}

func lateProvision(s *shards) {
	s.create(2, groups...)
	out := scale("out", 1, 2, 2, 3)
	frozen := out.at(10)
	s.rollback(out, 11) // s2 never was
	s.untouched(shardscript.Ahead, shardscript.Provision, 2, frozen)
	s.exists(2, false)
	s.allOpen(2, 1)
}

func lateRetire(s *shards) {
	s.create(3, groups...)
	in := scale("in", 1, 3, 2, 2)
	frozen := in.after(14)
	rev := s.complete(in, 10)
	out := scale("out", 2, 2, 3, 3)
	s.complete(out, rev)
	s.untouched(shardscript.Ahead, shardscript.RetireOne, 2, frozen)
	s.exists(2, true)
	if n := len(s.c.XInfoGroups(s.ctx, s.key(2)).Val()); n != len(groups) {
		s.t.Fatalf("%d groups on s2", n)
	}
}

func splitActivation(s *shards) {
	s.create(2, groups...)
	out := scale("out", 1, 2, 2, 3)
	s.provision(out, 10)
	s.seal(out, 11)
	s.decide(out, 12)
	at := s.pass(1)
	r := s.expectAppend(shardscript.Overdue, 1, 1, 2, "e1")
	in := s.expect(shardscript.InForce, shardscript.Resolve, 0, shardscript.Arguments{ID: r.Gate, Until: at, Epoch: r.Epoch}).Control
	if in.Epoch != 2 || in.Count != 3 {
		s.t.Fatalf("shard 0 says %+v", in)
	}
	s.expect(shardscript.OK, shardscript.Bring, 1, shardscript.Arguments{ID: r.Gate, Epoch: in.Epoch, Count: in.Count})
	s.expectAppend(shardscript.Stale, 1, 1, 2, "e1")
	s.expectAppend(shardscript.OK, 1, 2, 3, "e2")
	if n := s.info(1).Added; n != 1 {
		s.t.Fatalf("%d entries landed on s1", n)
	}
	s.open(out, 13) // the coordinator is back
	s.allOpen(3, 2)
}

// The clocks of the nodes are apart: the deadline passes at s1 and s2 before it does at s0.
func skewedClocks(s *shards) {
	s.create(3, groups...)
	c := scale("c", 1, 3, 2, 4)
	c.until = s.now(0) + 60_000
	s.provision(c, 10)
	s.seal(c, 11)
	for _, i := range []int{1, 2} {
		s.pass(i)
		r := s.expectAppend(shardscript.Overdue, i, 1, 3, "x")
		s.expect(shardscript.Wait, shardscript.Resolve, 0, shardscript.Arguments{ID: r.Gate, Until: r.Until, Epoch: 1})
	}
	s.sealed(0, true)
	s.decide(c, 12) // the coordinator was faster than shard 0's clock: it counts
	for _, i := range []int{1, 2} {
		r := s.expectAppend(shardscript.Overdue, i, 1, 3, "x")
		in := s.expect(shardscript.InForce, shardscript.Resolve, 0, shardscript.Arguments{ID: r.Gate, Until: r.Until, Epoch: 1}).Control
		s.expect(shardscript.OK, shardscript.Bring, i, shardscript.Arguments{ID: r.Gate, Epoch: in.Epoch, Count: in.Count})
		s.expectAppend(shardscript.OK, i, 2, 4, "e2")
	}
	s.untouched(shardscript.Decided, shardscript.Release, 0, c.at(13))
}

func epochAgain(s *shards) {
	// Everything has lost 1 → 2 under epoch 2, and another change takes the same epoch.
	s.create(1, groups...)
	s.complete(scale("again", 1, 1, 2, 3), 10)
	r := s.expectAppend(shardscript.Stale, 0, 2, 2, "x")
	if r.Epoch != 2 || r.Count != 3 {
		s.t.Fatalf("%+v", r)
	}
	s.allOpen(3, 2)
}

func rollbackOrDecision(s *shards) {
	s.create(2, groups...)
	c := scale("rollback-first", 1, 2, 2, 3)
	s.provision(c, 10)
	s.seal(c, 11)
	s.expect(shardscript.OK, shardscript.Release, 0, c.at(13))
	s.untouched(shardscript.Ahead, shardscript.Decide, 0, c.at(12))
	s.rollback(c, 14)
	s.exists(2, false)
	s.allOpen(2, 1)
	for i := range 2 {
		drain(s, i, groups...)
	}
	c = scale("decision-first", 1, 2, 3, 3)
	s.provision(c, 20)
	s.seal(c, 21)
	s.decide(c, 22)
	s.untouched(shardscript.Decided, shardscript.Release, 0, c.at(23))
	s.expect(shardscript.OK, shardscript.Look, 0, shardscript.Arguments{})
	s.open(c, 24)
	s.allOpen(3, 3)
}

func retireRefused(s *shards) {
	s.create(3, groups...)
	s.expectAppend(shardscript.OK, 2, 1, 3, "a")
	in := scale("in", 1, 3, 2, 2)
	drained := in.at(12)
	drained.Drained = false
	s.provision(in, 10)
	s.seal(in, 11)
	s.decideWith(drained)
	s.open(in, 13)
	drain(s, 2, groups...)
	s.do("XGROUP", "SETID", s.key(2), "g", "0") // the acks of g are lost
	s.untouched(shardscript.Busy, shardscript.RetireOne, 2, in.after(14))
	drain(s, 2, "g")
	s.expect(shardscript.OK, shardscript.RetireOne, 2, in.after(14))
}

func sealLost(s *shards) {
	s.create(2, groups...)
	c := scale("c", 1, 2, 2, 3)
	s.provision(c, 10)
	s.seal(c, 11)
	// s0 loses its seal with its fields, and P appends there.
	s.do("HDEL", s.control(0), "until", "sealedLastId")
	s.do("XSETID", s.key(0), "5-5")
	s.expectAppend(shardscript.OK, 0, 1, 2, "late")
	s.untouched(shardscript.Unsealed, shardscript.Decide, 0, c.at(12))
	s.seal(c, 13)
	s.untouched(shardscript.Busy, shardscript.Decide, 0, c.at(14))
	drain(s, 0, groups...)
	s.decide(c, 14)
}

func openingLost(s *shards) {
	s.create(2, groups...)
	c := scale("c", 1, 2, 2, 3)
	s.provision(c, 10)
	s.seal(c, 11)
	s.decide(c, 12)
	s.expect(shardscript.OK, shardscript.Open, 0, c.after(13)) // and s1 has lost its OPEN
	s.expectAppend(shardscript.Behind, 1, 2, 3, "e2")
	s.expectAppend(shardscript.Sealed, 1, 1, 2, "e1")
	if got := s.info(1); got.Control.Epoch != 1 || got.Control.Gate != "c" || !got.Sealed {
		s.t.Fatalf("the sweep sees %+v", got)
	}
	s.expect(shardscript.OK, shardscript.Open, 1, c.after(20)) // the repair
	s.expectAppend(shardscript.OK, 1, 2, 3, "e2")
	if n := s.info(1).Added; n != 1 {
		s.t.Fatalf("%d entries landed", n)
	}
}

func retirementLost(s *shards) {
	s.create(3, groups...)
	in := scale("in", 1, 3, 2, 2)
	s.provision(in, 10)
	s.decideWith(func() shardscript.Arguments { a := in.at(12); a.Quiesced = false; return a }())
	for i := range 2 {
		s.expect(shardscript.OK, shardscript.Open, i, in.after(13))
	}
	// s2 has lost RETIRE and the seal: a producer of epoch 1 still gets through.
	s.expectAppend(shardscript.OK, 2, 1, 3, "e1")
	if got := s.info(2); !got.Exists || got.Sealed || got.Control.Epoch != 1 {
		s.t.Fatalf("the sweep sees %+v", got)
	}
	repair := in.after(20)
	s.expect(shardscript.OK, shardscript.Open, 2, repair)
	s.sealed(2, true)
	s.expectAppend(shardscript.Stale, 2, 1, 3, "e1")
	s.untouched(shardscript.Busy, shardscript.RetireOne, 2, repair)
	drain(s, 2, groups...)
	s.expect(shardscript.OK, shardscript.RetireOne, 2, repair)
	s.expectAppend(shardscript.Retired, 2, 1, 3, "e1")
}

// All coordinators died in SEALING; s0 was not sealed yet.
func noCoordinatorBefore(s *shards) {
	s.create(2, groups...)
	c := scale("c", 1, 2, 2, 3)
	s.provision(c, 10)
	s.expect(shardscript.OK, shardscript.Seal, 1, c.at(11))
	at := s.pass(1)
	r := s.expectAppend(shardscript.Overdue, 1, 1, 2, "x")
	in := s.expect(shardscript.InForce, shardscript.Resolve, 0, shardscript.Arguments{ID: r.Gate, Until: at, Epoch: 1}).Control
	s.expect(shardscript.OK, shardscript.Bring, 1, shardscript.Arguments{ID: r.Gate, Epoch: in.Epoch, Count: in.Count})
	s.allOpen(2, 1)
	s.untouched(shardscript.Aborted, shardscript.Seal, 0, c.at(11)) // the first replica back goes on, and rolls back
	s.untouched(shardscript.Aborted, shardscript.Decide, 0, c.at(12))
	s.rollback(c, 13)
	s.allOpen(2, 1)
}

// All died between DECIDE and the OPENING commit.
func noCoordinatorAfter(s *shards) {
	s.create(2, groups...)
	c := scale("c", 1, 2, 2, 3)
	s.provision(c, 10)
	s.seal(c, 11)
	s.decide(c, 12)
	s.pass(1, 2)
	r := s.expectAppend(shardscript.Stale, 0, 1, 2, "x") // shard 0 told the new layout
	for _, i := range []int{1, 2} {
		behind := s.expectAppend(shardscript.Behind, i, r.Epoch, r.Count, "x")
		s.expect(shardscript.OK, shardscript.Bring, i, shardscript.Arguments{ID: behind.Gate, Epoch: r.Epoch, Count: r.Count})
	}
	s.allOpen(3, 2)
	s.expect(shardscript.Decided, shardscript.Decide, 0, c.at(12)) // the first replica back
	s.open(c, 13)
	s.allOpen(3, 2)
}

// An operator's pause and a resharding: appends only when no reason is left.
func operatorAndResharding(s *shards) {
	s.create(2, groups...)
	var last [2]string
	for i := range last {
		last[i] = s.expectAppend(shardscript.OK, i, 1, 2, "a").IDs[0]
		drain(s, i, groups...)
	}
	hold := func(rev, until int64, indexes ...int) {
		s.t.Helper()
		for _, i := range indexes {
			s.expect(shardscript.OK, shardscript.Hold, i, shardscript.Arguments{Revision: rev, ID: "operator", Hold: until})
		}
	}
	closed := func(indexes ...int) {
		s.t.Helper()
		for _, i := range indexes {
			s.sealed(i, true)
		}
	}
	// Paused before; the change seals on top of it and is rolled back: the pause stays.
	hold(5, never, 0, 1)
	closed(0, 1)
	c := scale("c", 1, 2, 2, 3)
	s.provision(c, 6)
	s.seal(c, 7)
	s.rollback(c, 8)
	closed(0, 1)
	if r := s.expectAppend(shardscript.Sealed, 0, 1, 2, "x"); r.Until != 0 || r.Hold != never {
		s.t.Fatalf("%+v", r)
	}
	hold(9, 0, 0, 1)
	for i := range last {
		if got := s.c.XInfoStream(s.ctx, s.key(i)).Val().LastGeneratedID; got != last[i] {
			s.t.Fatalf("s%d is back at %s, it was at %s", i, got, last[i])
		}
	}
	// Paused during; resumed in DRAINING: the barrier holds, and DECIDE does not end a pause.
	d := scale("d", 1, 2, 3, 3)
	s.provision(d, 10)
	s.seal(d, 11)
	hold(12, never, 0, 1, 2)
	hold(13, 0, 0, 1, 2)
	closed(0, 1, 2)
	hold(14, never, 0, 1, 2)
	s.decide(d, 15)
	closed(0)
	// OPEN sets the pause as the aggregate of its revision says.
	a := d.after(16)
	a.Hold = never
	for i := range 3 {
		s.expect(shardscript.OK, shardscript.Open, i, a)
	}
	closed(0, 1, 2)
	hold(17, 0, 0, 1, 2)
	for i := range last {
		if got := s.c.XInfoStream(s.ctx, s.key(i)).Val().LastGeneratedID; got != last[i] {
			s.t.Fatalf("s%d is back at %s, it was at %s", i, got, last[i])
		}
	}
	s.allOpen(3, 3)
	// The operator's deadline passes before the other's, and after it.
	e := scale("e", 3, 3, 4, 4)
	s.provision(e, 20)
	s.seal(e, 21)
	hold(22, s.now(0)+60_000, 0, 1, 2)
	s.do("HSET", s.control(1), "hold", s.now(1))
	s.expectAppend(shardscript.Sealed, 1, 3, 3, "x")
	s.untouched(shardscript.Nothing, shardscript.Bring, 1, shardscript.Arguments{Epoch: 3, Count: 3})
	at := s.pass(0, 1)
	s.expectAppend(shardscript.Overdue, 1, 3, 3, "x")
	s.expect(shardscript.InForce, shardscript.Resolve, 0, shardscript.Arguments{ID: "e", Until: at, Epoch: 3})
	closed(0) // the pause of s0 has not ended
	s.expect(shardscript.OK, shardscript.Bring, 1, shardscript.Arguments{ID: "e", Epoch: 3, Count: 3})
	s.expectAppend(shardscript.OK, 1, 3, 3, "x")
}

func idsAndGroups(s *shards) {
	s.create(5, groups...)
	seal := func(i int) {
		s.t.Helper()
		s.expect(shardscript.OK, shardscript.Hold, i, shardscript.Arguments{Revision: 5, Hold: never})
	}
	open := func(want shardscript.Code, i int) shardscript.Reply {
		s.t.Helper()
		return s.expect(want, shardscript.Hold, i, shardscript.Arguments{Revision: 6})
	}
	higher := func(a, b string) bool { // ids of one length of milliseconds
		var am, as, bm, bs uint64
		_, _ = fmt.Sscanf(strings.ReplaceAll(a, "-", " "), "%d %d", &am, &as)
		_, _ = fmt.Sscanf(strings.ReplaceAll(b, "-", " "), "%d %d", &bm, &bs)
		return am > bm || am == bm && as > bs
	}

	// The newest entries are deleted while sealed, and the kept id is lost.
	s.do("XADD", s.key(0), "9000000000000-7", "a", "b")
	seal(0)
	s.do("XDEL", s.key(0), "9000000000000-7")
	s.do("HDEL", s.control(0), "sealedLastId")
	open(shardscript.OK, 0)
	if id := s.expectAppend(shardscript.OK, 0, 1, 5, "x").IDs[0]; !higher(id, "9000000000000-7") {
		s.t.Fatalf("id %s after one that was deleted", id)
	}

	// All is trimmed and the kept id is lost: the clock is what is left.
	last := s.expectAppend(shardscript.OK, 1, 1, 5, "a", "b").IDs[1]
	seal(1)
	s.do("XTRIM", s.key(1), "MAXLEN", "0")
	s.do("HDEL", s.control(1), "sealedLastId")
	open(shardscript.OK, 1)
	if id := s.expectAppend(shardscript.OK, 1, 1, 5, "x").IDs[0]; !higher(id, last) {
		s.t.Fatalf("id %s after %s", id, last)
	}

	// A group is made at $ while sealed: it gets the next entry, and only that.
	s.expectAppend(shardscript.OK, 2, 1, 5, "before")
	seal(2)
	s.do("XGROUP", "CREATE", s.key(2), "new", "$")
	s.do("XGROUP", "SETID", s.key(2), "h", "$")
	open(shardscript.OK, 2)
	id := s.expectAppend(shardscript.OK, 2, 1, 5, "after").IDs[0]
	for _, g := range []string{"new", "h"} {
		if got := s.read(2, g, "c", 10); len(got) != 1 || got[0] != id {
			s.t.Fatalf("group %s got %v, want %s", g, got, id)
		}
	}
	if g := s.c.XInfoGroups(s.ctx, s.key(2)).Val(); g[1].Lag != 0 {
		s.t.Fatalf("lag of the new group: %+v", g)
	}

	// The highest id was really given to an entry: nothing can undo that.
	s.do("XADD", s.key(3), maxID, "a", "b")
	seal(3)
	if r := open(shardscript.Exhausted, 3); r.Error == "" || !r.Sealed {
		s.t.Fatalf("%+v", r)
	}

	// Only a group still knows how far the ids had come: what follows must reach it.
	seal(4)
	s.do("XGROUP", "SETID", s.key(4), "g", "9500000000000-3")
	open(shardscript.OK, 4)
	id = s.expectAppend(shardscript.OK, 4, 1, 5, "x").IDs[0]
	if got := s.read(4, "g", "c", 10); len(got) != 1 || got[0] != id {
		s.t.Fatalf("group g got %v, want %s", got, id)
	}

	// A kept id that is left over from a seal that was lost is never used.
	s.do("HSET", s.control(1), "sealedLastId", "1-1")
	s.expect(shardscript.OK, shardscript.Hold, 1, shardscript.Arguments{Revision: 7})
	if c := s.info(1).Control; c.SealedLastID != "" {
		s.t.Fatalf("%+v", c)
	}
}

// maxmemory is reached while sealed: the pause ends all the same, both ways.
func full(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "24mb", "--maxmemory-policy", "noeviction")
	s := newShards(t, server.Client(t))
	s.create(2, groups...)
	c := scale("c", 1, 2, 2, 3)
	s.provision(c, 10)
	s.seal(c, 11)
	s.c.ConfigSet(s.ctx, "maxmemory", "1mb")
	if err := s.c.Set(s.ctx, "x", "y", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("the server is not full: %v", err)
	}
	// A producer ends it by what shard 0 says.
	s.c.ConfigSet(s.ctx, "maxmemory", "0")
	at := s.pass(0, 1)
	s.c.ConfigSet(s.ctx, "maxmemory", "1mb")
	s.expect(shardscript.InForce, shardscript.Resolve, 0, shardscript.Arguments{ID: "c", Until: at, Epoch: 1})
	s.sealed(0, false)
	s.expect(shardscript.OK, shardscript.Bring, 1, shardscript.Arguments{ID: "c", Epoch: 1, Count: 2})
	s.sealed(1, false)
	// The coordinator does: sealed by the operator, released, undone; evidence and retirement too.
	s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 12, Hold: never})
	s.sealed(0, true)
	s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 13})
	s.rollback(c, 14)
	s.sealed(0, false)
	s.exists(2, false)
	s.expect(shardscript.Drained, shardscript.Evidence, 0, c.at(14))
	// APPEND is refused as a whole: nothing lands.
	if _, err := s.eval(shardscript.Append, 0, shardscript.AppendArgs(1, 2, 0, []any{"a", "b"})); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("APPEND on a full server: %v", err)
	}
	s.c.ConfigSet(s.ctx, "maxmemory", "0")
	s.allOpen(2, 1)
}

// The user may not run XSETID: the fence alone holds appends off, and the replies say so.
func forbidden(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newShards(t, server.Client(t))
	admin.do("ACL", "SETUSER", "limited", "on", ">pw", "~*", "&*", "+@all", "-xsetid")
	limited := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "limited", Password: "pw", MaxRetries: -1})
	t.Cleanup(func() { _ = limited.Close() })
	s := newShards(t, limited)
	a := shardscript.Arguments{Revision: 1, ID: "create", ToEpoch: 1, ToCount: 3, High: 3, Groups: groups, Quiesced: true}
	for i := range 3 {
		s.expect(shardscript.OK, shardscript.Provision, i, a)
	}
	s.expect(shardscript.OK, shardscript.Decide, 0, a) // not sealed as a fact, but fenced
	a.Epoch, a.Count = 1, 3
	for i := range 3 {
		s.expect(shardscript.OK, shardscript.Open, i, a)
	}
	in := scale("in", 1, 3, 2, 2)
	in.until = s.now(0) + 60_000
	s.provision(in, 10)
	if r := s.expect(shardscript.OK, shardscript.Seal, 0, in.at(11)); r.Barrier != shardscript.BarrierLease || r.Sealed || r.Control.SealedLastID != "" {
		t.Fatalf("%+v", r)
	}
	s.seal(in, 11)
	s.expectAppend(shardscript.Sealed, 1, 1, 3, "fenced")
	s.do("XADD", s.key(1), "*", "a", "plain") // which the fence cannot stop
	if r := s.expect(shardscript.Busy, shardscript.Evidence, 1, in.at(11)); r.Barrier != shardscript.BarrierLease {
		t.Fatalf("%+v", r)
	}
	drain(s, 1, groups...)
	s.decide(in, 12)
	s.open(in, 13)
	s.expectAppend(shardscript.Stale, 2, 1, 3, "fenced")
	s.retire(in, 14)
	s.expectAppend(shardscript.OK, 0, 2, 2, "x")
	s.expectAppend(shardscript.OK, 1, 2, 2, "x")

	// Overdue: ended at shard 0 and brought to the other.
	out := scale("out", 2, 2, 3, 3)
	s.provision(out, 20)
	s.seal(out, 21)
	at := s.pass(0, 1)
	r := s.expectAppend(shardscript.Overdue, 1, 2, 2, "x")
	s.expect(shardscript.InForce, shardscript.Resolve, 0, shardscript.Arguments{ID: r.Gate, Until: at, Epoch: 2})
	s.expect(shardscript.OK, shardscript.Bring, 1, shardscript.Arguments{ID: r.Gate, Epoch: 2, Count: 2})
	s.expectAppend(shardscript.OK, 0, 2, 2, "x")
	s.expectAppend(shardscript.OK, 1, 2, 2, "x")

	// Sealed natively by somebody who may: it says that it cannot be undone.
	admin.do("XSETID", s.key(0), maxID)
	if r := s.expect(shardscript.SealError, shardscript.Hold, 0, shardscript.Arguments{Revision: 30}); r.Error == "" {
		t.Fatalf("%+v", r)
	}
}

package shardscript_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// Every code of every coordinator script; a refusal leaves shard and control hash untouched.
func TestCoordinatorCodes(t *testing.T) {
	type args = shardscript.Arguments
	out := change{id: "out", from: layout(1, 2), to: layout(2, 3), groups: []string{"g"}, until: never}
	in := change{id: "in", from: layout(1, 3), to: layout(2, 2), groups: []string{"g"}, until: never}
	with := func(a args, f func(*args)) args { f(&a); return a }
	late := func(a *args) { a.NotAfter = 1 }

	tests := map[string]func(s *shards){
		"PREPARE": func(s *shards) {
			s.untouched(shardscript.Unknown, shardscript.Prepare, 0, out.at(5)) // no stream
			s.create(2, "g")
			s.expect(shardscript.OK, shardscript.Prepare, 0, out.at(5))
			s.expect(shardscript.OK, shardscript.Prepare, 0, out.at(5))
			s.untouched(shardscript.Ahead, shardscript.Prepare, 0, out.at(4))
			s.untouched(shardscript.Ahead, shardscript.Prepare, 0, with(out.at(6), func(a *args) { a.Epoch = 0 }))
			s.untouched(shardscript.Late, shardscript.Prepare, 0, with(out.at(6), late))
			s.do("HDEL", s.control(0), "epoch") // lost: repaired
			if c := s.expect(shardscript.OK, shardscript.Prepare, 0, out.at(6)).Control; !c.HasLayout || c.Gate != "out" || c.By != "out/PREPARE" || c.High != 3 {
				s.t.Fatalf("control %+v", c)
			}
			s.expect(shardscript.OK, shardscript.Undo, 1, out.at(5))
			s.untouched(shardscript.Ahead, shardscript.Prepare, 1, out.at(5)) // a tombstone where a shard should be
		},
		"PREPARE/takes the gate over": func(s *shards) {
			s.create(1)
			c := change{id: "first", from: layout(1, 1), to: layout(2, 2), until: never}
			s.expect(shardscript.OK, shardscript.Seal, 0, c.at(2))
			other := change{id: "second", from: layout(1, 1), to: layout(3, 2), until: never}
			if got := s.expect(shardscript.OK, shardscript.Prepare, 0, other.at(3)).Control; got.Gate != "second" || got.Until != 0 {
				s.t.Fatalf("the deadline of the first is still there: %+v", got)
			}
		},
		"PROVISION": func(s *shards) {
			s.create(2, "g")
			s.expect(shardscript.OK, shardscript.Provision, 2, out.at(5))
			s.expect(shardscript.OK, shardscript.Provision, 2, out.at(5))
			s.sealed(2, true)
			s.untouched(shardscript.Ahead, shardscript.Provision, 2, out.at(4))
			s.untouched(shardscript.Late, shardscript.Provision, 2, with(out.at(6), late))
			s.untouched(shardscript.Ahead, shardscript.Provision, 2, with(out.at(6), func(a *args) { a.Epoch = 0 }))
		},
		"PROVISION/FOREIGN": func(s *shards) {
			s.create(2)
			s.do("XADD", s.key(2), "*", "a", "b")
			s.untouched(shardscript.Foreign, shardscript.Provision, 2, out.at(5))
			// UNDO of a foreign stream leaves it alone, and the stamp stops a late PROVISION.
			s.expect(shardscript.OK, shardscript.Undo, 2, out.at(6))
			s.exists(2, true)
			s.untouched(shardscript.Ahead, shardscript.Provision, 2, out.at(5))
			s.untouched(shardscript.Foreign, shardscript.Provision, 2, out.at(7))
			s.do("SET", s.key(3), "x")
			s.untouched(shardscript.Foreign, shardscript.Provision, 3, out.at(5))
			s.expect(shardscript.OK, shardscript.Undo, 3, out.at(6))
			s.exists(3, true)
		},
		"PROVISION/LEFTOVER": func(s *shards) {
			s.create(3)
			s.expectAppend(shardscript.OK, 2, 1, 3, "a")
			// Of another layout than the one in force: nobody knows what it is.
			s.untouched(shardscript.Leftover, shardscript.Provision, 2, with(out.at(5), func(a *args) { a.Epoch, a.Count = 1, 2 }))
			// Removed by the layout in force and still there: it comes back with its entries.
			s.expect(shardscript.OK, shardscript.Open, 2, with(in.after(6), func(*args) {}))
			back := change{id: "back", from: in.to, to: layout(3, 3), until: never}
			s.expect(shardscript.OK, shardscript.Provision, 2, back.at(7))
			s.expect(shardscript.OK, shardscript.Provision, 2, back.at(7))
			if n := s.info(2).Length; n != 1 {
				s.t.Fatalf("%d entries", n)
			}
		},
		"PROVISION/LEFTOVER beside a tombstone": func(s *shards) {
			s.create(3)
			s.expect(shardscript.OK, shardscript.Open, 2, in.after(6))
			s.expect(shardscript.OK, shardscript.RetireOne, 2, with(in.after(6), func(a *args) { a.Groups = nil }))
			s.do("XADD", s.key(2), "*", "a", "orphan")
			back := change{id: "back", from: in.to, to: layout(3, 3), until: never}
			s.untouched(shardscript.Leftover, shardscript.Provision, 2, back.at(7))
		},
		"PROVISION/a group keeps its place": func(s *shards) {
			s.create(2)
			a := with(out.at(5), func(a *args) { a.Groups = []string{"g"} })
			s.expect(shardscript.OK, shardscript.Provision, 2, a)
			s.do("XGROUP", "SETID", s.key(2), "g", "5-0")
			a.Groups = []string{"g", "h"}
			s.expect(shardscript.OK, shardscript.Provision, 2, a)
			groups := s.c.XInfoGroups(s.ctx, s.key(2)).Val()
			if len(groups) != 2 || groups[0].LastDeliveredID != "5-0" || groups[1].LastDeliveredID != "0-0" {
				s.t.Fatalf("groups %+v", groups)
			}
		},
		"SEAL": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Seal, 0, out.at(5))
			s.create(2)
			s.untouched(shardscript.NotHeld, shardscript.Seal, 0, with(out.at(5), func(a *args) { a.Epoch = 2 }))
			s.untouched(shardscript.Ahead, shardscript.Seal, 0, with(out.at(5), func(a *args) { a.Epoch = 0 }))
			s.untouched(shardscript.Late, shardscript.Seal, 0, with(out.at(5), late))
			s.untouched(shardscript.Late, shardscript.Seal, 0, with(out.at(5), func(a *args) { a.Until = s.now(0) })) // never after the deadline
			s.expectAppend(shardscript.OK, 0, 1, 2, "a")
			last := s.info(0).LastID
			s.expect(shardscript.OK, shardscript.Seal, 0, out.at(5))
			if c := s.expect(shardscript.OK, shardscript.Seal, 0, out.at(5)).Control; c.SealedLastID != last {
				s.t.Fatalf("kept id %q after a second seal, want %q", c.SealedLastID, last)
			}
			s.sealed(0, true)
			s.expect(shardscript.OK, shardscript.Release, 0, out.at(6))
			s.untouched(shardscript.Aborted, shardscript.Seal, 0, out.at(6))
			s.untouched(shardscript.Ahead, shardscript.Seal, 0, out.at(5))
			s.do("DEL", s.key(1))
			s.untouched(shardscript.Unknown, shardscript.Seal, 1, out.at(6))
		},
		"EVIDENCE": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Evidence, 0, out.at(5))
			s.create(2, "g")
			s.untouched(shardscript.Drained, shardscript.Evidence, 0, out.at(5))
			s.untouched(shardscript.Late, shardscript.Evidence, 0, with(out.at(5), late))
			s.untouched(shardscript.Ahead, shardscript.Evidence, 0, out.at(0))
			s.expectAppend(shardscript.OK, 0, 1, 2, "a")
			s.untouched(shardscript.Busy, shardscript.Evidence, 0, out.at(5))
			ignoring := with(out.at(5), func(a *args) { a.Ignored = []string{"g"} })
			if r := s.untouched(shardscript.Drained, shardscript.Evidence, 0, ignoring); !r.Groups[0].Ignored || !r.Groups[0].EntryAfter {
				s.t.Fatalf("evidence %+v", r.Groups)
			}
			s.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", s.key(0), ">")
			if r := s.untouched(shardscript.Busy, shardscript.Evidence, 0, out.at(5)); r.Groups[0].Pending != 1 {
				s.t.Fatalf("evidence %+v", r.Groups)
			}
			s.do("XGROUP", "DESTROY", s.key(0), "g")
			s.untouched(shardscript.Unknown, shardscript.Evidence, 0, out.at(5))
			s.do("XGROUP", "CREATE", s.key(0), "unmanaged", "0")
			s.untouched(shardscript.Unknown, shardscript.Evidence, 0, out.at(5))
			s.untouched(shardscript.Busy, shardscript.Evidence, 0, with(out.at(5), func(a *args) { a.Groups = nil }))
			s.do("DEL", s.key(0))
			s.untouched(shardscript.Unknown, shardscript.Evidence, 0, out.at(5))
		},
		"DECIDE": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Decide, 0, out.at(5))
			s.create(2, "g")
			s.untouched(shardscript.NotHeld, shardscript.Decide, 0, out.at(5))
			s.provision(out, 5)
			s.untouched(shardscript.Unsealed, shardscript.Decide, 0, out.at(6))
			s.seal(out, 6)
			s.untouched(shardscript.Late, shardscript.Decide, 0, with(out.at(6), late))
			s.untouched(shardscript.Ahead, shardscript.Decide, 0, out.at(5))
			s.untouched(shardscript.Unknown, shardscript.Decide, 0, with(out.at(6), func(a *args) { a.Groups = []string{"g", "h"} }))
			s.untouched(shardscript.NotHeld, shardscript.Decide, 0, with(out.at(6), func(a *args) { a.ID = "other" }))
			s.decide(out, 6)
			s.sealed(0, false)
			// A repeat is answered before all other checks, and writes only `by`.
			if r := s.expect(shardscript.Decided, shardscript.Decide, 0, with(out.at(1), late)); r.Control.Rev != 6 {
				s.t.Fatalf("control %+v", r.Control)
			}
			s.untouched(shardscript.Ahead, shardscript.Decide, 0, with(out.at(7), func(a *args) { a.ToCount = 4 }))
		},
		"DECIDE/BUSY": func(s *shards) {
			s.create(1, "g")
			c := change{id: "c", from: layout(1, 1), to: layout(2, 2), groups: []string{"g"}, until: never}
			s.expectAppend(shardscript.OK, 0, 1, 1, "a")
			s.provision(c, 5)
			s.seal(c, 6)
			s.untouched(shardscript.Busy, shardscript.Decide, 0, c.at(7))
			s.decideWith(with(c.at(7), func(a *args) { a.Drained = false })) // shard 0 is not in the scope
		},
		"DECIDE/ended": func(s *shards) {
			s.create(2, "g")
			s.provision(out, 5)
			s.expect(shardscript.OK, shardscript.Release, 0, out.at(6))
			s.untouched(shardscript.Aborted, shardscript.Decide, 0, out.at(6))
		},
		"DECIDE/deadline": func(s *shards) {
			s.create(1, "g")
			c := change{id: "c", from: layout(1, 1), to: layout(2, 2), groups: []string{"g"}, until: s.now(0) + 60_000}
			s.provision(c, 5)
			s.seal(c, 6)
			s.do("HSET", s.control(0), "until", s.now(0)) // it passes
			s.untouched(shardscript.Late, shardscript.Decide, 0, c.at(7))
		},
		"LOOK": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Look, 0, args{})
			s.create(2)
			if r := s.expect(shardscript.OK, shardscript.Look, 0, args{}); r.Control.Epoch != 1 || r.Control.Count != 2 || r.Control.High != 2 || r.Control.By != "create/OPEN" {
				s.t.Fatalf("%+v", r.Control)
			}
		},
		"OPEN": func(s *shards) {
			s.create(2, "g")
			s.untouched(shardscript.Ahead, shardscript.Open, 0, out.after(0))
			s.untouched(shardscript.Late, shardscript.Open, 0, with(out.after(5), late))
			s.untouched(shardscript.Ahead, shardscript.Open, 0, with(out.after(5), func(a *args) { a.Epoch = 0 }))
			s.provision(out, 5)
			s.seal(out, 6)
			s.open(out, 7)
			s.open(out, 7)
			// An operator's pause, as the aggregate of the revision says.
			s.expect(shardscript.OK, shardscript.Open, 0, with(out.after(8), func(a *args) { a.Hold = never }))
			s.sealed(0, true)
			s.expect(shardscript.OK, shardscript.Open, 0, out.after(9))
			s.sealed(0, false)
			// Missing: made again, or stamped.
			s.do("DEL", s.key(1), s.control(1))
			s.expect(shardscript.OK, shardscript.Open, 1, out.after(9))
			if n := len(s.c.XInfoGroups(s.ctx, s.key(1)).Val()); n != 1 {
				s.t.Fatalf("%d groups on a shard that was made again", n)
			}
			s.expect(shardscript.Gone, shardscript.Open, 7, out.after(9))
			s.exists(7, false)
			s.untouched(shardscript.Ahead, shardscript.Provision, 7, out.at(8))
			// What lies beside a tombstone is not ours.
			s.do("XADD", s.key(7), "*", "a", "b")
			s.expect(shardscript.Gone, shardscript.Open, 7, out.after(9))
			s.sealed(7, false)
		},
		"OPEN/outside": func(s *shards) {
			s.create(3, "g")
			s.expect(shardscript.OK, shardscript.Open, 2, in.after(5))
			s.sealed(2, true)
			if c := s.info(2).Control; c.Until != 0 || c.Gate != "" {
				s.t.Fatalf("control %+v", c)
			}
		},
		"RELEASE": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Release, 0, out.at(5))
			s.create(2, "g")
			s.provision(out, 5)
			s.seal(out, 6)
			s.untouched(shardscript.Ahead, shardscript.Release, 0, out.at(5))
			s.untouched(shardscript.Late, shardscript.Release, 0, with(out.at(6), late))
			s.decide(out, 6)
			s.untouched(shardscript.Decided, shardscript.Release, 0, out.at(7))
			if c := s.expect(shardscript.OK, shardscript.Release, 1, out.at(7)).Control; c.Aborted != "out" || c.Gate != "" || c.Until != 0 {
				s.t.Fatalf("control %+v", c)
			}
			s.sealed(1, false)
		},
		"UNDO": func(s *shards) {
			s.create(2, "g")
			s.provision(out, 5)
			s.untouched(shardscript.Ahead, shardscript.Undo, 2, out.at(4))
			s.untouched(shardscript.Late, shardscript.Undo, 2, with(out.at(5), late))
			s.expect(shardscript.OK, shardscript.Undo, 2, out.at(6))
			s.expect(shardscript.OK, shardscript.Undo, 2, out.at(6))
			s.exists(2, false)
			if c := s.info(2).Control; c.Retired != "out" || c.Aborted != "out" || c.SealedLastID != "" {
				s.t.Fatalf("control %+v", c)
			}
			s.expect(shardscript.OK, shardscript.Open, 3, with(out.after(7), func(a *args) { a.Count = 4 }))
			s.untouched(shardscript.Decided, shardscript.Undo, 3, out.at(8))
		},
		"UNDO/NOTEMPTY": func(s *shards) {
			s.create(3)
			s.expectAppend(shardscript.OK, 2, 1, 3, "a")
			s.do("XTRIM", s.key(2), "MAXLEN", "0")
			s.untouched(shardscript.NotEmpty, shardscript.Undo, 2, out.at(5))
		},
		"RETIRE": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.RetireOne, 2, in.after(5))
			s.create(3, "g")
			s.untouched(shardscript.NotFenced, shardscript.RetireOne, 2, in.after(5))
			s.untouched(shardscript.Ahead, shardscript.RetireOne, 2, with(in.after(5), func(a *args) { a.Epoch = 0 }))
			s.expectAppend(shardscript.OK, 2, 1, 3, "a")
			s.expect(shardscript.OK, shardscript.Open, 2, in.after(5))
			s.untouched(shardscript.NotFenced, shardscript.RetireOne, 2, with(in.after(5), func(a *args) { a.Count = 3 }))
			s.untouched(shardscript.NotFenced, shardscript.RetireOne, 1, in.after(5))
			s.untouched(shardscript.Ahead, shardscript.RetireOne, 2, in.after(4))
			s.untouched(shardscript.Late, shardscript.RetireOne, 2, with(in.after(5), late))
			s.untouched(shardscript.Busy, shardscript.RetireOne, 2, in.after(5))
			drain(s, 2, "g")
			s.untouched(shardscript.Unknown, shardscript.RetireOne, 2, with(in.after(5), func(a *args) { a.Groups = []string{"x"} }))
			archive := protocol.ArchiveKey(s.prefix, 2, "a1")
			s.do("SET", archive, "taken")
			s.untouched(shardscript.Exists, shardscript.RetireOne, 2, with(in.after(5), func(a *args) { a.Archive = "a1" }))
			s.do("DEL", archive)
			s.expect(shardscript.OK, shardscript.RetireOne, 2, with(in.after(5), func(a *args) { a.Archive = "a1" }))
			if id := s.c.XInfoStream(s.ctx, archive).Val().LastGeneratedID; id != maxID {
				s.t.Fatalf("the archive is not sealed: %s", id)
			}
			s.expect(shardscript.OK, shardscript.RetireOne, 2, in.after(5))
		},
		"RETIRE/UNSEALED": func(s *shards) {
			s.create(3, "g")
			s.expect(shardscript.OK, shardscript.Open, 2, in.after(5))
			s.do("XSETID", s.key(2), "5-5") // the seal is lost
			s.untouched(shardscript.Unsealed, shardscript.RetireOne, 2, in.after(5))
		},
		"HOLD": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Hold, 0, args{Revision: 5})
			s.create(3, "g")
			s.untouched(shardscript.Ahead, shardscript.Hold, 0, args{Revision: 0})
			s.untouched(shardscript.Late, shardscript.Hold, 0, args{Revision: 5, NotAfter: 1})
			s.expect(shardscript.OK, shardscript.Hold, 0, args{Revision: 5, Hold: never})
			s.sealed(0, true)
			s.expectAppend(shardscript.Sealed, 0, 1, 3, "a")
			s.expect(shardscript.OK, shardscript.Hold, 0, args{Revision: 6})
			s.sealed(0, false)
			s.expect(shardscript.OK, shardscript.Undo, 2, in.at(5))
			s.expect(shardscript.OK, shardscript.Hold, 2, args{Revision: 6, Hold: never}) // a tombstone
			if c := s.info(2).Control; c.Hold != 0 {
				s.t.Fatalf("control %+v", c)
			}
		},
		"MKGROUP": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.MkGroup, 0, args{Revision: 5})
			s.create(2)
			a := args{Revision: 5, Groups: []string{"g"}, Start: "0"}
			s.untouched(shardscript.Late, shardscript.MkGroup, 0, with(a, late))
			s.untouched(shardscript.Ahead, shardscript.MkGroup, 0, with(a, func(a *args) { a.Revision = 0 }))
			s.expect(shardscript.OK, shardscript.MkGroup, 0, a)
			s.do("XGROUP", "SETID", s.key(0), "g", "7-0")
			s.expect(shardscript.OK, shardscript.MkGroup, 0, a)
			if g := s.c.XInfoGroups(s.ctx, s.key(0)).Val(); len(g) != 1 || g[0].LastDeliveredID != "7-0" {
				s.t.Fatalf("groups %+v", g)
			}
			s.do("DEL", s.key(1))
			s.untouched(shardscript.Unknown, shardscript.MkGroup, 1, a)
			s.expect(shardscript.OK, shardscript.Undo, 1, out.at(5))
			s.untouched(shardscript.Retired, shardscript.MkGroup, 1, a)
		},
		"SURVEY": func(s *shards) {
			s.create(1)
			s.do("SET", s.key(5), "x")
			if r := s.untouched(shardscript.OK, shardscript.Survey, 5, args{}); r.Exists || r.Error == "" {
				s.t.Fatalf("%+v", r)
			}
			if r := s.untouched(shardscript.OK, shardscript.Survey, 0, args{}); !r.Exists || r.Sealed || !r.Control.Present {
				s.t.Fatalf("%+v", r)
			}
		},
		"PURGE": func(s *shards) {
			s.expect(shardscript.OK, shardscript.Purge, 0, args{Revision: 9})
			if s.info(0).Control.Present {
				s.t.Fatal("PURGE made a control hash")
			}
			s.create(3)
			s.untouched(shardscript.Ahead, shardscript.Purge, 0, args{Revision: 0})
			s.untouched(shardscript.Late, shardscript.Purge, 0, args{Revision: 9, NotAfter: 1})
			s.expectAppend(shardscript.OK, 0, 1, 3, "a")
			s.expect(shardscript.OK, shardscript.Purge, 0, args{Revision: 9}) // forced: the shard is still there
			s.exists(0, false)
			s.expect(shardscript.OK, shardscript.Undo, 2, in.at(5))
			s.do("XADD", s.key(2), "*", "a", "b") // an orphan
			s.expect(shardscript.OK, shardscript.Purge, 2, args{Revision: 9})
			s.exists(2, true)
		},
	}
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(newShards(t, c))
			})
		}
	})
}

// decideWith is DECIDE with arguments of its own.
func (s *shards) decideWith(a shardscript.Arguments) {
	s.t.Helper()
	s.expect(shardscript.OK, shardscript.Decide, 0, a)
}

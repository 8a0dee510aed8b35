package shardscript_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

func acked(groups ...string) shardscript.Arguments {
	return shardscript.Arguments{Revision: 2, ID: "retention", Epoch: 1, Count: 1, Policy: "ACKED", Groups: groups}
}

func maxLen(n int64, groups ...string) shardscript.Arguments {
	a := acked(groups...)
	a.Policy, a.MaxLen = "MAX_LEN", n
	return a
}

func maxAge(ms int64, groups ...string) shardscript.Arguments {
	a := acked(groups...)
	a.Policy, a.MaxAge = "MAX_AGE", ms
	return a
}

// entries lists the ids on a shard.
func (s *shards) entries(i int) []string {
	s.t.Helper()
	var ids []string
	for _, m := range s.c.XRange(s.ctx, s.key(i), "-", "+").Val() {
		ids = append(ids, m.ID)
	}
	return ids
}

// losses is what is counted of the groups of shard 0.
func (s *shards) losses(field string) map[string]int64 {
	s.t.Helper()
	counts := map[string]int64{}
	for name, value := range s.c.HGetAll(s.ctx, s.control(0)).Val() {
		if group, ok := strings.CutPrefix(name, field+":"); ok {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			counts[group] = n
		}
	}
	return counts
}

func TestRetain(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		t.Run("refusals", func(t *testing.T) {
			s := newShards(t, c)
			s.untouched(shardscript.Unfenced, shardscript.Retain, 0, maxLen(1))
			prepared(s, 3, "g")
			a := maxLen(1, "g")
			a.Revision = 0
			s.untouched(shardscript.Ahead, shardscript.Retain, 0, a)
			a = maxLen(1, "g")
			a.Epoch = 0
			s.untouched(shardscript.Ahead, shardscript.Retain, 0, a)
			a.Epoch = 2 // a layout that the shard has not heard of yet
			s.untouched(shardscript.NotFenced, shardscript.Retain, 0, a)
			a = maxLen(1, "g")
			a.NotAfter = 1
			s.untouched(shardscript.Late, shardscript.Retain, 0, a)
			s.do("HSET", s.control(0), "gate", "out")
			s.untouched(shardscript.NotFenced, shardscript.Retain, 0, maxLen(1, "g"))
			s.do("HDEL", s.control(0), "gate")
			a = maxLen(1, "g")
			a.Policy = "OLD"
			if _, err := s.eval(shardscript.Retain, 0, shardscript.Arguments{Revision: 2, NotAfter: never, Epoch: 1, Count: 1, Policy: "OLD"}.Args()); err == nil {
				t.Error("an unknown policy was carried out")
			}
			s.do("DEL", s.key(0))
			s.untouched(shardscript.Unknown, shardscript.Retain, 0, maxLen(1, "g"))
			s.do("HSET", s.control(0), "retired", "x")
			s.untouched(shardscript.Retired, shardscript.Retain, 0, maxLen(1, "g"))
		})
		t.Run("ACKED", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 5)
			s.untouched(shardscript.OK, shardscript.Retain, 0, acked()) // no group has acknowledged anything
			s.do("XGROUP", "CREATE", s.key(0), "g", "0")
			s.do("XGROUP", "CREATE", s.key(0), "unmanaged", "0")
			s.readOne("g")
			s.readOne("g")
			s.untouched(shardscript.OK, shardscript.Retain, 0, acked("g"))
			s.readOne("unmanaged")
			if r := s.expect(shardscript.OK, shardscript.Retain, 0, acked("g")); r.Removed != 1 || r.Unacked != 0 || r.Control.By != "retention/RETAIN" || r.Control.Rev != 2 {
				t.Fatalf("%+v", r)
			}
			s.read(0, "unmanaged", "c", 3) // 2, 3, 4 are pending
			s.readOne("g")
			s.untouched(shardscript.OK, shardscript.Retain, 0, acked("g"))
			s.do("XACK", s.key(0), "unmanaged", "2-0")
			if s.expect(shardscript.OK, shardscript.Retain, 0, acked("g")); fmt.Sprint(s.entries(0)) != "[3-0 4-0 5-0]" {
				t.Fatal(s.entries(0))
			}
			if r := s.untouched(shardscript.Unknown, shardscript.Retain, 0, acked("g", "lost")); !strings.Contains(r.Error, "lost") {
				t.Errorf("%q", r.Error)
			}
			s.do("XACK", s.key(0), "unmanaged", "3-0", "4-0")
			s.readOne("unmanaged")
			s.readOne("g")
			s.readOne("g")
			if s.expect(shardscript.OK, shardscript.Retain, 0, acked("g")); len(s.entries(0)) != 0 {
				t.Fatal(s.entries(0))
			}
			if n := s.losses("trimmed"); len(n) != 0 {
				t.Errorf("counted %v", n)
			}
		})
		t.Run("MAX_LEN", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 10, "g", "h")
			s.untouched(shardscript.OK, shardscript.Retain, 0, maxLen(10, "g", "h"))
			for range 3 {
				s.readOne("g")
			}
			s.read(0, "g", "c", 2) // 4, 5
			r := s.expect(shardscript.OK, shardscript.Retain, 0, maxLen(4, "g", "h", "lost"))
			if r.Removed != 6 || r.More || r.Unacked != 3+6+6 || r.Length != 4 {
				t.Fatalf("%+v", r)
			}
			if n := s.losses("trimmed"); fmt.Sprint(n) != "map[g:3 h:6 lost:6]" { // g: 4 and 5 were pending, 6 was not delivered
				t.Fatal(n)
			}
			// Nothing is left that an owner could count once more.
			taken := s.takeover(0, "g", owner(1, "m", "i"), 100, "")
			if len(taken.Lost) != 0 || len(taken.Entries) != 0 || len(s.losses("gone")) != 0 {
				t.Fatalf("%+v, gone %v", taken, s.losses("gone"))
			}
			ev := s.expect(shardscript.Busy, shardscript.Evidence, 0, shardscript.Arguments{Revision: 2})
			for _, g := range ev.Groups {
				if want := map[string]int64{"g": 3, "h": 6}[g.Group]; g.Trimmed != want || g.Pending != 0 {
					t.Errorf("%+v", g)
				}
			}
		})
		t.Run("MAX_AGE", func(t *testing.T) {
			s := newShards(t, c)
			s.create(1, "g")
			now := s.now(0)
			for _, ago := range []int64{10_000, 9_000, 1_000, -60_000} {
				s.do("XADD", s.key(0), fmt.Sprintf("%d-0", now-ago), "a", "b")
			}
			r := s.expect(shardscript.OK, shardscript.Retain, 0, maxAge(8_000, "g"))
			if r.Removed != 2 || r.Unacked != 2 || r.Length != 2 {
				t.Fatalf("%+v", r)
			}
			s.untouched(shardscript.OK, shardscript.Retain, 0, maxAge(1<<50, "g")) // older than the clock goes back
		})
		t.Run("slices", func(t *testing.T) {
			s := newShards(t, c)
			s.create(1, "g")
			for range 5 {
				if _, err := s.c.Pipelined(s.ctx, func(p redis.Pipeliner) error {
					for range 500 {
						p.XAdd(s.ctx, &redis.XAddArgs{Stream: s.key(0), Values: []string{"a", "b"}})
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range []struct {
				removed int64
				more    bool
			}{{1000, true}, {1000, true}, {499, false}, {0, false}} {
				if r := s.expect(shardscript.OK, shardscript.Retain, 0, maxLen(1, "g")); r.Removed != want.removed || r.More != want.more {
					t.Fatalf("slice %d: %+v", i, r)
				}
			}
			if n := s.losses("trimmed"); n["g"] != 2499 {
				t.Fatal(n)
			}
			// Large entries make small slices.
			large := strings.Repeat("x", 400<<10)
			for range 20 {
				s.c.XAdd(s.ctx, &redis.XAddArgs{Stream: s.key(0), Values: []string{"a", large}})
			}
			if r := s.expect(shardscript.OK, shardscript.Retain, 0, maxLen(1, "g")); !r.More || r.Removed == 0 || r.Removed > 12 {
				t.Fatalf("%+v", r)
			}
		})
		// Trimming while sealed takes the ids of what it removed out of sight; the kept one is right.
		t.Run("sealed", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 5, "g")
			s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 2, Hold: never})
			s.read(0, "g", "c", 5)
			s.do("XACK", s.key(0), "g", "1-0", "2-0", "3-0", "4-0", "5-0")
			if r := s.expect(shardscript.OK, shardscript.Retain, 0, acked("g")); r.Removed != 5 || !r.Sealed || r.LastID != "5-0" {
				t.Fatalf("%+v", r)
			}
			s.do("XGROUP", "CREATE", s.key(0), "tail", "$")
			s.untouched(shardscript.OK, shardscript.Retain, 0, acked("g"))
			s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 2})
			if _, err := s.c.XAdd(s.ctx, &redis.XAddArgs{Stream: s.key(0), ID: "5-0", Values: []string{"a", "b"}}).Result(); err == nil {
				t.Error("an id was given out twice")
			}
			s.do("XADD", s.key(0), "6-0", "a", "b")
			if got := s.read(0, "tail", "c", 5); fmt.Sprint(got) != "[6-0]" {
				t.Errorf("the group made at $ was given %v", got)
			}
		})
		// An entry with the highest possible id stays, whatever the policy.
		t.Run("the highest id", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 2, "g")
			s.do("XADD", s.key(0), maxID, "a", "b")
			s.read(0, "g", "c", 3)
			s.do("XACK", s.key(0), "g", "1-0", "2-0", maxID)
			if s.expect(shardscript.OK, shardscript.Retain, 0, acked("g")); fmt.Sprint(s.entries(0)) != "["+maxID+"]" {
				t.Fatal(s.entries(0))
			}
			s.untouched(shardscript.OK, shardscript.Retain, 0, acked("g"))
		})
	})
}

// due is what a group has not acknowledged of what lies on the shard, counted one by one.
func (s *shards) due(group string, ids []string) map[string]bool {
	s.t.Helper()
	due := map[string]bool{}
	for _, g := range s.c.XInfoGroups(s.ctx, s.key(0)).Val() {
		if g.Name != group {
			continue
		}
		for _, id := range ids {
			if less(g.LastDeliveredID, id) {
				due[id] = true
			}
		}
	}
	for _, p := range s.c.XPendingExt(s.ctx, &redis.XPendingExtArgs{Stream: s.key(0), Group: group, Start: "-", End: "+", Count: 10_000}).Val() {
		if slices.Contains(ids, p.ID) {
			due[p.ID] = true
		}
	}
	return due
}

func less(a, b string) bool {
	if b == maxID {
		return a != maxID
	}
	if a == maxID {
		return false
	}
	x, _ := strconv.Atoi(strings.TrimSuffix(a, "-0"))
	y, _ := strconv.Atoi(strings.TrimSuffix(b, "-0"))
	return x < y
}

// Whatever was added, read, acknowledged, deleted, claimed, trimmed, sealed: ACKED removes all
// that every group has acknowledged and nothing else; MAX_LEN removes what is too much and counts
// exactly what was due. The model counts one by one, slices are small.
func TestRetainIsExact(t *testing.T) {
	t.Parallel()
	c := redistest.Shared(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := newShards(t, c)
		prepared(s, 0, "g", "h")
		groups := map[string]bool{"g": true, "h": true}
		counted := map[string]int64{}
		next, held := 1, false
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			group := rapid.SampledFrom([]string{"g", "h", "unmanaged"}).Draw(rt, "group")
			switch step := rapid.SampledFrom([]string{"add", "add", "add", "read", "read", "ack", "ack", "delete", "claim", "setid", "make", "destroy", "seal", "acked", "acked", "len", "len"}).Draw(rt, "step"); step {
			case "add":
				for range rapid.IntRange(1, 6).Draw(rt, "n") {
					s.c.XAdd(s.ctx, &redis.XAddArgs{Stream: s.key(0), ID: strconv.Itoa(next) + "-0", Values: []string{"a", "b"}}) // refused while sealed
					next++
				}
			case "read":
				s.c.XReadGroup(s.ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{s.key(0), ">"}, Count: rapid.Int64Range(1, 8).Draw(rt, "n"), Block: -1})
			case "ack":
				for _, p := range s.c.XPendingExt(s.ctx, &redis.XPendingExtArgs{Stream: s.key(0), Group: group, Start: "-", End: "+", Count: 10}).Val() {
					if rapid.IntRange(0, 3).Draw(rt, "dice") > 0 {
						s.do("XACK", s.key(0), group, p.ID)
					}
				}
			case "delete":
				if ids := s.entries(0); len(ids) > 0 {
					s.do("XDEL", s.key(0), rapid.SampledFrom(ids).Draw(rt, "id"))
				}
			case "claim":
				s.c.XAutoClaim(s.ctx, &redis.XAutoClaimArgs{Stream: s.key(0), Group: group, Consumer: "d", Start: "0", Count: 3})
			case "setid":
				s.c.XGroupSetID(s.ctx, s.key(0), group, strconv.Itoa(rapid.IntRange(0, next).Draw(rt, "id"))+"-0")
			case "make":
				s.c.XGroupCreate(s.ctx, s.key(0), group, rapid.SampledFrom([]string{"0", "$"}).Draw(rt, "at"))
				groups[group] = true
			case "destroy":
				s.c.XGroupDestroy(s.ctx, s.key(0), group)
				delete(groups, group)
			case "seal":
				held = !held
				h := shardscript.Arguments{Revision: 2}
				if held {
					h.Hold = never
				}
				s.expect(shardscript.OK, shardscript.Hold, 0, h)
			default:
				before := s.entries(0)
				a := acked()
				if step == "len" {
					a = maxLen(rapid.Int64Range(1, 12).Draw(rt, "keep"))
					if rapid.Bool().Draw(rt, "expects") {
						a.Groups = []string{"g"}
					}
				}
				due := map[string]map[string]bool{}
				for name := range groups {
					due[name] = s.due(name, before)
				}
				if _, there := groups["g"]; !there && len(a.Groups) > 0 {
					due["g"] = map[string]bool{}
					for _, id := range before {
						due["g"][id] = true
					}
				}
				var keep int // how many of the oldest go
				for keep < len(before) {
					id := before[keep]
					stays := step == "acked" && (len(groups) == 0 || slices.ContainsFunc(slices.Collect(maps.Values(due)), func(d map[string]bool) bool { return d[id] }))
					if stays || step == "len" && int64(len(before)-keep) <= a.MaxLen {
						break
					}
					keep++
				}
				// A dangling pending row of any group holds ACKED up as well, until its owner has seen it.
				if step == "acked" {
					for name := range groups {
						for _, p := range s.c.XPendingExt(s.ctx, &redis.XPendingExtArgs{Stream: s.key(0), Group: name, Start: "-", End: "+", Count: 1}).Val() {
							for keep > 0 && !less(before[keep-1], p.ID) {
								keep--
							}
						}
					}
				}
				a.Most = rapid.IntRange(1, 7).Draw(rt, "slice")
				var removed int64
				for {
					r := s.expect(shardscript.OK, shardscript.Retain, 0, a)
					if removed += r.Removed; r.Removed > int64(a.Most) {
						rt.Fatalf("a slice of %d took %d", a.Most, r.Removed)
					}
					if !r.More {
						break
					}
				}
				after := s.entries(0)
				if removed != int64(keep) || !slices.Equal(after, before[keep:]) {
					rt.Fatalf("%s %+v left %v of %v, want %v; due %v", step, a, after, before, before[keep:], due)
				}
				if step == "len" {
					for name, d := range due {
						for _, id := range before[:keep] {
							if d[id] {
								counted[name]++
							}
						}
						for _, p := range s.c.XPendingExt(s.ctx, &redis.XPendingExtArgs{Stream: s.key(0), Group: name, Start: "-", End: "+", Count: 10_000}).Val() {
							if slices.Contains(before[:keep], p.ID) {
								rt.Fatalf("%s is pending in %s, and gone", p.ID, name)
							}
						}
					}
				}
				if keep > 0 { // what nobody is told of is forgotten
					maps.DeleteFunc(counted, func(name string, _ int64) bool { return !groups[name] && !slices.Contains(a.Groups, name) })
				}
				if got := s.losses("trimmed"); !maps.Equal(got, counted) {
					rt.Fatalf("counted %v, want %v", got, counted)
				}
			}
		}
	})
}

// Groups that nobody registered come and go; what they had lost goes with them.
func TestRetainForgetsGroups(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		prepared(s, 4, "g", "lost", "stray")
		a := maxLen(2, "g", "lost")
		s.expect(shardscript.OK, shardscript.Retain, 0, a)
		s.do("HSET", s.control(0), "gone:stray", "1", "gone:g", "1")
		s.do("XGROUP", "DESTROY", s.key(0), "stray")
		s.do("XGROUP", "DESTROY", s.key(0), "lost")
		if got := s.losses("trimmed"); !maps.Equal(got, map[string]int64{"g": 2, "lost": 2, "stray": 2}) {
			t.Fatalf("%v", got)
		}
		a.MaxLen = 1
		s.expect(shardscript.OK, shardscript.Retain, 0, a)
		if got := s.losses("trimmed"); !maps.Equal(got, map[string]int64{"g": 3, "lost": 3}) {
			t.Errorf("%v", got)
		}
		if got := s.losses("gone"); !maps.Equal(got, map[string]int64{"g": 1}) {
			t.Errorf("%v", got)
		}
	})
}

// A user who may not remove entries counts and acknowledges none: a script that fails in the middle
// is not undone, and would do so again and again.
func TestRetainForbidden(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := newShards(t, server.Client(t))
	for _, command := range []string{"xtrim", "xack", "xpending"} {
		t.Run(command, func(t *testing.T) {
			s := newShards(t, server.Client(t))
			prepared(s, 5, "g")
			s.read(0, "g", "c", 2)
			admin.do("ACL", "SETUSER", command, "on", ">pw", "~*", "&*", "+@all", "-"+command)
			limited := redis.NewClient(&redis.Options{Addr: server.Addr, Username: command, Password: "pw", MaxRetries: -1})
			t.Cleanup(func() { _ = limited.Close() })
			before := s.dump(0)
			a := maxLen(1, "g")
			a.NotAfter = never
			_, err := limited.Eval(s.ctx, shardscript.Source(shardscript.Retain), []string{s.key(0), s.control(0)}, a.Args()...).Result()
			if !redis.HasErrorPrefix(err, "NOPERM") {
				t.Errorf("%v", err)
			}
			if after := s.dump(0); after != before {
				t.Errorf("%s\n→ %s", before, after)
			}
		})
	}
}

func TestRmGroup(t *testing.T) {
	gone := func(group string, granted int64) shardscript.Arguments {
		return shardscript.Arguments{Revision: 2, ID: "group", Epoch: 1, Count: 1, Groups: []string{group}, Owner: &shardscript.Owner{Epoch: granted + 1}}
	}
	groupsOf := func(s *shards) (names []string) {
		for _, g := range s.c.XInfoGroups(s.ctx, s.key(0)).Val() {
			names = append(names, g.Name)
		}
		return names
	}
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		t.Run("refusals", func(t *testing.T) {
			s := newShards(t, c)
			s.untouched(shardscript.Unfenced, shardscript.RmGroup, 0, gone("g", 1))
			prepared(s, 1, "g")
			a := gone("g", 1)
			a.Revision = 0
			s.untouched(shardscript.Ahead, shardscript.RmGroup, 0, a)
			a = gone("g", 1)
			a.NotAfter = 1
			s.untouched(shardscript.Late, shardscript.RmGroup, 0, a)
		})
		t.Run("keeps nothing behind, and other groups as they are", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 4, "g", "other")
			old := owner(7, "m", "i")
			s.takeover(0, "g", old, 10, "")
			s.takeover(0, "other", owner(7, "m", "i"), 10, "")
			s.read(0, "g", "m~7", 2)
			s.read(0, "other", "m~7", 2)
			s.do("HSET", s.control(0), "trimmed:g", "3", "gone:g", "1", "trimmed:other", "5", "owner:ancient", "5 - 1000")
			r := s.expect(shardscript.OK, shardscript.RmGroup, 0, gone("g", 7))
			if r.Control.By != "group/RMGROUP" || r.Control.Rev != 2 {
				t.Fatalf("%+v", r.Control)
			}
			if fmt.Sprint(groupsOf(s)) != "[other]" || s.c.XPending(s.ctx, s.key(0), "other").Val().Count != 2 || len(s.entries(0)) != 4 {
				t.Fatalf("groups %v, entries %v", groupsOf(s), s.entries(0))
			}
			h := s.c.HGetAll(s.ctx, s.control(0)).Val()
			if h["trimmed:g"] != "" || h["gone:g"] != "" || h["trimmed:other"] != "5" || h["owner:other"] != "7 m i" || h["owner:ancient"] != "" || !strings.HasPrefix(h["owner:g"], "8 - ") {
				t.Fatalf("%v", h)
			}
			before := h["owner:g"]
			s.expect(shardscript.OK, shardscript.RmGroup, 0, gone("g", 7)) // a repeat
			if got := s.c.HGet(s.ctx, s.control(0), "owner:g").Val(); got != before {
				t.Errorf("a repeat made %q of %q", got, before)
			}

			// A consumer who has not heard of it learns so, and makes nothing again.
			if r := s.checkAck(0, "g", old, "1-0"); r.Code != shardscript.NotOwner {
				t.Errorf("%+v", r)
			}
			if r := s.takeover(0, "g", old, 10, ""); r.Code != shardscript.NoGroup {
				t.Errorf("%+v", r)
			}
			s.expect(shardscript.NotOwner, shardscript.MkGroup, 0, shardscript.Arguments{Groups: []string{"g"}, Start: "0", Owner: &old})

			// Registered anew it starts anew, and the old owner stays out.
			s.expect(shardscript.OK, shardscript.MkGroup, 0, shardscript.Arguments{Revision: 3, ID: "group", Groups: []string{"g"}, Start: "0"})
			if r := s.takeover(0, "g", old, 10, ""); r.Code != shardscript.NotOwner {
				t.Errorf("%+v", r)
			}
			if r := s.takeover(0, "g", owner(9, "m", "j"), 10, ""); r.Code != shardscript.OK || len(r.Entries) != 0 {
				t.Errorf("%+v", r)
			}
			if got := s.read(0, "g", "m~9", 10); len(got) != 4 {
				t.Errorf("the new group was given %v", got)
			}
		})
		t.Run("no owner was ever there", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 1, "g")
			s.expect(shardscript.OK, shardscript.RmGroup, 0, gone("g", 40))
			late := owner(40, "m", "i")
			s.expect(shardscript.NotOwner, shardscript.MkGroup, 0, shardscript.Arguments{Groups: []string{"g"}, Start: "0", Owner: &late})
		})
		t.Run("sealed, missing, retired", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 2, "g")
			s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 2, Hold: never})
			s.expect(shardscript.OK, shardscript.RmGroup, 0, gone("g", 1))
			s.sealed(0, true)
			if len(groupsOf(s)) != 0 {
				t.Fatal(groupsOf(s))
			}
			s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 2})
			s.do("XADD", s.key(0), "3-0", "a", "b")
			s.do("DEL", s.key(0))
			s.expect(shardscript.OK, shardscript.RmGroup, 0, gone("g", 1))
			s.exists(0, false)
			s.do("HSET", s.control(0), "retired", "x")
			s.do("XGROUP", "CREATE", s.key(0), "g", "0", "MKSTREAM") // not ours
			if r := s.expect(shardscript.Retired, shardscript.RmGroup, 0, gone("g", 1)); r.Control.Rev != 2 || fmt.Sprint(groupsOf(s)) != "[g]" {
				t.Fatalf("%+v, %v", r, groupsOf(s))
			}
		})
		// A PROVISION from before the deletion cannot bring the group to a new shard any more.
		t.Run("a late PROVISION", func(t *testing.T) {
			s := newShards(t, c)
			prepared(s, 1, "g")
			ch := change{id: "out", from: layout(1, 1), to: layout(2, 2), groups: []string{"g"}}
			s.provision(ch, 5)
			s.rollback(ch, 6)
			s.expect(shardscript.Retired, shardscript.RmGroup, 1, func() shardscript.Arguments { a := gone("g", 1); a.Revision = 8; return a }())
			s.untouched(shardscript.Ahead, shardscript.Provision, 1, ch.at(7))
		})
	})
}

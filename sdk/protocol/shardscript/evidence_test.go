package shardscript_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// prepared is a shard 0 under (1, 1) with ids of the test's own.
func prepared(s *shards, entries int, groups ...string) shardscript.Arguments {
	s.t.Helper()
	s.create(1, groups...)
	for i := 1; i <= entries; i++ {
		s.do("XADD", s.key(0), strconv.Itoa(i)+"-0", "a", "b")
	}
	return shardscript.Arguments{Revision: 2, ID: "look", Groups: groups}
}

func (s *shards) readOne(group string) {
	s.t.Helper()
	id := s.read(0, group, "c", 1)[0]
	s.do("XACK", s.key(0), group, id)
}

// Lag that Redis does not know is not zero, and says nothing: two entries are undelivered.
func TestEvidenceUnknownLag(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a := prepared(s, 4, "g")
		s.readOne("g")
		s.do("XDEL", s.key(0), "3-0")
		r := s.expect(shardscript.Busy, shardscript.Evidence, 0, a)
		if g := r.Groups[0]; g.Lag != nil || g.Pending != 0 || !g.EntryAfter || g.LastDeliveredID != "1-0" {
			t.Fatalf("%+v", g)
		}
	})
}

// Lag that stays positive, or unknown, when nothing is left does not hold a drain up.
func TestEvidenceIgnoresLag(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a := prepared(s, 5, "g")
		s.readOne("g")
		s.do("XTRIM", s.key(0), "MAXLEN", "1")
		s.readOne("g")
		r := s.expect(shardscript.Drained, shardscript.Evidence, 0, a)
		if g := r.Groups[0]; g.Lag == nil || *g.Lag == 0 {
			t.Logf("this server reports lag %v", g.Lag) // 7.0 says 3
		}

		s = newShards(t, c)
		a = prepared(s, 1)
		s.do("XGROUP", "CREATE", s.key(0), "g", "$")
		s.do("XADD", s.key(0), "2-0", "a", "b")
		s.do("XDEL", s.key(0), "2-0")
		s.expect(shardscript.Drained, shardscript.Evidence, 0, a)
	})
}

// One group has finished, the other is an entry behind: not drained, and the group is named.
func TestEvidenceNamesTheGroup(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a := prepared(s, 2, "done", "slow")
		s.readOne("done")
		s.readOne("done")
		s.readOne("slow")
		r := s.expect(shardscript.Busy, shardscript.Evidence, 0, a)
		for _, g := range r.Groups {
			if g.EntryAfter != (g.Group == "slow") {
				t.Errorf("%+v", g)
			}
		}
		a.Groups = append(a.Groups, "never")
		if r := s.expect(shardscript.Unknown, shardscript.Evidence, 0, a); r.Error == "" {
			t.Error("a missing group is not named")
		}
	})
}

// The verdict is the exact count in every state, sealed or not.
func TestEvidenceIsExact(t *testing.T) {
	t.Parallel()
	c := redistest.Shared(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		s := newShards(t, c)
		groups := []string{"g", "h"}
		a := prepared(s, 0, groups...)
		next, held := 1, false
		var all []string
		steps := rapid.IntRange(1, 30).Draw(rt, "steps")
		for range steps {
			group := rapid.SampledFrom(groups).Draw(rt, "group")
			switch rapid.SampledFrom([]string{"add", "add", "read", "read", "ack", "delete", "trim", "seal", "setid"}).Draw(rt, "step") {
			case "add":
				if held {
					continue
				}
				id := strconv.Itoa(next) + "-0"
				next++
				if s.c.XAdd(s.ctx, &redis.XAddArgs{Stream: s.key(0), ID: id, Values: []string{"a", "b"}}).Err() == nil { // refused below an id that SETID or a restore has passed
					all = append(all, id)
				}
			case "read":
				s.c.XReadGroup(s.ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{s.key(0), ">"}, Count: rapid.Int64Range(1, 3).Draw(rt, "n"), Block: -1})
			case "ack":
				if p := s.c.XPendingExt(s.ctx, &redis.XPendingExtArgs{Stream: s.key(0), Group: group, Start: "-", End: "+", Count: 1}).Val(); len(p) > 0 {
					s.do("XACK", s.key(0), group, p[0].ID)
				}
			case "delete":
				if len(all) > 0 {
					s.do("XDEL", s.key(0), rapid.SampledFrom(all).Draw(rt, "id"))
				}
			case "trim":
				s.do("XTRIM", s.key(0), "MAXLEN", rapid.IntRange(0, 3).Draw(rt, "keep"))
			case "seal":
				held = !held
				h := shardscript.Arguments{Revision: 2}
				if held {
					h.Hold = never
				}
				s.expect(shardscript.OK, shardscript.Hold, 0, h)
			case "setid":
				s.do("XGROUP", "SETID", s.key(0), group, rapid.SampledFrom([]string{"0", "2-0", "$"}).Draw(rt, "to"))
			}
		}
		r := s.send(shardscript.Evidence, 0, a)
		busy := false
		for _, g := range s.c.XInfoGroups(s.ctx, s.key(0)).Val() {
			undelivered := 0
			if g.LastDeliveredID != maxID { // nothing can be behind it
				undelivered = len(s.c.XRange(s.ctx, s.key(0), "("+g.LastDeliveredID, "+").Val())
			}
			pending := s.c.XPending(s.ctx, s.key(0), g.Name).Val().Count
			busy = busy || undelivered > 0 || pending > 0
			for _, e := range r.Groups {
				if e.Group == g.Name && (e.EntryAfter != (undelivered > 0) || e.Pending != pending) {
					rt.Fatalf("group %s: evidence %+v, exactly %d undelivered and %d pending", g.Name, e, undelivered, pending)
				}
			}
		}
		if want := map[bool]shardscript.Code{true: shardscript.Busy, false: shardscript.Drained}[busy]; r.Code != want {
			rt.Fatalf("verdict %s, exactly %s: %s", r.Code, want, fmt.Sprintf("%+v", r.Groups))
		}
	})
}

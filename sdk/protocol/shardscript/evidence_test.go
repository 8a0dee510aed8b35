package shardscript_test

import (
	"flag"
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
		if g := r.Groups[0]; g.Lag != nil || g.PossibleLoss != nil || g.Pending != 0 || g.Undelivered != 2 || g.UndeliveredMore || g.LastDeliveredID != "1-0" {
			t.Fatalf("%+v", g)
		}
	})
}

// What the client makes of a lag that Redis does not know: a release that shows it otherwise has to
// be looked at, here and wherever a lag is read.
func TestNullLagOfTheClient(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		prepared(s, 4, "g")
		s.readOne("g")
		s.do("XDEL", s.key(0), "3-0")
		infos, err := c.XInfoGroups(s.ctx, s.key(0)).Result()
		if err != nil || len(infos) != 1 || infos[0].Lag != -1 || infos[0].Pending != 0 || infos[0].EntriesRead != 1 {
			t.Fatalf("%+v, %v; want lag -1", infos, err)
		}
		raw, err := c.Do(s.ctx, "XINFO", "GROUPS", s.key(0)).Result()
		if err != nil {
			t.Fatal(err)
		}
		group, ok := raw.([]any)[0].(map[any]any)
		if lag, there := group["lag"]; !ok || !there || lag != nil {
			t.Fatalf("raw reply %v", raw)
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
		} else if g.Undelivered != 0 || g.PossibleLoss == nil || *g.PossibleLoss != *g.Lag {
			t.Errorf("%+v: entries that went before they were delivered are not reported", g)
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
			if g.EntryAfter != (g.Group == "slow") || g.Undelivered != map[string]int64{"slow": 1}[g.Group] {
				t.Errorf("%+v", g)
			}
		}
		a.Groups = append(a.Groups, "never")
		if r := s.expect(shardscript.Unknown, shardscript.Evidence, 0, a); r.Error == "" {
			t.Error("a missing group is not named")
		}
	})
}

// Entries are counted up to a limit, and only that there are more from there on.
func TestEvidenceCountsUpToALimit(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a := prepared(s, 12, "g")
		s.readOne("g")
		for _, row := range []struct {
			most int
			want int64
			more bool
		}{{0, 11, false}, {11, 11, false}, {10, 10, true}, {1, 1, true}} {
			a.Most = row.most
			g := s.expect(shardscript.Busy, shardscript.Evidence, 0, a).Groups[0]
			if g.Undelivered != row.want || g.UndeliveredMore != row.more || row.more != (g.PossibleLoss == nil) {
				t.Errorf("up to %d: %+v", row.most, g)
			}
		}
	})
}

// Entries are read to be counted: of large ones fewer are, whatever the limit, and nothing is left
// out by that.
func TestEvidenceReadsSoMuch(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a := prepared(s, 1, "g", "same", "next", "last", "done", "new")
		body := strings.Repeat("x", 1<<20)
		for i := 2; i <= 12; i++ {
			s.do("XADD", s.key(0), strconv.Itoa(i)+"-0", "a", body)
		}
		for name, id := range map[string]string{"g": "1-0", "same": "1-0", "next": "2-0", "last": "11-0", "done": "12-0"} {
			s.do("XGROUP", "SETID", s.key(0), name, id)
		}
		a.Most = 10_000
		r := s.expect(shardscript.Busy, shardscript.Evidence, 0, a)
		got := map[string]string{}
		for _, g := range r.Groups {
			got[g.Group] = fmt.Sprint(g.Undelivered, g.UndeliveredMore, g.EntryAfter)
		}
		// In the order of their names: g and same begin at the same id, and leave no more to read.
		want := map[string]string{"g": "4 true true", "same": "4 true true", "next": "1 true true", "last": "1 false true", "done": "0 false false", "new": "12 false true"}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// Pending entries without a body hold up nothing, and each of them is counted, once.
func TestEvidenceCountsLostBodies(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a := prepared(s, 5, "g", "h")
		for _, group := range []string{"g", "h"} {
			if ids := s.read(0, group, "dead", 10); len(ids) != 5 {
				t.Fatalf("read %v", ids)
			}
		}
		s.do("XACK", s.key(0), "h", "1-0", "2-0", "3-0", "4-0", "5-0")
		s.do("XDEL", s.key(0), "2-0", "4-0")
		if g := s.expect(shardscript.Busy, shardscript.Evidence, 0, a).Groups[0]; g.Pending != 5 || g.Gone != 0 {
			t.Fatalf("%+v", g)
		}
		owner := shardscript.Owner{Epoch: 1, MemberID: "m", Incarnation: "i"}
		slice := shardscript.TakeoverSlice{Group: "g", Owner: owner, Consumer: "m~1", Max: 2}
		var entries, lost []string
		for {
			v, err := s.eval(shardscript.Takeover, 0, slice.Args())
			if err != nil {
				t.Fatal(err)
			}
			r, err := shardscript.ParseTakeover(v)
			if err != nil || r.Code != shardscript.OK {
				t.Fatalf("%+v, %v", r, err)
			}
			for _, e := range r.Entries {
				entries = append(entries, e.ID)
			}
			lost = append(lost, r.Lost...)
			if r.Next == "" {
				break
			}
			slice.After = r.Next
		}
		if !slices.Equal(entries, []string{"1-0", "3-0", "5-0"}) || !slices.Equal(lost, []string{"2-0", "4-0"}) {
			t.Fatalf("claimed %v, lost %v", entries, lost)
		}
		slice.After = ""
		if _, err := s.eval(shardscript.Takeover, 0, slice.Args()); err != nil { // once more: nothing is counted again
			t.Fatal(err)
		}
		if _, err := s.eval(shardscript.CheckAck, 0, shardscript.CheckAckArgs("g", owner, "m~1", entries...)); err != nil {
			t.Fatal(err)
		}
		r := s.expect(shardscript.Drained, shardscript.Evidence, 0, a)
		for _, g := range r.Groups {
			if want := map[string]int64{"g": 2}[g.Group]; g.Gone != want || g.Pending != 0 {
				t.Errorf("%+v, want %d lost", g, want)
			}
		}
		// A shard that is made anew begins without the counts of the one before.
		s.do("DEL", s.key(0))
		s.expect(shardscript.OK, shardscript.Open, 0, shardscript.Arguments{Revision: 3, ID: "again", Epoch: 1, Count: 1, Groups: []string{"g", "h"}})
		a.Revision = 3
		if g := s.expect(shardscript.Drained, shardscript.Evidence, 0, a).Groups[0]; g.Gone != 0 {
			t.Errorf("%+v after the shard was made anew", g)
		}
	})
}

var evidenceStates = flag.Int("evidence.states", 1000, "states in which TestEvidenceIsExact compares evidence with its own count")

// tally is what a test knows of a shard by itself: it counts what it did.
type tally struct {
	entries []int // ids n-0 that are there, ascending
	groups  map[string]*reading
}

// reading is a consumer group: where it stands, what is pending (and whether its body is there).
type reading struct {
	at      int
	pending map[int]bool
	gone    int64
	trimmed int64
	// lost entries were removed while they lay after at. moved: at was set by hand, so that Redis's
	// counters are not what was lost.
	lost  int64
	moved bool
}

func (y *tally) undelivered(r *reading) (n int64) {
	for _, id := range y.entries {
		if id > r.at {
			n++
		}
	}
	return n
}

// remove takes entries away as XDEL and XTRIM do.
func (y *tally) remove(gone func(i, id int) bool) (removed []int) {
	var left []int
	for i, id := range y.entries {
		if !gone(i, id) {
			left = append(left, id)
			continue
		}
		removed = append(removed, id)
		for _, r := range y.groups {
			if id > r.at {
				r.lost++
			}
		}
	}
	y.entries = left
	return removed
}

// TestEvidenceIsExact: the verdict and the counts are what the test counts by itself, in every state
// that adding, reading, acknowledging, claiming, deleting, trimming, retention, seals, and groups
// that come, go and are set elsewhere lead to. More states: -evidence.states=30000.
func TestEvidenceIsExact(t *testing.T) {
	t.Parallel()
	c := redistest.Shared(t).Client(t)
	seen := 0
	for seen < *evidenceStates && !t.Failed() {
		rapid.Check(t, func(rt *rapid.T) { seen += exactRun(t, rt, c) })
	}
	t.Logf("%d states", seen)
}

func exactRun(t *testing.T, rt *rapid.T, c redis.UniversalClient) (states int) {
	s := newShards(t, c)
	expected := []string{"g", "h"}
	a := prepared(s, 0, expected...)
	a.Most = 4 // so that "more" comes up
	y := &tally{groups: map[string]*reading{"g": {pending: map[int]bool{}}, "h": {pending: map[int]bool{}}}}
	last, held, epoch := 0, false, int64(0)
	id := func(n int) string { return strconv.Itoa(n) + "-0" }
	revision := int64(2)
	names := []string{"g", "h", "other"}
	pick := func(of map[int]bool, what string) (int, bool) {
		if len(of) == 0 {
			return 0, false
		}
		return rapid.SampledFrom(slices.Sorted(maps.Keys(of))).Draw(rt, what), true
	}
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		name := rapid.SampledFrom(names).Draw(rt, "group")
		r := y.groups[name]
		step := rapid.SampledFrom([]string{
			"add", "add", "add", "read", "read", "read", "ack", "ack", "claim", "take over", "delete", "trim", "retain", "seal", "destroy", "make", "set",
		}).Draw(rt, "step")
		switch step {
		case "add":
			if held {
				continue
			}
			last++
			s.do("XADD", s.key(0), id(last), "a", "b")
			y.entries = append(y.entries, last)
		case "read":
			if r == nil {
				continue
			}
			n := rapid.Int64Range(1, 3).Draw(rt, "n")
			if y.undelivered(r) > 0 {
				s.read(0, name, "c", n)
			}
			for _, e := range y.entries {
				if e > r.at && n > 0 {
					r.at, r.pending[e] = e, true
					n--
				}
			}
		case "ack":
			if r == nil {
				continue
			}
			if e, ok := pick(r.pending, "id"); ok {
				s.do("XACK", s.key(0), name, id(e))
				delete(r.pending, e)
			}
		case "claim":
			if r == nil {
				continue
			}
			if e, ok := pick(r.pending, "id"); ok {
				s.do("XCLAIM", s.key(0), name, "other", "0", id(e))
				if !slices.Contains(y.entries, e) {
					delete(r.pending, e) // from Redis 7 on a claim drops what has no body
				}
			}
		case "take over":
			if r == nil {
				continue
			}
			epoch++
			slice := shardscript.TakeoverSlice{Group: name, Owner: shardscript.Owner{Epoch: epoch, MemberID: "m", Incarnation: "i"}, Consumer: "m~" + strconv.FormatInt(epoch, 10), Max: 100}
			if _, err := s.eval(shardscript.Takeover, 0, slice.Args()); err != nil {
				rt.Fatal(err)
			}
			for e := range r.pending {
				if !slices.Contains(y.entries, e) {
					delete(r.pending, e)
					r.gone++
				}
			}
		case "delete":
			if len(y.entries) > 0 {
				e := rapid.SampledFrom(y.entries).Draw(rt, "id")
				s.do("XDEL", s.key(0), id(e))
				y.remove(func(_, x int) bool { return x == e })
			}
		case "trim":
			keep := rapid.IntRange(0, 3).Draw(rt, "keep")
			s.do("XTRIM", s.key(0), "MAXLEN", keep)
			n := len(y.entries)
			y.remove(func(i, _ int) bool { return i < n-keep })
		case "retain":
			keep := rapid.IntRange(1, 3).Draw(rt, "keep")
			s.expect(shardscript.OK, shardscript.Retain, 0, shardscript.Arguments{Revision: revision, ID: "retention", Epoch: 1, Count: 1, Policy: "MAX_LEN", MaxLen: int64(keep)})
			n := len(y.entries)
			for _, e := range y.remove(func(i, _ int) bool { return i < n-keep }) {
				for _, r := range y.groups {
					if e > r.at || r.pending[e] {
						r.trimmed++
					}
					delete(r.pending, e)
				}
			}
		case "seal":
			held = !held
			h := shardscript.Arguments{Revision: revision}
			if held {
				h.Hold = never
			}
			s.expect(shardscript.OK, shardscript.Hold, 0, h)
			if !held { // the id that was restored may be the highest that a group stands at
				last = max(last, lastOf(rt, s))
			}
		case "destroy":
			if r != nil {
				s.do("XGROUP", "DESTROY", s.key(0), name)
				delete(y.groups, name)
			}
		case "make":
			if r == nil {
				at := rapid.SampledFrom([]int{0, last / 2, last}).Draw(rt, "at")
				s.do("XGROUP", "CREATE", s.key(0), name, id(at))
				y.groups[name] = &reading{at: at, pending: map[int]bool{}, moved: true}
			}
		case "set":
			if r != nil {
				r.at = rapid.SampledFrom([]int{0, last / 2, last}).Draw(rt, "at")
				r.moved = true
				s.do("XGROUP", "SETID", s.key(0), name, id(r.at))
			}
		}
		states++
		y.compare(rt, s, a, expected, step)
	}
	return states
}

// lastOf is the ms of the last generated id.
func lastOf(rt *rapid.T, s *shards) int {
	var n int
	if _, err := fmt.Sscanf(s.c.XInfoStream(s.ctx, s.key(0)).Val().LastGeneratedID, "%d-", &n); err != nil {
		rt.Fatal(err)
	}
	return n
}

func (y *tally) compare(rt *rapid.T, s *shards, a shardscript.Arguments, expected []string, step string) {
	got := s.send(shardscript.Evidence, 0, a)
	want := shardscript.Drained
	for _, r := range y.groups {
		if len(r.pending) > 0 || y.undelivered(r) > 0 {
			want = shardscript.Busy
		}
	}
	for _, name := range expected {
		if y.groups[name] == nil {
			want = shardscript.Unknown
		}
	}
	if got.Code != want || len(got.Groups) != len(y.groups) {
		rt.Fatalf("after %s: verdict %s of %d groups, counted %s of %d: %+v", step, got.Code, len(got.Groups), want, len(y.groups), got.Groups)
	}
	for _, e := range got.Groups {
		r := y.groups[e.Group]
		if r == nil {
			rt.Fatalf("after %s: evidence of group %s, which does not exist", step, e.Group)
		}
		n := y.undelivered(r)
		counted := e.Undelivered == n && !e.UndeliveredMore || e.UndeliveredMore && e.Undelivered == int64(a.Most) && n > e.Undelivered
		if !counted || e.EntryAfter != (n > 0) || e.Pending != int64(len(r.pending)) || e.LastDeliveredID != strconv.Itoa(r.at)+"-0" {
			rt.Fatalf("after %s: evidence %+v, counted %d undelivered and %d pending", step, e, n, len(r.pending))
		}
		if e.Lag != nil && *e.Lag < n {
			rt.Fatalf("after %s: lag %d, counted %d undelivered: it is lower than what is left", step, *e.Lag, n)
		}
		if e.PossibleLoss != nil && (e.Lag == nil || e.UndeliveredMore || *e.PossibleLoss != *e.Lag-n || *e.PossibleLoss > r.lost && !r.moved) {
			rt.Fatalf("after %s: possible loss %d of %+v, counted %d", step, *e.PossibleLoss, e, r.lost)
		}
		if e.Gone < r.gone || e.Trimmed < r.trimmed { // they outlive a group that is destroyed and made again
			rt.Fatalf("after %s: evidence %+v, counted %d gone and %d trimmed", step, e, r.gone, r.trimmed)
		}
	}
}

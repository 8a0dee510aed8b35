package shardscript_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

func TestAppend(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		if r := s.expectAppend(shardscript.Unfenced, 0, 1, 2, "x"); r.HasLayout {
			t.Fatalf("%+v", r)
		}
		s.create(2)
		r := s.expectAppend(shardscript.OK, 0, 1, 2, "a", "b", "c")
		entries := s.c.XRange(s.ctx, s.key(0), "-", "+").Val()
		if len(r.IDs) != 3 || len(entries) != 3 || entries[2].ID != r.IDs[2] || entries[2].Values["v"] != "c" {
			t.Fatalf("%+v, %+v", r, entries)
		}
		s.expectAppend(shardscript.OK, 0, 1, 2) // only the checks
		s.expectAppend(shardscript.Stale, 0, 0, 2, "x")
		s.expectAppend(shardscript.Stale, 0, 1, 3, "x")
		s.expectAppend(shardscript.Behind, 0, 2, 2, "x")

		// Trimming, many fields, binary values.
		many := make([]any, 0, 2000)
		for i := range 1000 {
			many = append(many, fmt.Sprint("f", i), "\x00\xff")
		}
		v, err := s.eval(shardscript.Append, 1, shardscript.AppendArgs(1, 2, 100, slices.Repeat([][]any{many}, 150)...))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := shardscript.ParseAppend(v); err != nil || r.Code != shardscript.OK || len(r.IDs) != 150 {
			t.Fatalf("%+v, %v", r.Code, err)
		}
		if n := s.c.XLen(s.ctx, s.key(1)).Val(); n >= 150 {
			t.Fatalf("%d entries after trimming to about 100", n)
		}

		// A pause, its deadline, and both reasons at once.
		s.do("HSET", s.control(0), "until", never, "gate", "g")
		s.expectAppend(shardscript.Sealed, 0, 1, 2, "x")
		s.do("HSET", s.control(0), "until", 1)
		s.expectAppend(shardscript.Overdue, 0, 1, 2, "x")
		s.do("HSET", s.control(0), "hold", never)
		if r := s.expectAppend(shardscript.Sealed, 0, 1, 2, "x"); r.Until != 1 || r.Hold != never || r.Gate != "g" {
			t.Fatalf("%+v", r)
		}
		s.do("HDEL", s.control(0), "until", "gate", "hold")

		// Sealed without a reason in the hash: by somebody else, or restored from a copy.
		s.do("XSETID", s.key(0), maxID)
		s.expectAppend(shardscript.Sealed, 0, 1, 2, "x")
		// Ids run out half-way: what landed is told.
		s.do("XSETID", s.key(0), "18446744073709551615-18446744073709551613")
		if r := s.expectAppend(shardscript.Failed, 0, 1, 2, "a", "b", "c", "d"); len(r.IDs) != 2 || !strings.Contains(r.Error, "exhausted") {
			t.Fatalf("%+v", r)
		}
		s.do("DEL", s.key(0))
		s.expectAppend(shardscript.NoShard, 0, 1, 2, "x")
		s.expectAppend(shardscript.NoShard, 0, 1, 2)
		s.exists(0, false)
		s.do("SET", s.key(0), "x")
		if r := s.expectAppend(shardscript.Failed, 0, 1, 2, "a"); len(r.IDs) != 0 || !strings.HasPrefix(r.Error, "WRONGTYPE") {
			t.Fatalf("%+v", r)
		}
		s.do("DEL", s.key(1))
		s.expect(shardscript.OK, shardscript.Undo, 1, shardscript.Arguments{Revision: 9, ID: "x", Epoch: 1, Count: 2})
		if r := s.expectAppend(shardscript.Retired, 1, 1, 2, "x"); !r.HasLayout || r.Epoch != 1 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestResolveAndBring(t *testing.T) {
	type args = shardscript.Arguments
	overdue := func(s *shards) change { // 2 → 3, sealed, the deadline has passed
		s.create(2, "g")
		c := change{id: "out", from: layout(1, 2), to: layout(2, 3), groups: []string{"g"}, until: s.now(0) + 60_000}
		s.provision(c, 5)
		s.seal(c, 6)
		return c
	}
	pass := func(s *shards, indexes ...int) int64 {
		at := s.now(0)
		for _, i := range indexes {
			s.do("HSET", s.control(i), "until", at)
		}
		return at
	}
	tests := map[string]func(s *shards){
		"RESOLVE/UNFENCED": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Resolve, 0, args{ID: "out", Until: 1, Epoch: 1})
		},
		"RESOLVE/WAIT": func(s *shards) {
			c := overdue(s)
			s.expect(shardscript.Wait, shardscript.Resolve, 0, args{ID: "out", Until: c.until, Epoch: 1})
			s.expect(shardscript.Wait, shardscript.Resolve, 0, args{ID: "other", Until: 1, Epoch: 1})
			// A wrong deadline in the request does not end the pause early.
			s.expect(shardscript.Wait, shardscript.Resolve, 0, args{ID: "out", Until: 1, Epoch: 1})
			s.sealed(0, true)
		},
		"RESOLVE/ends": func(s *shards) {
			overdue(s)
			at := pass(s, 0, 1)
			r := s.expect(shardscript.InForce, shardscript.Resolve, 0, args{ID: "out", Until: at, Epoch: 1})
			if r.Control.Epoch != 1 || r.Control.Count != 2 || r.Control.Aborted != "out" || r.Control.By != "out/RESOLVE" {
				s.t.Fatalf("%+v", r.Control)
			}
			s.sealed(0, false)
			s.expect(shardscript.InForce, shardscript.Resolve, 0, args{ID: "out", Until: at, Epoch: 1}) // the next producer
			s.expectAppend(shardscript.Overdue, 1, 1, 2, "x")
			s.expect(shardscript.OK, shardscript.Bring, 1, args{ID: "out", Epoch: 1, Count: 2})
			s.expectAppend(shardscript.OK, 1, 1, 2, "x")
		},
		"RESOLVE/shard 0 was not sealed yet": func(s *shards) {
			s.create(2, "g")
			c := change{id: "out", from: layout(1, 2), to: layout(2, 3), groups: []string{"g"}, until: s.now(0) + 60_000}
			s.expect(shardscript.OK, shardscript.Seal, 1, c.at(6))
			at := pass(s, 1)
			s.expect(shardscript.InForce, shardscript.Resolve, 0, args{ID: "out", Until: at, Epoch: 1})
			s.untouched(shardscript.Aborted, shardscript.Seal, 0, c.at(6)) // a late SEAL meets the end
		},
		"RESOLVE/decided": func(s *shards) {
			c := overdue(s)
			s.decide(c, 7)
			r := s.expect(shardscript.InForce, shardscript.Resolve, 0, args{ID: "out", Until: 1, Epoch: 1})
			if r.Control.Epoch != 2 || r.Control.Count != 3 || r.Control.Aborted != "" {
				s.t.Fatalf("%+v", r.Control)
			}
		},
		"RESOLVE/released before the deadline": func(s *shards) {
			c := overdue(s)
			s.expect(shardscript.OK, shardscript.Release, 0, c.at(7))
			s.expect(shardscript.InForce, shardscript.Resolve, 0, args{ID: "out", Until: c.until, Epoch: 1}) // nothing to wait for
		},
		"RESOLVE/keeps the operator's pause": func(s *shards) {
			overdue(s)
			s.expect(shardscript.OK, shardscript.Hold, 0, args{Revision: 7, Hold: never})
			at := pass(s, 0)
			s.expect(shardscript.InForce, shardscript.Resolve, 0, args{ID: "out", Until: at, Epoch: 1})
			s.sealed(0, true)
		},
		"BRING/UNFENCED": func(s *shards) {
			s.untouched(shardscript.Unfenced, shardscript.Bring, 0, args{Epoch: 1, Count: 2})
		},
		"BRING/NOTHING": func(s *shards) {
			c := overdue(s)
			s.untouched(shardscript.Nothing, shardscript.Bring, 1, args{ID: "out", Epoch: 1, Count: 2}) // not passed
			pass(s, 1)
			s.untouched(shardscript.Nothing, shardscript.Bring, 1, args{ID: "other", Epoch: 1, Count: 2})
			s.untouched(shardscript.Nothing, shardscript.Bring, 1, args{Epoch: 1, Count: 2})
			s.untouched(shardscript.Nothing, shardscript.Bring, 1, args{ID: "out", Epoch: 0, Count: 2}) // the shard is ahead
			s.rollback(c, 9)
			s.untouched(shardscript.Nothing, shardscript.Bring, 2, args{ID: "out", Epoch: 2, Count: 3}) // a tombstone
			s.do("DEL", s.key(1))
			s.untouched(shardscript.Nothing, shardscript.Bring, 1, args{Epoch: 2, Count: 3})
		},
		"BRING/forward": func(s *shards) {
			c := overdue(s)
			s.decide(c, 7)
			at := pass(s, 1)
			s.expect(shardscript.OK, shardscript.Bring, 1, args{ID: "out", Until: at, Epoch: 2, Count: 3})
			s.expectAppend(shardscript.OK, 1, 2, 3, "x")
			s.untouched(shardscript.Nothing, shardscript.Bring, 2, args{ID: "out", Epoch: 2, Count: 3}) // its deadline has not passed
			pass(s, 2)
			s.expect(shardscript.OK, shardscript.Bring, 2, args{ID: "out", Epoch: 2, Count: 3})
			s.expectAppend(shardscript.OK, 2, 2, 3, "x")
		},
		"BRING/outside": func(s *shards) {
			s.create(3)
			s.expect(shardscript.OK, shardscript.Bring, 2, args{Epoch: 2, Count: 2})
			s.sealed(2, true)
			s.expectAppend(shardscript.Stale, 2, 1, 3, "x")
		},
		"BRING/operator": func(s *shards) {
			s.create(1)
			s.expect(shardscript.OK, shardscript.Hold, 0, args{Revision: 5, Hold: s.now(0) + 60_000})
			s.expect(shardscript.OK, shardscript.Bring, 0, args{Epoch: 1, Count: 1}) // its deadline has not passed
			s.sealed(0, true)
			s.do("HSET", s.control(0), "hold", s.now(0))
			s.expectAppend(shardscript.Overdue, 0, 1, 1, "x")
			s.expect(shardscript.OK, shardscript.Bring, 0, args{Epoch: 1, Count: 1})
			s.expectAppend(shardscript.OK, 0, 1, 1, "x")
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

// owner is one ownership in a test.
func owner(epoch int64, member, incarnation string) shardscript.Owner {
	return shardscript.Owner{Epoch: epoch, MemberID: member, Incarnation: incarnation}
}

func (s *shards) takeover(i int, group string, o shardscript.Owner, limit int, after string) shardscript.TakeoverReply {
	s.t.Helper()
	v, err := s.eval(shardscript.Takeover, i, shardscript.TakeoverSlice{
		Group: group, Owner: o, Consumer: protocol.ConsumerName(o.MemberID, o.Epoch), Max: limit, After: after,
	}.Args())
	if err != nil {
		s.t.Fatalf("TAKEOVER of shard %d: %v", i, err)
	}
	r, err := shardscript.ParseTakeover(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *shards) checkAck(i int, group string, o shardscript.Owner, ids ...string) shardscript.CheckAckReply {
	s.t.Helper()
	v, err := s.eval(shardscript.CheckAck, i, shardscript.CheckAckArgs(group, o, protocol.ConsumerName(o.MemberID, o.Epoch), ids...))
	if err != nil {
		s.t.Fatalf("CHECKACK of shard %d: %v", i, err)
	}
	r, err := shardscript.ParseCheckAck(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *shards) deleteConsumer(i int, group, name string) (shardscript.Code, int64) {
	s.t.Helper()
	v, err := s.eval(shardscript.DeleteConsumer, i, shardscript.DeleteConsumerArgs(group, name))
	if err != nil {
		s.t.Fatal(err)
	}
	code, pending, err := shardscript.ParseDeleteConsumer(v)
	if err != nil {
		s.t.Fatal(err)
	}
	return code, pending
}

// read is a plain group read of new entries.
func (s *shards) read(i int, group, consumer string, count int64) []string {
	s.t.Helper()
	res, err := s.c.XReadGroup(s.ctx, &redis.XReadGroupArgs{Group: group, Consumer: consumer, Streams: []string{s.key(i), ">"}, Count: count, Block: -1}).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	ids := make([]string, len(res[0].Messages))
	for j, m := range res[0].Messages {
		ids[j] = m.ID
	}
	return ids
}

func (s *shards) consumers(i int, group string) []string {
	s.t.Helper()
	var names []string
	for _, c := range s.c.XInfoConsumers(s.ctx, s.key(i), group).Val() {
		names = append(names, c.Name)
	}
	return names
}

func ids(entries []shardscript.Claimed) []string {
	list := make([]string, len(entries))
	for i, e := range entries {
		list[i] = e.ID
	}
	return list
}

func TestTakeover(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		a, b := owner(5, "a", "i1"), owner(9, "b", "i2")
		if r := s.takeover(0, "g", a, 10, ""); r.Code != shardscript.NoShard {
			t.Fatalf("%+v", r)
		}
		s.create(1)
		if r := s.takeover(0, "g", a, 10, ""); r.Code != shardscript.NoGroup {
			t.Fatalf("%+v", r)
		}
		// The owner makes a lost group again; another may not.
		s.expect(shardscript.OK, shardscript.MkGroup, 0, shardscript.Arguments{Groups: []string{"g"}, Start: "0", Owner: &a})
		if r := s.takeover(0, "g", a, 10, ""); r.Code != shardscript.OK || len(r.Entries) != 0 || r.Next != "" {
			t.Fatalf("%+v", r)
		}
		for _, o := range []shardscript.Owner{owner(4, "a", "i1"), owner(5, "a", "other"), owner(5, "b", "i1")} {
			s.untouched(shardscript.NotOwner, shardscript.MkGroup, 0, shardscript.Arguments{Groups: []string{"g"}, Owner: &o})
		}

		appended := s.expectAppend(shardscript.OK, 0, 1, 1, "1", "2", "3", "4", "5").IDs
		read := append(s.read(0, "g", "a~5", 2), s.read(0, "g", "plain", 1)...)
		read = append(read, s.read(0, "g", "a~5", 2)...)
		if !slices.Equal(read, appended) {
			t.Fatalf("read %v of %v", read, appended)
		}
		s.do("XDEL", s.key(0), appended[1], appended[3]) // two bodies go

		for _, o := range []shardscript.Owner{owner(4, "b", "i2"), owner(5, "a", "i2"), owner(5, "b", "i1")} {
			if r := s.takeover(0, "g", o, 10, ""); r.Code != shardscript.NotOwner || r.Stored != 5 {
				t.Fatalf("%+v took over from 5: %+v", o, r)
			}
		}
		// Slices in id order, under whatever name; the emptied names go only when nothing is left.
		first := s.takeover(0, "g", b, 2, "")
		if first.Code != shardscript.OK || !slices.Equal(ids(first.Entries), appended[:1]) || !slices.Equal(first.Lost, appended[1:2]) ||
			first.Next != appended[1] || len(first.Deleted) != 0 || first.Entries[0].Deliveries != 2 || !slices.Equal(first.Entries[0].Fields, []string{"v", "1"}) {
			t.Fatalf("first slice %+v", first)
		}
		second := s.takeover(0, "g", b, 2, first.Next)
		if !slices.Equal(ids(second.Entries), appended[2:3]) || !slices.Equal(second.Lost, appended[3:4]) || second.Next != appended[3] || !slices.Equal(second.Deleted, []string{"plain"}) {
			t.Fatalf("second slice %+v", second)
		}
		third := s.takeover(0, "g", b, 2, second.Next)
		if !slices.Equal(ids(third.Entries), appended[4:]) || third.Next != "" || !slices.Equal(third.Deleted, []string{"a~5"}) {
			t.Fatalf("third slice %+v", third)
		}
		if names := s.consumers(0, "g"); !slices.Equal(names, []string{"b~9"}) {
			t.Fatalf("consumers %v", names)
		}
		// Its own pending entries come again with the same ownership: the sweep.
		if again := s.takeover(0, "g", b, 10, ""); len(again.Entries) != 3 || again.Entries[0].Deliveries != 3 {
			t.Fatalf("sweep %+v", again)
		}

		// The zombie's ack is refused; the owner's counts.
		if r := s.checkAck(0, "g", a, appended[0]); r.Code != shardscript.NotOwner || r.Stored != 9 {
			t.Fatalf("%+v", r)
		}
		if r := s.checkAck(0, "g", owner(9, "b", "other"), appended[0]); r.Code != shardscript.NotOwner || r.Stored != 9 {
			t.Fatalf("%+v", r)
		}
		if r := s.checkAck(0, "g", owner(10, "b", "i2"), appended[0]); r.Code != shardscript.LostOwner || r.Stored != 9 {
			t.Fatalf("%+v", r)
		}
		if r := s.checkAck(0, "g", b, appended[0], "1-1"); r != (shardscript.CheckAckReply{Code: shardscript.OK, Acked: 1, Own: 2}) {
			t.Fatalf("%+v", r)
		}
		late := s.expectAppend(shardscript.OK, 0, 1, 1, "6").IDs
		s.read(0, "g", "a~5", 1) // the zombie's read, under way when it lost the shard
		if r := s.checkAck(0, "g", b); r != (shardscript.CheckAckReply{Code: shardscript.OK, Elsewhere: 1, Own: 2}) {
			t.Fatalf("%+v", r)
		}
		if code, n := s.deleteConsumer(0, "g", "a~5"); code != shardscript.Busy || n != 1 {
			t.Fatalf("%s %d", code, n)
		}
		if r := s.takeover(0, "g", b, 10, appended[4]); !slices.Equal(ids(r.Entries), late) || !slices.Equal(r.Deleted, []string{"a~5"}) {
			t.Fatalf("%+v", r)
		}
		if r := s.checkAck(0, "g", b, append(late, appended...)...); r.Acked != 3 || r.Own != 0 {
			t.Fatalf("%+v", r)
		}
		for _, name := range []string{"b~9", "never"} {
			if code, n := s.deleteConsumer(0, "g", name); code != shardscript.OK || n != 0 {
				t.Fatalf("%s: %s %d", name, code, n)
			}
		}
		// The node loses the owner: taken again with the same epoch.
		s.do("HDEL", s.control(0), "owner:g")
		if r := s.checkAck(0, "g", b); r.Code != shardscript.LostOwner || r.Stored != 0 {
			t.Fatalf("%+v", r)
		}
		if r := s.takeover(0, "g", b, 10, ""); r.Code != shardscript.OK {
			t.Fatalf("%+v", r)
		}
		// Empty names of earlier ownerships go; a foreign name with nothing pending stays.
		s.do("XGROUP", "CREATECONSUMER", s.key(0), "g", "x~3")
		s.do("XGROUP", "CREATECONSUMER", s.key(0), "g", "foreign")
		if r := s.takeover(0, "g", b, 10, ""); !slices.Equal(r.Deleted, []string{"x~3"}) {
			t.Fatalf("%+v", r)
		}

		s.do("XGROUP", "DESTROY", s.key(0), "g")
		if r := s.checkAck(0, "g", b, appended[0]); r.Code != shardscript.NoGroup {
			t.Fatalf("%+v", r)
		}
		if code, _ := s.deleteConsumer(0, "g", "x"); code != shardscript.NoGroup {
			t.Fatal(code)
		}
		s.do("DEL", s.key(0))
		if r := s.checkAck(0, "g", b, appended[0]); r.Code != shardscript.NoShard {
			t.Fatalf("%+v", r)
		}
		if code, _ := s.deleteConsumer(0, "g", "x"); code != shardscript.NoShard {
			t.Fatal(code)
		}
		s.do("HSET", s.control(0), "retired", "x")
		if r := s.checkAck(0, "g", b); r.Code != shardscript.Retired {
			t.Fatalf("%+v", r)
		}
		if r := s.takeover(0, "g", b, 10, ""); r.Code != shardscript.Retired {
			t.Fatalf("%+v", r)
		}
		if code, _ := s.deleteConsumer(0, "g", "x"); code != shardscript.Retired {
			t.Fatal(code)
		}
		s.exists(0, false)
		if c := s.info(0).Control; c.Retired != "x" {
			t.Fatalf("%+v", c)
		}
	})
}

// More ids than Lua's unpack takes.
func TestTakeoverManyEntries(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		s.create(1, "g")
		const n = 9_500
		values := make([]string, 500)
		for range n / len(values) {
			s.expectAppend(shardscript.OK, 0, 1, 1, values...)
		}
		s.read(0, "g", "dead", n)
		o := owner(1, "a", "")
		var all []string
		for after := ""; ; {
			r := s.takeover(0, "g", o, 5_000, after) // no more than MaxSlice all the same
			if r.Code != shardscript.OK || len(r.Entries) > shardscript.MaxSlice {
				t.Fatalf("%s with %d entries", r.Code, len(r.Entries))
			}
			all = append(all, ids(r.Entries)...)
			if after = r.Next; after == "" {
				break
			}
		}
		if len(all) != n {
			t.Fatalf("%d of %d entries", len(all), n)
		}
		if r := s.checkAck(0, "g", o, all...); r.Acked != n {
			t.Fatalf("%+v", r)
		}
	})
}

func TestParseOwner(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]shardscript.Owner{"17 a i": owner(17, "a", "i"), "17 a ": owner(17, "a", "")} {
		if got, err := shardscript.ParseOwner(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "17", "17 a", "x a i"} {
		if got, err := shardscript.ParseOwner(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if _, err := shardscript.ParseControl(map[string]string{"epoch": "x"}); err == nil {
		t.Error("a number that is none was accepted")
	}
}

package shardscript_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// A whole life of a stream: made, scaled out, rolled back, scaled in, emptied, deleted, made again.
func TestReshardingFlow(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		s.create(2, "g", "h")
		ids := s.expectAppend(shardscript.OK, 0, 1, 2, "a", "b").IDs
		s.expectAppend(shardscript.Behind, 0, 2, 3, "x")
		s.expectAppend(shardscript.Stale, 0, 1, 3, "x")
		if got := s.c.XLen(s.ctx, s.key(0)).Val(); got != 2 {
			t.Fatalf("shard 0 has %d entries after refused appends", got)
		}

		until := s.now(0) + 60_000
		out := change{id: "out", from: layout(1, 2), to: layout(2, 3), groups: []string{"g", "h"}, until: until}
		s.provision(out, 10)
		s.sealed(2, true)
		s.seal(out, 11)
		for i := range 3 {
			s.sealed(i, true)
		}
		r := s.expectAppend(shardscript.Sealed, 0, 1, 2, "x")
		if r.Gate != "out" || r.Until != until || r.At == 0 {
			t.Fatalf("refusal does not tell why: %+v", r)
		}
		ev := s.expect(shardscript.Busy, shardscript.Evidence, 0, out.at(11))
		if len(ev.Groups) != 2 || !ev.Groups[0].EntryAfter || ev.LastID != ids[1] || !ev.Sealed || ev.Added != 2 {
			t.Fatalf("evidence %+v", ev)
		}
		s.expect(shardscript.Busy, shardscript.Decide, 0, out.at(12))
		drain(s, 0, "g", "h")
		s.expect(shardscript.Drained, shardscript.Evidence, 0, out.at(11))
		s.decide(out, 12)
		if got := s.expect(shardscript.Decided, shardscript.Decide, 0, out.at(12)).Control; got.Epoch != 2 || got.Count != 3 || got.High != 3 {
			t.Fatalf("control of shard 0 after the decision: %+v", got)
		}
		s.expect(shardscript.Decided, shardscript.Release, 0, out.at(13))
		s.open(out, 14)
		for i := range 3 {
			s.sealed(i, false)
			s.expectAppend(shardscript.OK, i, 2, 3, strconv.Itoa(i))
			s.expectAppend(shardscript.Stale, i, 1, 2, "x")
		}

		undone := change{id: "undone", from: layout(2, 3), to: layout(3, 4), groups: []string{"g", "h"}, until: until}
		s.provision(undone, 20)
		s.seal(undone, 21)
		s.rollback(undone, 22)
		s.exists(3, false)
		for i := range 3 {
			s.sealed(i, false)
			s.expectAppend(shardscript.OK, i, 2, 3, "after the rollback")
			drain(s, i, "g", "h")
		}
		s.expectAppend(shardscript.Retired, 3, 2, 3, "x")

		in := change{id: "in", from: layout(2, 3), to: layout(4, 1), groups: []string{"g", "h"}, until: until}
		s.provision(in, 30)
		s.seal(in, 31)
		s.decide(in, 32)
		s.open(in, 33)
		s.sealed(0, false)
		s.sealed(1, true)
		archive := in.after(34)
		archive.Archive = "in"
		s.expect(shardscript.OK, shardscript.RetireOne, 2, archive)
		s.expect(shardscript.OK, shardscript.RetireOne, 1, in.after(34))
		s.expect(shardscript.OK, shardscript.RetireOne, 1, in.after(34)) // a repeat
		s.exists(1, false)
		s.exists(2, false)
		if n := s.c.XLen(s.ctx, protocol.ArchiveKey(s.prefix, 2, "in")).Val(); n == 0 {
			t.Fatal("the archive is not there")
		}
		s.expect(shardscript.Retired, shardscript.Evidence, 2, in.after(35))

		drain(s, 0, "g", "h")
		empty := change{id: "empty", from: layout(4, 1), to: layout(5, 0), groups: []string{"g", "h"}, until: until}
		s.complete(empty, 40)
		s.exists(0, false)
		for i := range 4 {
			s.expect(shardscript.OK, shardscript.Purge, i, empty.after(50))
			if ttl := s.c.TTL(s.ctx, s.control(i)).Val().Hours(); ttl < 23 || ttl > 24 {
				t.Fatalf("tombstone of shard %d expires in %v hours", i, ttl)
			}
		}

		// The name is used again before the tombstones have gone: numbers begin anew, but for revisions.
		again := shardscript.Arguments{Revision: 49, ID: "again", ToEpoch: 1, ToCount: 1, High: 1}
		s.untouched(shardscript.Ahead, shardscript.Provision, 0, again)
		again.Revision = 51
		s.expect(shardscript.OK, shardscript.Provision, 0, again)
		if ttl := s.c.TTL(s.ctx, s.control(0)).Val(); ttl != -1 {
			t.Fatalf("control hash of a shard that lives expires: %v", ttl)
		}
		s.expect(shardscript.OK, shardscript.Decide, 0, again)
		again.Epoch, again.Count = 1, 1
		s.expect(shardscript.OK, shardscript.Open, 0, again)
		s.expectAppend(shardscript.OK, 0, 1, 1, "a")
	})
}

// drain reads and acknowledges everything that the groups have left on shard i.
func drain(s *shards, i int, groups ...string) {
	s.t.Helper()
	for _, g := range groups {
		res, err := s.c.XReadGroup(s.ctx, &redis.XReadGroupArgs{Group: g, Consumer: "drain", Streams: []string{s.key(i), ">"}, Count: 10_000, Block: -1}).Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			s.t.Fatalf("drain shard %d: %v", i, err)
		}
		for _, m := range res[0].Messages {
			if err := s.c.XAck(s.ctx, s.key(i), g, m.ID).Err(); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

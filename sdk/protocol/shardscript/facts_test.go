package shardscript_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// What the scripts rely on in Redis itself: a server that differs shows here first.
func TestRedisFacts(t *testing.T) {
	const exhausted = "ERR The stream has exhausted the last possible ID, unable to add more items"
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		s.create(1, "g")
		s.expectAppend(shardscript.OK, 0, 1, 1, "1", "2", "3")
		s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 2, Hold: never})
		key := s.key(0)

		// Nothing lands on a sealed stream, and nothing is trimmed, whoever tries and however.
		for _, args := range [][]any{
			{"*"}, {"5-5"}, {maxID}, {"18446744073709551615-*"}, {"NOMKSTREAM", "*"}, {"MAXLEN", "0", "*"}, {"MINID", "99999999999999", "*"},
		} {
			err := s.c.Do(s.ctx, append(append([]any{"XADD", key}, args...), "a", "b")...).Err()
			if err == nil || args[0] != "5-5" && args[0] != maxID && err.Error() != exhausted {
				t.Errorf("XADD %v: %v", args, err)
			}
		}
		if err := s.c.Eval(s.ctx, "return redis.call('XADD', KEYS[1], '*', 'a', 'b')", []string{key}).Err(); err == nil || !strings.Contains(err.Error(), "exhausted the last possible ID") {
			t.Errorf("XADD in a script: %v", err)
		}
		cmds, err := s.c.TxPipelined(s.ctx, func(p redis.Pipeliner) error {
			p.XAdd(s.ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}})
			p.XLen(s.ctx, key)
			return nil
		})
		if err == nil || err.Error() != exhausted || cmds[1].(*redis.IntCmd).Val() != 3 {
			t.Errorf("MULTI: %v, then %v", err, cmds[1])
		}
		// Reading, acknowledging and counting go on.
		if ids := s.read(0, "g", "c", 10); len(ids) != 3 || s.c.XAck(s.ctx, key, "g", ids...).Val() != 3 {
			t.Errorf("read %v", ids)
		}

		// A blocked group read survives seal and unseal.
		got := make(chan error, 1)
		go func() {
			_, err := s.c.XReadGroup(s.ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{key, ">"}, Block: 20 * time.Second}).Result()
			got <- err
		}()
		eventually(t, func() string {
			if c := s.c.XInfoConsumers(s.ctx, key, "g").Val(); len(c) == 1 {
				return ""
			}
			return "no consumer"
		})
		s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 3})
		s.expectAppend(shardscript.OK, 0, 1, 1, "4")
		if err := <-got; err != nil {
			t.Errorf("a blocked read: %v", err)
		}

		// A full copy of a sealed shard is sealed.
		s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 4, Hold: never})
		copied := "{" + key + "}:copy"
		if err := s.c.RestoreReplace(s.ctx, copied, 0, s.c.Dump(s.ctx, key).Val()).Err(); err != nil {
			t.Fatal(err)
		}
		if got := s.c.XInfoStream(s.ctx, copied).Val().LastGeneratedID; got != maxID {
			t.Errorf("the copy is at %s", got)
		}
		if err := s.c.XRange(s.ctx, key, "("+maxID, "+").Err(); err == nil {
			t.Error("a range behind the highest id is no error any more")
		}
		missing := s.key(77)
		if err := s.c.XAdd(s.ctx, &redis.XAddArgs{Stream: missing, NoMkStream: true, Values: []string{"a", "b"}}).Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("XADD NOMKSTREAM on a missing key: %v", err)
		}
		if err := s.c.Do(s.ctx, "XSETID", missing, "1-1").Err(); err == nil || !strings.Contains(err.Error(), "no such key") {
			t.Errorf("XSETID on a missing key: %v", err)
		}
	})
}

// eventually polls until done returns "" or the time is up; then it fails with what was last seen.
func eventually(t *testing.T, done func() string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		seen := done()
		if seen == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in time; last seen: %s", seen)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Seal, kept id and fields outlive restart and promotion: lost together or not at all.
func TestSealIsDurable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newShards(t, server.Client(t))
	s.create(1, "g")
	last := s.expectAppend(shardscript.OK, 0, 1, 1, "a").IDs[0]
	s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 2, Hold: never})
	server.Restart(t)
	s.sealed(0, true)
	if c := s.info(0).Control; c.SealedLastID != last {
		t.Fatalf("%+v", c)
	}
	s.expect(shardscript.OK, shardscript.Hold, 0, shardscript.Arguments{Revision: 3})
	if got := s.c.XInfoStream(s.ctx, s.key(0)).Val().LastGeneratedID; got != last {
		t.Fatalf("last id %s, want %s", got, last)
	}
}

// A demoted primary refuses evidence: it must never be taken from old data.
func TestReplicaRefuses(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.StartReplicated(t)
	s := newShards(t, primary.Client(t))
	s.create(1, "g")
	s.c = replica.Client(t)
	for _, name := range []shardscript.Name{shardscript.Evidence, shardscript.Survey} {
		if _, err := s.eval(name, 0, shardscript.Arguments{Revision: 1, NotAfter: never, Groups: []string{"g"}}.Args()); !redis.HasErrorPrefix(err, "READONLY") {
			t.Errorf("%s on a replica: %v", name, err)
		}
	}
}

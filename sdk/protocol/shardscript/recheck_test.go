package shardscript_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol/shardscript"
)

// RECHECK says what can be seen of a certificate on a shard that is there, retired, archived or lost,
// and never changes anything.
func TestRecheck(t *testing.T) {
	everywhere(t, func(t *testing.T, c redis.UniversalClient) {
		s := newShards(t, c)
		s.create(3, "g", "idle")
		for i := range 3 {
			last := s.expectAppend(shardscript.OK, i, 1, 3, "a", "b").IDs[1]
			s.do("XACK", s.key(i), "g", s.read(i, "g", "c", 2)[0], last)
		}
		a := shardscript.Arguments{ID: "c1", Groups: []string{"g"}, Ignored: []string{"idle"}, LastID: s.info(0).LastID}
		r := s.untouched(shardscript.OK, shardscript.Recheck, 0, a)
		if r.Verdict != shardscript.Drained || len(r.Groups) != 2 || r.Groups[0].EntryAfter || !r.Groups[1].EntryAfter || !r.Groups[1].Ignored || r.Added != 2 {
			t.Fatalf("drained: %+v", r)
		}
		// What came after the certified id says nothing of the certificate.
		s.expectAppend(shardscript.OK, 0, 1, 3, "later")
		s.read(0, "g", "c", 1)
		if r = s.untouched(shardscript.OK, shardscript.Recheck, 0, a); r.Verdict != shardscript.Drained || r.Groups[0].Pending != 0 {
			t.Fatalf("with later entries: %+v", r)
		}
		// A group that was set back has something of the certified part again.
		s.do("XGROUP", "SETID", s.key(0), "g", "0")
		if r = s.untouched(shardscript.OK, shardscript.Recheck, 0, a); r.Verdict != shardscript.Busy || !r.Groups[0].EntryAfter {
			t.Fatalf("set back: %+v", r)
		}
		s.read(0, "g", "c", 10)
		if r = s.untouched(shardscript.OK, shardscript.Recheck, 0, a); r.Verdict != shardscript.Busy || r.Groups[0].Pending != 2 || r.Groups[0].EntryAfter {
			t.Fatalf("read again: %+v", r)
		}
		s.do("XGROUP", "DESTROY", s.key(0), "g")
		if r = s.untouched(shardscript.OK, shardscript.Recheck, 0, a); r.Verdict != shardscript.Unknown || len(r.Groups) != 1 {
			t.Fatalf("without the group: %+v", r)
		}

		// Shards 1 and 2 are removed: one archived under another name than the id, one deleted.
		ch := change{id: "c1", from: layout(1, 3), to: layout(2, 1), groups: []string{"g"}, until: never}
		s.do("XGROUP", "CREATE", s.key(0), "g", "$")
		s.provision(ch, 2)
		s.seal(ch, 3)
		a.Archive, a.Most = "c1", 2
		a.LastID = s.info(1).LastID
		decide := ch.at(4)
		decide.Ignored = []string{"idle"}
		s.expect(shardscript.OK, shardscript.Decide, 0, decide)
		s.open(ch, 5)
		retire := ch.after(6)
		retire.Ignored = []string{"idle"}
		s.expect(shardscript.OK, shardscript.RetireOne, 2, retire)
		retire.Archive = "c1-2"
		s.expect(shardscript.OK, shardscript.RetireOne, 1, retire)
		if r = s.untouched(shardscript.Retired, shardscript.Recheck, 2, a); r.Control.Retired != "c1" || r.Exists {
			t.Fatalf("retired: %+v", r)
		}
		r = s.untouched(shardscript.Archived, shardscript.Recheck, 1, a)
		if r.Verdict != shardscript.Drained || !r.Sealed || !r.Exists || r.Added != 2 || len(r.Groups) != 2 {
			t.Fatalf("archived: %+v", r)
		}
		archive := protocol.ArchiveKey(s.prefix, 1, "c1-2")
		s.do("XGROUP", "SETID", archive, "g", "0")
		if r = s.untouched(shardscript.Archived, shardscript.Recheck, 1, a); r.Verdict != shardscript.Busy {
			t.Fatalf("an archive whose group was set back: %+v", r)
		}
		s.do("DEL", archive)
		s.untouched(shardscript.Retired, shardscript.Recheck, 1, a)

		// Neither stream nor tombstone is unknown, and so is what is no stream.
		if r = s.untouched(shardscript.Unknown, shardscript.Recheck, 7, a); r.Error == "" {
			t.Fatalf("nothing there: %+v", r)
		}
		s.do("SET", s.key(7), "x")
		if r = s.untouched(shardscript.Unknown, shardscript.Recheck, 7, a); r.Error != "the key is no stream" {
			t.Fatalf("no stream: %+v", r)
		}
	})
}

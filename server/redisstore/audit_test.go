package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func event(action, outcome string, minute int) protocol.AuditEvent {
	return protocol.AuditEvent{
		Action: action, Outcome: outcome, Principal: "ann", RequestID: fmt.Sprint("r", minute), ConsumerGroup: "g",
		Timestamp: time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC),
	}
}

func (f *fixture) events(q AuditQuery) []protocol.AuditEvent {
	f.t.Helper()
	list, err := f.AuditEvents(f.ctx, q)
	if err != nil {
		f.t.Fatal(err)
	}
	return list.Events
}

func TestAudit(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		first, second := event("put", "SUCCESS", 1), event("put", "SUCCESS", 2)
		first.ClientRequest, second.ClientRequest = "run-7:a", "run-7:a" // two requests of one operation
		c := Commit{Stream: &StreamWrite{Next: f.streamState(1)}, Audit: []protocol.AuditEvent{first, second}}
		res := f.must(c)
		if err := f.AppendAudit(f.ctx, f.prefix, event("delete", "FORBIDDEN", 3)); err != nil {
			t.Fatal(err)
		}
		// Another replica does not know the head of the chain.
		r := f.replica()
		if err := r.AppendAudit(f.ctx, f.prefix, event("scale", "FAILED", 4)); err != nil {
			t.Fatal(err)
		}
		// The first one's notion of the head is old by now, and the commit finds out by itself.
		f.must(Commit{Stream: &StreamWrite{Expect: res.StreamToken}, Audit: []protocol.AuditEvent{event("put", "SUCCESS", 5)}})
		// Requests that belong to no stream.
		if err := f.AppendAudit(f.ctx, "", event("login", "UNAUTHORIZED", 6)); err != nil {
			t.Fatal(err)
		}

		all := f.events(AuditQuery{Prefix: f.prefix})
		if len(all) != 5 || all[0].RequestID != "r5" || all[4].RequestID != "r1" {
			t.Fatalf("events %+v", all)
		}
		// The chain, computed by hand from what is listed.
		head := ""
		for i, ev := range slices.Backward(all) {
			hash := ev.Hash
			if ev.ID == "" {
				t.Fatalf("event without id: %+v", ev)
			}
			ev.ID, ev.Hash = "", ""
			b, _ := json.Marshal(ev)
			if head = link(head, b); head != hash {
				t.Fatalf("hash of event %d", i)
			}
		}
		for _, prefix := range []string{f.prefix, ""} {
			if v, err := f.VerifyAudit(f.ctx, prefix); err != nil || !v.Intact {
				t.Fatalf("chain of %q: %+v, %v", prefix, v, err)
			}
		}
		merged := f.events(AuditQuery{})
		if len(merged) != 6 {
			t.Fatalf("%d merged events", len(merged))
		}

		for name, tc := range map[string]struct {
			q    AuditQuery
			want int
		}{
			"Action": {AuditQuery{Action: "put"}, 3}, "Outcome": {AuditQuery{Outcome: "FAILED"}, 1},
			"Principal": {AuditQuery{Principal: "bob"}, 0}, "RequestID": {AuditQuery{RequestID: "r3"}, 1},
			"ClientRequest": {AuditQuery{RequestID: "run-7:a"}, 2},
			"Group":         {AuditQuery{Group: "g"}, 5}, "Fingerprint": {AuditQuery{Fingerprint: "x"}, 0},
			"ReshardingID": {AuditQuery{ReshardingID: "x"}, 0},
			"Time":         {AuditQuery{From: event("", "", 2).Timestamp, To: event("", "", 4).Timestamp}, 2},
		} {
			tc.q.Prefix = f.prefix
			if got := f.events(tc.q); len(got) != tc.want {
				t.Errorf("%s: %d events, want %d", name, len(got), tc.want)
			}
		}

		// Pages, of one log and of all: nothing twice, nothing left out.
		for _, q := range []AuditQuery{{Prefix: f.prefix, Limit: 2}, {Limit: 1}, {Limit: 4}} {
			seen := map[string]bool{}
			for {
				list, err := f.AuditEvents(f.ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, ev := range list.Events {
					if seen[ev.RequestID] {
						t.Fatalf("event %s twice", ev.RequestID)
					}
					seen[ev.RequestID] = true
				}
				if list.NextCursor == nil {
					break
				}
				q.Cursor = *list.NextCursor
			}
			want := 6
			if q.Prefix != "" {
				want = 5
			}
			if len(seen) != want {
				t.Errorf("pages of %d of %q have %d events, want %d", q.Limit, q.Prefix, len(seen), want)
			}
		}
		var refused *protocol.Error
		if _, err := f.AuditEvents(f.ctx, AuditQuery{Cursor: "nonsense"}); !errors.As(err, &refused) || refused.Code != protocol.CodeInvalidRequest {
			t.Errorf("bad cursor: %v", err)
		}

		// An entry that was taken out, or changed, shows.
		if err := f.c.XDel(f.ctx, f.keys.audit(f.prefix), all[2].ID).Err(); err != nil {
			t.Fatal(err)
		}
		if v, err := f.VerifyAudit(f.ctx, f.prefix); err != nil || v.Intact || v.Broken != all[1].ID {
			t.Errorf("a hole in the chain: %+v, %v", v, err)
		}
		// The newest as well: only the head knows of it.
		login := f.c.XRange(f.ctx, f.keys.audit(""), "-", "+").Val()[0].ID
		if err := f.c.XDel(f.ctx, f.keys.audit(""), login).Err(); err != nil {
			t.Fatal(err)
		}
		if v, err := f.VerifyAudit(f.ctx, ""); err != nil || v.Intact {
			t.Errorf("a missing end: %+v, %v", v, err)
		}
	})
}

// Who deleted a stream, and who asked for one that never was, is found with and without its name.
func TestAuditOfStreamsThatAreNot(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		f.must(Commit{Stream: &StreamWrite{Next: f.streamState(1)}, Audit: []protocol.AuditEvent{event("put", "SUCCESS", 1)}})
		f.must(Commit{Stream: &StreamWrite{Expect: f.load().StreamToken, Delete: true}, Audit: []protocol.AuditEvent{event("delete", "SUCCESS", 2)}})
		late, other := event("delete", "FAILED", 3), event("delete", "FAILED", 4)
		late.StreamPrefix, other.StreamPrefix = f.prefix, f.prefix+"-other"
		// Logs are merged by their ids, which are times: what falls into one millisecond has no order.
		for deleted := f.c.Time(f.ctx).Val(); f.c.Time(f.ctx).Val().UnixMilli() <= deleted.UnixMilli(); {
		}
		if err := f.AppendAudit(f.ctx, "", late, other); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			q    AuditQuery
			want []string
		}{
			{AuditQuery{}, []string{"r4", "r3", "r2", "r1"}},
			{AuditQuery{Action: "delete", Outcome: "SUCCESS"}, []string{"r2"}},
			{AuditQuery{Prefix: f.prefix}, []string{"r3", "r2", "r1"}},
			{AuditQuery{Prefix: other.StreamPrefix}, []string{"r4"}},
		} {
			var got []string
			for _, ev := range f.events(tc.q) {
				got = append(got, ev.RequestID)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%+v: events %v, want %v", tc.q, got, tc.want)
			}
		}
		if logs, err := f.AuditPrefixes(f.ctx); err != nil || !slices.Equal(logs, []string{"", f.prefix}) {
			t.Errorf("logs %q, %v", logs, err)
		}
	})
}

func TestTicker(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		hold := func(replica string, ttl time.Duration, want bool) {
			t.Helper()
			got, err := f.HoldTicker(f.ctx, f.prefix, replica, ttl)
			if err != nil || got != want {
				t.Fatalf("%s holds: %v, %v", replica, got, err)
			}
		}
		hold("a", time.Minute, true)
		hold("a", time.Minute, true)
		hold("b", time.Minute, false)
		if err := f.ReleaseTicker(f.ctx, f.prefix, "b"); err != nil {
			t.Fatal(err)
		}
		hold("b", time.Minute, false)
		if err := f.ReleaseTicker(f.ctx, f.prefix, "a"); err != nil {
			t.Fatal(err)
		}
		hold("b", 50*time.Millisecond, true)
		eventually(t, func() string {
			if ok, err := f.HoldTicker(f.ctx, f.prefix, "a", time.Minute); err != nil || !ok {
				return "the lock has not ended"
			}
			return ""
		})
	})
}

func TestProducersSeen(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		see := func(id string, fenced bool) protocol.Instant {
			t.Helper()
			if err := f.SeeProducer(f.ctx, f.prefix, id, fenced); err != nil {
				t.Fatal(err)
			}
			at, err := f.PlainSeen(f.ctx, f.prefix)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		if err := f.SeeProducer(f.ctx, f.prefix, "p", false); !errors.Is(err, ErrNotFound) {
			t.Fatalf("of no stream: %v", err)
		}
		if n := f.c.Exists(f.ctx, f.keys.producers(f.prefix)).Val() + f.c.Exists(f.ctx, f.keys.plainSeen(f.prefix)).Val(); n != 0 {
			t.Fatalf("%d keys of no stream", n)
		}
		f.created()
		if at := see("p", true); at != 0 {
			t.Fatalf("a fenced producer counts as plain: %v", at)
		}
		if at := see("", false); at == 0 {
			t.Fatal("an unknown plain client was not noted")
		}
		if n := f.c.ZCard(f.ctx, f.keys.producers(f.prefix)).Val(); n != 1 {
			t.Fatalf("%d producers", n)
		}
	})
}

package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

func TestCommitAndLoad(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		u, err := f.Load(f.ctx, f.prefix)
		if !errors.Is(err, ErrNotFound) || u == nil || u.Time == 0 || u.Identity == "" || u.Stream != nil {
			t.Fatalf("load of nothing: %+v, %v", u, err)
		}
		res, _ := f.created()
		if res.StreamToken.Revision != 1 || res.GroupTokens["g"].Revision != 1 || res.Identity != u.Identity {
			t.Fatalf("result of the creation: %+v", res)
		}
		// Another replica, which has never seen the groups.
		for _, s := range []*Store{f.Store, f.replica()} {
			u, err := s.Load(f.ctx, f.prefix)
			if err != nil {
				t.Fatal(err)
			}
			if u.StreamToken != res.StreamToken || u.GroupTokens["g"] != res.GroupTokens["g"] || u.Groups["g"].GroupEpoch != 1 || len(u.Leases["g"]) != 0 {
				t.Fatalf("loaded %+v", u)
			}
		}
		if list, err := f.Streams(f.ctx); err != nil || !slices.Equal(list, []string{f.prefix}) {
			t.Fatalf("index %v, %v", list, err)
		}

		// A second group registers; rows, reports; the revision jumps when asked to.
		second := f.must(Commit{
			Identity: res.Identity,
			Stream:   &StreamWrite{Expect: res.StreamToken, Next: f.streamState(2, "g", "h"), MinRevision: 40},
			Groups: map[string]*GroupWrite{
				"g": {Expect: res.GroupTokens["g"], Next: f.groupState("g", 2), Lease: 15 * time.Second,
					Rows: group.Rows{Renew: []string{"a/1", "b/1"}}, Observations: map[string]json.RawMessage{"a": json.RawMessage(`{"x":1}`)}},
				"h": {Next: f.groupState("h", 1), Lease: time.Second},
			},
		})
		if second.StreamToken.Revision != 40 || second.GroupTokens["g"].Revision != 2 || second.GroupTokens["h"].Revision != 1 {
			t.Fatalf("tokens %+v", second)
		}
		u = f.load()
		want := group.Leases{"a/1": second.Time.Add(15 * time.Second), "b/1": second.Time.Add(15 * time.Second)}
		if !maps.Equal(u.Leases["g"], want) || len(u.Groups) != 2 || u.Stream.Generation != 2 {
			t.Fatalf("loaded %+v, want leases %v", u, want)
		}
		if reports, err := f.Observations(f.ctx, f.prefix, "g"); err != nil || string(reports["a"]) != `{"x":1}` {
			t.Fatalf("reports %v, %v", reports, err)
		}

		// Renewal of steady answers: nothing but rows changes.
		third := f.must(Commit{Identity: res.Identity, Groups: map[string]*GroupWrite{
			"g": {Expect: second.GroupTokens["g"], Lease: 20 * time.Second, Rows: group.Rows{Renew: []string{"a/1"}, Drop: []string{"b/1"}}},
		}})
		if third.StreamToken != (Token{}) || len(third.GroupTokens) != 0 {
			t.Fatalf("a renewal wrote %+v", third)
		}
		rows, at, err := f.Leases(f.ctx, f.prefix, "g", 0)
		if err != nil || at < third.Time || !maps.Equal(rows, group.Leases{"a/1": third.Time.Add(20 * time.Second)}) {
			t.Fatalf("rows %v at %v, %v", rows, at, err)
		}
		if rows, _, err := f.Leases(f.ctx, f.prefix, "g", third.Time); err != nil || len(rows) != 0 {
			t.Fatalf("rows that end before now: %v, %v", rows, err)
		}

		// A shorter lease does not cut a row, unless it is told to.
		cut := Commit{Groups: map[string]*GroupWrite{"g": {Expect: second.GroupTokens["g"], Lease: time.Second, Rows: group.Rows{Renew: []string{"a/1"}}}}}
		f.must(cut)
		if got := f.load().Leases["g"]["a/1"]; got != third.Time.Add(20*time.Second) {
			t.Fatalf("the row was cut to %v", got)
		}
		cut.Groups["g"].ResetRows = true
		last := f.must(cut)
		if got := f.load().Leases["g"]["a/1"]; got != last.Time.Add(time.Second) {
			t.Fatalf("the row was not reset: %v", got)
		}
	})
}

// Thousands of rows pass in slices: Lua's unpack has a limit.
func TestCommitManyRows(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		res, _ := f.created()
		rows := make([]string, 10_001)
		reports := map[string]json.RawMessage{}
		for i := range rows {
			rows[i] = "member-" + strconv.Itoa(i) + "/1"
			reports["member-"+strconv.Itoa(i)] = json.RawMessage("{}")
		}
		w := &GroupWrite{Expect: res.GroupTokens["g"], Lease: time.Minute, Rows: group.Rows{Renew: rows}, Observations: reports}
		f.must(Commit{Groups: map[string]*GroupWrite{"g": w}})
		if n := len(f.load().Leases["g"]); n != len(rows) {
			t.Fatalf("%d rows", n)
		}
		w.Rows, w.Observations = group.Rows{Drop: rows[:9000]}, nil
		for member := range reports {
			if member != "member-0" {
				w.Forget = append(w.Forget, member)
			}
		}
		f.must(Commit{Groups: map[string]*GroupWrite{"g": w}})
		if left, err := f.Observations(f.ctx, f.prefix, "g"); err != nil || len(left) != 1 {
			t.Fatalf("%d reports are left: %v", len(left), err)
		}
		if n := len(f.load().Leases["g"]); n != 1001 {
			t.Fatalf("%d rows are left", n)
		}
	})
}

func TestCommitRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		res, creation := f.created()
		identity := res.Identity
		// Rows for the checks: one that has ended is made by an ancient lease.
		f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Lease: time.Minute, Rows: group.Rows{Renew: []string{"live/1", "other/1"}}}}})
		f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Lease: -time.Second, Rows: group.Rows{Renew: []string{"ended/1"}}}}})
		write := func(change func(*Commit)) Commit {
			c := Commit{
				Identity: identity,
				Stream:   &StreamWrite{Expect: res.StreamToken, Next: f.streamState(2, "g")},
				Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Next: f.groupState("g", 2), Lease: time.Minute,
					Rows: group.Rows{Renew: []string{"new/2"}}, Observations: map[string]json.RawMessage{"m": json.RawMessage("1")}}},
				Audit: []protocol.AuditEvent{{Action: "test"}},
			}
			change(&c)
			return c
		}
		conflicts := map[string]func(*Commit){
			"StreamRevision":     func(c *Commit) { c.Stream.Expect.Revision = 7 },
			"StreamNonce":        func(c *Commit) { c.Stream.Expect.Nonce = "another" },
			"StreamExists":       func(c *Commit) { c.Stream.Expect = Token{} },
			"GroupRevision":      func(c *Commit) { c.Groups["g"].Expect.Revision = 7 },
			"GroupNonce":         func(c *Commit) { c.Groups["g"].Expect.Nonce = "another" },
			"GroupExists":        func(c *Commit) { c.Groups["g"].Expect = Token{} },
			"GroupMissing":       func(c *Commit) { c.Groups["h"] = &GroupWrite{Expect: Token{1, "x"}} },
			"CheckOfStreamAlone": func(c *Commit) { c.Stream = &StreamWrite{Expect: Token{1, "x"}}; c.Audit = nil },
			"CheckOfGroupAlone": func(c *Commit) {
				c.Groups["g"] = &GroupWrite{Expect: Token{1, "x"}, Rows: group.Rows{Renew: []string{"r"}}}
			},
			"DeletionOfStream":    func(c *Commit) { c.Stream = &StreamWrite{Expect: Token{1, "x"}, Delete: true} },
			"RevisionOutOfReach":  func(c *Commit) { c.Stream.Expect = Token{res.StreamToken.Revision + 1, res.StreamToken.Nonce} },
			"EqualRevisionsNonce": func(c *Commit) { c.Stream.Expect.Nonce += "x" },
		}
		for name, change := range conflicts {
			if err := f.refused(write(change)); !errors.Is(err, ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
		var moved *IdentityError
		if err := f.refused(write(func(c *Commit) { c.Identity = "other:server" })); !errors.As(err, &moved) || moved.Actual != identity {
			t.Errorf("identity: %v", err)
		}
		now, err := f.SampleTime(f.ctx, f.prefix)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.refused(write(func(c *Commit) { c.NotAfter = now })); !errors.Is(err, ErrLate) {
			t.Errorf("late: %v", err)
		}
		for _, off := range []time.Duration{-20 * time.Second, 20 * time.Second} {
			var clock *ClockError
			err := f.refused(write(func(c *Commit) { c.Estimate, c.Tolerance = now.Add(off), 750*time.Millisecond }))
			if !errors.As(err, &clock) || clock.Time < now {
				t.Errorf("clock: %v", err)
			}
		}
		var rows *RowsError
		err = f.refused(write(func(c *Commit) {
			c.Groups["g"].Rows.Check = []group.RowCheck{{Row: "ended/1"}, {Row: "live/1"}, {Row: "missing/1"}, {Row: "other/1", MaxRemaining: time.Second}}
		}))
		if !errors.As(err, &rows) || len(rows.Ends["g"]) != 3 || rows.Ends["g"]["missing/1"] != 0 || rows.Ends["g"]["live/1"] < now || rows.Time < now {
			t.Errorf("rows: %v %+v", err, rows)
		}
		// The checks that hold: a row that has ended, and one that is nearer to its end than asked.
		after := f.must(write(func(c *Commit) {
			c.NotAfter, c.Estimate, c.Tolerance = now.Add(time.Hour), now, time.Minute
			c.Groups["g"].Rows.Check = []group.RowCheck{{Row: "ended/1"}, {Row: "live/1", MaxRemaining: 2 * time.Minute}}
		}))
		if after.StreamToken.Revision != 2 {
			t.Errorf("tokens %+v", after)
		}
		_ = creation
	})
}

// What is left of a damaged aggregate is not taken for "not stored".
func TestCommitOverDamage(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		f.created()
		f.c.HDel(f.ctx, f.keys.stream(f.prefix), "rev", "nonce")
		if err := f.refused(Commit{Stream: &StreamWrite{Next: f.streamState(2)}}); !errors.Is(err, ErrConflict) {
			t.Fatal(err)
		}
	})
}

// A library that lost the answer and sent the script again must not turn success into a conflict.
func TestCommitRepeated(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		c := Commit{Prefix: f.prefix, Nonce: nonce(), Stream: &StreamWrite{Next: f.streamState(1)}, Audit: []protocol.AuditEvent{{Action: "create"}}}
		first := f.must(c)
		second := f.must(c)
		if first.StreamToken != second.StreamToken {
			t.Fatalf("%+v and then %+v", first, second)
		}
		if n := f.c.XLen(f.ctx, f.keys.audit(f.prefix)).Val(); n != 1 {
			t.Fatalf("%d audit entries", n)
		}
	})
}

func TestCommitDelete(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		res, _ := f.created()
		f.must(Commit{Groups: map[string]*GroupWrite{"g": {
			Expect: res.GroupTokens["g"], Lease: time.Minute, Rows: group.Rows{Renew: []string{"a/1"}},
			Observations: map[string]json.RawMessage{"a": json.RawMessage("1")},
		}}})
		if err := f.SeeProducer(f.ctx, f.prefix, "p", false); err != nil {
			t.Fatal(err)
		}
		if held, err := f.HoldTicker(f.ctx, f.prefix, "r", time.Minute); err != nil || !held {
			t.Fatal(held, err)
		}
		f.must(Commit{
			Stream: &StreamWrite{Expect: res.StreamToken, Delete: true},
			Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Delete: true}},
			Audit:  []protocol.AuditEvent{{Action: "delete"}},
		})
		if _, err := f.Load(f.ctx, f.prefix); !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
		k := f.keys
		for _, key := range []string{k.stream(f.prefix), k.group(f.prefix, "g"), k.leases(f.prefix, "g"), k.progress(f.prefix, "g"), k.producers(f.prefix), k.plainSeen(f.prefix), k.ticker(f.prefix)} {
			if f.c.Exists(f.ctx, key).Val() != 0 {
				t.Errorf("key %s is left", key)
			}
		}
		if n := f.c.XLen(f.ctx, k.audit(f.prefix)).Val(); n != 1 {
			t.Errorf("%d audit entries", n)
		}
		if list, _ := f.Streams(f.ctx); len(list) != 0 {
			t.Errorf("index %v", list)
		}
	})
}

// A key of the coordinator's that holds something else fails a commit before its first write, and
// no change goes without its audit entry; a report that cannot be stored costs nothing.
func TestCommitOnForeignKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		res, _ := f.created()
		k, before := f.keys, f.load()
		overwrite := func(key string) {
			t.Helper()
			if err := f.c.Del(f.ctx, key).Err(); err != nil {
				t.Fatal(err)
			}
			if err := f.c.Set(f.ctx, key, "x", 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		change := func() Commit {
			return Commit{
				Stream: &StreamWrite{Expect: res.StreamToken, Next: f.streamState(7, "g")},
				Groups: map[string]*GroupWrite{"g": {
					Expect: res.GroupTokens["g"], Next: f.groupState("g", 7), Lease: time.Minute, Rows: group.Rows{Renew: []string{"a/1"}},
					Observations: map[string]json.RawMessage{"a": json.RawMessage("1")},
				}},
				Audit: []protocol.AuditEvent{{Action: "put"}},
			}
		}
		for _, key := range []string{k.audit(f.prefix), k.leases(f.prefix, "g")} {
			overwrite(key)
			for range 2 { // the second time it must not look as if the first had succeeded
				if _, err := f.Commit(f.ctx, change()); err == nil {
					t.Fatalf("committed over %s", key)
				}
			}
			f.c.Del(f.ctx, key)
			if u := f.load(); u.StreamToken != before.StreamToken || u.GroupTokens["g"] != before.GroupTokens["g"] {
				t.Fatalf("half a commit over %s: %+v", key, u)
			}
		}
		overwrite(k.progress(f.prefix, "g"))
		f.must(change())
		if u := f.load(); u.Stream.Generation != 7 || u.Groups["g"].GroupEpoch != 7 || len(u.Leases["g"]) != 1 {
			t.Errorf("loaded %+v", u)
		}
		if n := f.c.XLen(f.ctx, k.audit(f.prefix)).Val(); n != 1 {
			t.Errorf("%d audit entries", n)
		}
	})
}

// Twenty writers on one aggregate, each from another replica: no update is lost (I4).
func TestCommitContended(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		f.created()
		const writers, each = 20, 10
		var wg sync.WaitGroup
		errs := make(chan error, writers)
		for w := range writers {
			s := f.replica()
			wg.Go(func() {
				for done := 0; done < each; {
					u, err := s.Load(f.ctx, f.prefix)
					if err != nil {
						errs <- err
						return
					}
					next := f.groupState("g", u.Groups["g"].GroupEpoch+1)
					_, err = s.Commit(f.ctx, Commit{
						Prefix: f.prefix, Nonce: nonce(), Identity: u.Identity,
						Groups: map[string]*GroupWrite{"g": {Expect: u.GroupTokens["g"], Next: next, Lease: time.Minute}},
						Audit:  []protocol.AuditEvent{{Action: "count", Summary: fmt.Sprint(w, "/", done)}},
					})
					switch {
					case err == nil:
						done++
					case !errors.Is(err, ErrConflict):
						errs <- err
						return
					}
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			t.Fatal(err)
		}
		u := f.load()
		if got := u.Groups["g"].GroupEpoch; got != 1+writers*each || u.GroupTokens["g"].Revision != got {
			t.Fatalf("epoch %d, revision %d after %d commits", got, u.GroupTokens["g"].Revision, writers*each)
		}
		if v, err := f.VerifyAudit(f.ctx, f.prefix); err != nil || !v.Intact || v.Entries != writers*each {
			t.Fatalf("audit chain %+v, %v", v, err)
		}
	})
}

// Another server, or a promoted one, is noticed by its identity (rule C2).
func TestCommitIdentityChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	f := newFixture(t, server.Client(t))
	res, _ := f.created()
	server.Restart(t)
	eventually(t, func() string {
		if err := f.c.Ping(f.ctx).Err(); err != nil {
			return err.Error()
		}
		return ""
	})
	var moved *IdentityError
	err := f.refused(Commit{Identity: res.Identity, Stream: &StreamWrite{Expect: res.StreamToken, Next: f.streamState(2, "g")}})
	if !errors.As(err, &moved) || moved.Actual == res.Identity || moved.Actual != f.load().Identity {
		t.Fatalf("%v", err)
	}
}

// Whatever is stored but cannot be read as it was written fails closed.
func TestLoadUnreadable(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		f.created()
		sk, gk := f.keys.stream(f.prefix), f.keys.group(f.prefix, "g")
		intact := map[string]map[string]string{}
		for _, key := range []string{sk, gk} {
			intact[key] = f.c.HGetAll(f.ctx, key).Val()
		}
		damage := map[string]func(){
			"StreamTruncated":   func() { f.c.HSet(f.ctx, sk, "aggregate", intact[sk]["aggregate"][:10]) },
			"StreamNoAggregate": func() { f.c.HDel(f.ctx, sk, "aggregate") },
			"StreamNoRevision":  func() { f.c.HDel(f.ctx, sk, "rev") },
			"StreamNoNonce":     func() { f.c.HDel(f.ctx, sk, "nonce") },
			"StreamNewSchema":   func() { f.c.HSet(f.ctx, sk, "schema", "2") },
			"StreamBadSchema":   func() { f.c.HSet(f.ctx, sk, "schema", "x") },
			"StreamBadRevision": func() { f.c.HSet(f.ctx, sk, "rev", "x") },
			"StreamOfAnother":   func() { f.c.HSet(f.ctx, sk, "aggregate", `{"schemaVersion":1,"prefix":"other"}`) },
			"StreamTrailing":    func() { f.c.HSet(f.ctx, sk, "aggregate", intact[sk]["aggregate"]+"{}") },
			"StreamWrongType":   func() { f.c.Del(f.ctx, sk); f.c.Set(f.ctx, sk, "x", 0) },
			"GroupMissing":      func() { f.c.Del(f.ctx, gk) },
			"GroupTruncated":    func() { f.c.HSet(f.ctx, gk, "aggregate", "{") },
			"GroupNewSchema":    func() { f.c.HSet(f.ctx, gk, "schema", "2") },
			"GroupOfAnother":    func() { f.c.HSet(f.ctx, gk, "aggregate", `{"schemaVersion":1,"streamPrefix":"other","group":"g"}`) },
		}
		for name, act := range damage {
			act()
			if u, err := f.Load(f.ctx, f.prefix); !errors.Is(err, ErrUnreadable) || u != nil {
				t.Errorf("%s: %+v, %v", name, u, err)
			}
			for key, fields := range intact {
				f.c.Del(f.ctx, key)
				f.c.HSet(f.ctx, key, fields)
			}
			if _, err := f.Load(f.ctx, f.prefix); err != nil {
				t.Fatalf("after %s was repaired: %v", name, err)
			}
		}
	})
}

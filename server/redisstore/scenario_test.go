package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/server/group"
)

// Scenarios of docs/protocol that are about the store alone, by their names there.
func TestScenario(t *testing.T) {
	t.Run("revision-again", func(t *testing.T) { everywhere(t, revisionAgain) })
	t.Run("failover-same-revision", func(t *testing.T) { everywhere(t, revisionAgain) })
	t.Run("expiry-races-renewal", func(t *testing.T) { everywhere(t, expiryRacesRenewal) })
	t.Run("failover-lost-leases", failoverLostLeases)
}

// The aggregate loses two commits, A writes two others, and B commits with its old cache: the
// revision is right, the nonce is not.
func revisionAgain(t *testing.T, f *fixture) {
	res, _ := f.created()
	sk, gk := f.keys.stream(f.prefix), f.keys.group(f.prefix, "g")
	backup := map[string]string{sk: f.c.Dump(f.ctx, sk).Val(), gk: f.c.Dump(f.ctx, gk).Val()}
	write := func(tokens CommitResult, generation int64) CommitResult {
		t.Helper()
		return f.must(Commit{
			Identity: res.Identity,
			Stream:   &StreamWrite{Expect: tokens.StreamToken, Next: f.streamState(generation, "g")},
			Groups:   map[string]*GroupWrite{"g": {Expect: tokens.GroupTokens["g"], Next: f.groupState("g", generation), Lease: time.Minute}},
		})
	}
	b := write(write(res, 2), 3) // what B has cached
	for key, data := range backup {
		if err := f.c.RestoreReplace(f.ctx, key, 0, data).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := write(write(res, 20), 30)
	if a.StreamToken.Revision != b.StreamToken.Revision || a.GroupTokens["g"].Revision != b.GroupTokens["g"].Revision {
		t.Fatalf("revisions %+v and %+v", a, b)
	}
	for name, c := range map[string]Commit{
		"stream":  {Stream: &StreamWrite{Expect: b.StreamToken, Next: f.streamState(4, "g")}},
		"group":   {Groups: map[string]*GroupWrite{"g": {Expect: b.GroupTokens["g"], Next: f.groupState("g", 4)}}},
		"renewal": {Groups: map[string]*GroupWrite{"g": {Expect: b.GroupTokens["g"], Lease: time.Minute, Rows: group.Rows{Renew: []string{"m/1"}}}}},
		"proof":   {Stream: &StreamWrite{Expect: b.StreamToken}},
	} {
		if err := f.refused(c); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g := f.load().Stream.Generation; g != 30 {
		t.Errorf("generation %d", g)
	}
}

// R1 has read the row as ended, R2 renews it, R1 commits the expiry.
func expiryRacesRenewal(t *testing.T, f *fixture) {
	res, _ := f.created()
	row := []string{"a/1"}
	token := res.GroupTokens["g"]
	f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: token, Lease: -time.Millisecond, Rows: group.Rows{Renew: row}}}})
	r1 := f.load()
	if r1.Leases["g"]["a/1"] > r1.Time {
		t.Fatalf("the row has not ended: %+v", r1)
	}
	f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: token, Lease: 15 * time.Second, Rows: group.Rows{Renew: row}}}}) // R2
	expiry := Commit{Groups: map[string]*GroupWrite{"g": {Expect: token, Next: f.groupState("g", 2), Lease: 15 * time.Second, Rows: group.Rows{Check: []group.RowCheck{{Row: "a/1"}}}}}}
	var rows *RowsError
	if err := f.refused(expiry); !errors.As(err, &rows) || rows.Ends["g"]["a/1"] < r1.Time {
		t.Fatalf("%v", err)
	}
	// The clock of Redis steps 20 s ahead: the row seems ended, and the estimate says no.
	now, _ := f.SampleTime(f.ctx, f.prefix)
	f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: token, Lease: -5 * time.Second, ResetRows: true, Rows: group.Rows{Renew: row}}}})
	expiry.Estimate, expiry.Tolerance = now.Add(-20*time.Second), 750*time.Millisecond
	var clock *ClockError
	if err := f.refused(expiry); !errors.As(err, &clock) {
		t.Fatalf("%v", err)
	}
}

// A copy without the newest row is promoted: its identity is another, and nothing is decided on it.
func failoverLostLeases(t *testing.T) {
	t.Parallel()
	primary, replica := redistest.StartReplicated(t)
	f := newFixture(t, primary.Client(t))
	res, _ := f.created()
	row := Commit{Identity: res.Identity, Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Lease: time.Second, Rows: group.Rows{Renew: []string{"a/1"}}}}}
	f.must(row)
	promoted := newFixture(t, replica.Client(t))
	promoted.prefix, promoted.Store = f.prefix, promoted.another(string(f.keys))
	eventually(t, func() string {
		if promoted.c.Exists(f.ctx, f.keys.leases(f.prefix, "g")).Val() == 0 {
			return "the row is not replicated"
		}
		return ""
	})
	replica.Pause(t) // it misses the renewal
	row.Groups["g"].Lease = time.Hour
	f.must(row)
	primary.Kill()
	replica.Continue(t)
	eventually(t, func() string {
		if err := promoted.c.Do(f.ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
			return err.Error()
		}
		if u, err := promoted.Load(f.ctx, f.prefix); err != nil || u.Identity == res.Identity {
			return "not promoted"
		}
		return ""
	})
	expiry := Commit{Identity: res.Identity, Groups: map[string]*GroupWrite{"g": {
		Expect: res.GroupTokens["g"], Next: f.groupState("g", 2), Rows: group.Rows{Check: []group.RowCheck{{Row: "a/1"}}},
	}}}
	var moved *IdentityError
	if err := promoted.refused(expiry); !errors.As(err, &moved) {
		t.Fatalf("%v", err)
	}
}

package redisstore

import (
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

// next waits for a notice that ok accepts.
func next(t *testing.T, s *Store, what string, ok func(Notice) bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	var last Notice
	for {
		select {
		case n, open := <-s.Notices():
			if !open {
				t.Fatalf("%s: the channel was closed", what)
			}
			if last = n; ok(n) {
				return
			}
		case <-deadline:
			t.Fatalf("%s: no such notice; last %+v", what, last)
		}
	}
}

func TestNotices(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		r := f.replica()
		other := f.prefix + "-other"
		for _, prefix := range []string{f.prefix, other} {
			r.Watch(prefix)
			next(t, r, "subscribed", func(n Notice) bool { return n == Notice{Prefix: prefix} })
		}
		res, _ := f.created()
		next(t, r, "creation", func(n Notice) bool { return n == Notice{f.prefix, res.StreamToken.Nonce} })

		// A renewal writes no aggregate and tells nobody; the write after it does.
		f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Lease: time.Minute}}})
		second := f.must(Commit{Groups: map[string]*GroupWrite{"g": {Expect: res.GroupTokens["g"], Next: f.groupState("g", 2), Lease: time.Minute}}})
		first := true
		next(t, r, "second commit", func(n Notice) bool {
			if n.Nonce != second.GroupTokens["g"].Nonce && first {
				t.Errorf("a renewal was told: %+v", n)
			}
			first = false
			return n.Nonce == second.GroupTokens["g"].Nonce
		})

		// Unwatched streams are silent; the others go on.
		r.Unwatch(f.prefix)
		eventually(t, func() string {
			u := f.load()
			f.must(Commit{Stream: &StreamWrite{Expect: u.StreamToken, Next: f.streamState(9, "g")}})
			select {
			case n := <-r.Notices():
				return "still told " + n.Nonce
			case <-time.After(20 * time.Millisecond):
				return ""
			}
		})
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for range r.Notices() { // only until it is closed
		}
	})
}

// A subscription that was lost is renewed, and everything watched is told to look again.
func TestNoticesRenewed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFixture(t, server.Client(t))
	f.Watch(f.prefix)
	next(t, f.Store, "subscribed", func(n Notice) bool { return n == Notice{Prefix: f.prefix} })
	server.Restart(t)
	next(t, f.Store, "renewed", func(n Notice) bool { return n == Notice{Prefix: f.prefix} })
	res := f.must(Commit{Stream: &StreamWrite{Next: f.streamState(1)}})
	next(t, f.Store, "commit", func(n Notice) bool { return n == Notice{f.prefix, res.StreamToken.Nonce} })
}

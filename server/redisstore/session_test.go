package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

func TestSession(t *testing.T) {
	everywhere(t, func(t *testing.T, f *fixture) {
		id := redistest.Prefix(t)
		other := f.replica()
		has := func(s *Store, user string, want bool) {
			t.Helper()
			if got, err := s.HasSession(f.ctx, id, user); err != nil || got != want {
				t.Errorf("HasSession of %s: %v, %v; want %v", user, got, err, want)
			}
		}
		left := func() time.Duration {
			t.Helper()
			ttl, err := f.c.PTTL(f.ctx, f.keys.session(id)).Result()
			if err != nil {
				t.Fatal(err)
			}
			return ttl
		}
		renew := func(s *Store, life time.Duration, want bool) {
			t.Helper()
			if got, err := s.RenewSession(f.ctx, id, life); err != nil || got != want {
				t.Errorf("RenewSession: %v, %v; want %v", got, err, want)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}

		has(f.Store, "ann", false)
		renew(f.Store, time.Hour, false)
		if _, err := f.c.Get(f.ctx, f.keys.session(id)).Result(); !errors.Is(err, redis.Nil) {
			t.Errorf("a renewal made a session: %v", err)
		}
		must(f.OpenSession(f.ctx, id, "ann", 90*time.Second+time.Millisecond))
		if ttl := left(); ttl > 91*time.Second || ttl < 20*time.Second {
			t.Errorf("it lives for %v", ttl)
		}
		for _, s := range []*Store{f.Store, other} {
			has(s, "ann", true)
			has(s, "ben", false)
		}
		renew(other, time.Hour, true)
		if ttl := left(); ttl > time.Hour || ttl < 50*time.Minute {
			t.Errorf("renewed, it lives for %v", ttl)
		}
		must(other.EndSession(f.ctx, id))
		has(f.Store, "ann", false)
		renew(f.Store, time.Hour, false)
		must(f.EndSession(f.ctx, id))

		must(f.OpenSession(f.ctx, id, "ann", time.Hour))
		renew(f.Store, 50*time.Millisecond, true) // a renewal may shorten
		deadline := time.Now().Add(30 * time.Second)
		for left() != -2*time.Nanosecond { // Redis: there is no such key
			if time.Now().After(deadline) {
				t.Fatalf("it has not ended; left: %v", left())
			}
			time.Sleep(5 * time.Millisecond)
		}
		has(other, "ann", false)
		if err := f.OpenSession(f.ctx, id, "ann", 0); err == nil {
			t.Error("a session without end was opened")
		}
	})
}

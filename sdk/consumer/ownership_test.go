package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/membership"
	"github.com/redisstream/terraform-provider-redisstream/sdk/internal/shard"
)

// TestRevokedTellsAnEndOfTheLease: an ownership that finds its lease over before its member says so was
// cut off, and the hook must say it: what it had handled last is handled again.
func TestRevokedTellsAnEndOfTheLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		revoked bool
		lease   time.Duration
		unacked []string
		cut     bool
	}{
		{"lease over", false, 0, []string{"1-1"}, true},
		{"lease over, nothing handled", false, 0, nil, true},
		{"lease over during the release", true, 0, []string{"1-1"}, true},
		{"released", true, time.Hour, nil, false},
		{"released with the last of the lease", true, 0, nil, false},
	} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never asked
		shards, err := shard.New(rdb, "orders")
		if err != nil {
			t.Fatal(err)
		}
		var cause error
		calls := 0
		m := &member{
			id: "m", work: context.Background(), signal: make(chan struct{}, 1), owned: map[int]*ownership{},
			machine: membership.New(membership.Config{MemberID: "m", NewIncarnation: func() string { return "i" }}),
			c:       &Consumer{shards: shards, clock: newClock(), cfg: Config{Group: "g", Hooks: Hooks{Revoked: func(_ int, _ int64, err error) { calls, cause = calls+1, err }}}},
		}
		m.leaseEnd.Store(int64(m.c.clock.Now() + c.lease))
		o := newOwnership(m, 0, 7, nil)
		o.assigned, o.unacked = true, c.unacked
		if c.revoked {
			o.revoke()
		}
		o.end()
		if calls != 1 || (cause != nil) != c.cut || c.cut && !errors.Is(cause, ErrOwnershipLost) {
			t.Errorf("%s: the hook was called %d times with %v", c.name, calls, cause)
		}
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	}
}

package redistest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestShared(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	if a, b := redistest.Shared(t), redistest.Shared(t); a != b {
		t.Fatalf("two shared servers: %s and %s", a.Addr, b.Addr)
	}
	if err := redistest.Shared(t).Client(t).Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(redistest.Shared(t).URL())
	if err != nil || opts.Addr != redistest.Shared(t).Addr {
		t.Fatalf("URL %q: %v", redistest.Shared(t).URL(), err)
	}
	prefix, keyPrefix := redistest.Prefix(t), redistest.KeyPrefix(t)
	if prefix == redistest.Prefix(t) || keyPrefix == redistest.KeyPrefix(t) {
		t.Fatal("prefixes repeat")
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	s := redistest.Start(t, "--maxmemory", "32mb")
	c := s.Client(t)
	if got := c.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != "33554432" {
		t.Fatalf("maxmemory is %q", got)
	}
	if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := c.Ping(ctx).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	s.Restart(t)
	if err := c.Get(ctx, "k").Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("data outlived a kill without persistence: %v", err)
	}

	s.Pause(t)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	hasty := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, ReadTimeout: 100 * time.Millisecond})
	defer func() { _ = hasty.Close() }()
	if err := hasty.Ping(short).Err(); err == nil {
		t.Fatal("a paused server answers")
	}
	s.Continue(t)
	if err := c.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestStartReplicated(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	primary, replica := redistest.StartReplicated(t)
	conn := primary.Client(t).Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Wait(ctx, 1, 5*time.Second).Result(); n != 1 || err != nil {
		t.Fatalf("WAIT: %d, %v", n, err)
	}
	if v, err := replica.Client(t).Get(ctx, "k").Result(); v != "v" || err != nil {
		t.Fatalf("replica has %q, %v", v, err)
	}
}

func TestSharedCluster(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := redistest.SharedCluster(t)
	cl := c.Client(t)
	seen := map[string]bool{}
	for i := range 20 {
		key := redistest.Prefix(t) + strings.Repeat("x", i)
		if err := cl.Set(ctx, key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		seen[c.Master(t, key).Addr] = true
	}
	if len(seen) != 3 {
		t.Fatalf("20 keys are on %d masters", len(seen))
	}
}

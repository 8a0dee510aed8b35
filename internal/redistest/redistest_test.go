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

// TestPair: what is written behind Detach is lost by the failover, what was written before is not.
func TestPair(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := redistest.StartPair(t)
	c := p.Client(t)
	held := make(chan struct{}, 1)
	p.Watch(func(cmd redistest.Command) redistest.Verdict {
		if string(cmd[len(cmd)-1]) != "late" {
			return redistest.Forward
		}
		if err := p.Detach(); err != nil {
			t.Error(err)
		}
		held <- struct{}{}
		return redistest.Forward
	})
	for _, v := range []string{"early", "late"} {
		if err := c.Set(ctx, "k", v, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	<-held
	p.Watch(nil)
	if v, err := c.Get(ctx, "k").Result(); v != "late" || err != nil {
		t.Fatalf("the primary has %q, %v", v, err)
	}
	p.Promote(t)
	if err := c.Get(ctx, "k").Err(); err == nil {
		t.Fatal("the stable address answers while it leads nowhere")
	}
	p.Reconnect()
	if v, err := c.Get(ctx, "k").Result(); v != "early" || err != nil {
		t.Fatalf("the promoted replica has %q, %v", v, err)
	}
	p.Rejoin(t)
	if v, err := p.Replica.Client(t).Get(ctx, "k").Result(); v != "early" || err != nil {
		t.Fatalf("the node that came back has %q, %v", v, err)
	}
}

// TestPairFrozen: a frozen replica confirms nothing, and has nothing of what was sent to it.
func TestPairFrozen(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := redistest.StartPair(t)
	p.Freeze()
	conn := p.Client(t).Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Set(ctx, "k", "late", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Wait(ctx, 1, 100*time.Millisecond).Result(); n != 0 || err != nil {
		t.Fatalf("WAIT: %d, %v", n, err)
	}
	if got := p.Primary.Client(t).Info(ctx, "replication").Val(); !strings.Contains(got, "state=online") {
		t.Fatalf("the replica has gone: %s", got)
	}
	p.Thaw(t)
	if v, err := p.Replica.Client(t).Get(ctx, "k").Result(); v != "late" || err != nil {
		t.Fatalf("the replica that goes on has %q, %v", v, err)
	}
}

// TestClusterFailOver: a master is replaced at once, without what its replica did not have.
func TestClusterFailOver(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := redistest.StartCluster(t)
	cl := c.Client(t)
	if err := cl.Set(ctx, "k", "early", 0).Err(); err != nil {
		t.Fatal(err)
	}
	master := c.Master(t, "k")
	replica := c.ReplicaOf(t, master)
	c.Detach(t, master, replica)
	if err := cl.Set(ctx, "k", "late", 0).Err(); err != nil {
		t.Fatal(err)
	}
	c.FailOver(t, master, replica)
	if v, err := c.Client(t).Get(ctx, "k").Result(); v != "early" || err != nil {
		t.Fatalf("the new master has %q, %v", v, err)
	}
	c.Rejoin(t, master, replica)
	if got := c.ReplicaOf(t, replica); got != master {
		t.Fatalf("%s follows, not %s", got.Addr, master.Addr)
	}
}

package e2e_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

const (
	username = "admin"
	password = "correct horse battery"
)

// scratch is where what all tests share is built; it is removed at the end.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Getenv(workerEnv) != "" {
		return workAs(os.Stdin)
	}
	dir, err := os.MkdirTemp("", "rsc-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return redistest.Main(m)
}

// startServer runs one coordinator in this process until the test ends.
func startServer(t *testing.T, redisURL, keyPrefix string) *server.Server {
	t.Helper()
	s := newServer(t, redisURL, keyPrefix)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop of the coordinator: %v", err)
		}
	})
	return s
}

func newServer(t *testing.T, redisURL, keyPrefix string) *server.Server {
	t.Helper()
	s, err := server.New(server.Config{
		Listen: "127.0.0.1:0", RedisURL: redisURL, KeyPrefix: keyPrefix, AdminUsername: username, AdminPassword: password,
		TokenSecret: "a secret of the tests, 32 bytes or more", Logger: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func connect(t *testing.T, endpoints ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Endpoints: endpoints, Username: username, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// declare sets the shard count and waits until the stream has converged; it returns the
// resharding that did it, nil when there was nothing to change.
func declare(t *testing.T, c *client.Client, prefix string, count int64, policy protocol.ReshardingPolicy) *protocol.Resharding {
	t.Helper()
	res, err := c.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &count, Resharding: policy, RequestedBy: "e2e", Reason: t.Name()}, client.Call{})
	if err != nil {
		t.Fatalf("declare %d shards: %v", count, err)
	}
	if res.ReshardingID == "" {
		return nil
	}
	r := follow(t, c, prefix, res.ReshardingID, 90*time.Second)
	if r.Phase != protocol.PhaseCompleted {
		t.Fatalf("resharding to %d ended %s: %s", count, r.Phase, r.Error)
	}
	return &r
}

// follow waits for the end of a resharding; the coordinator may be away meanwhile.
func follow(t *testing.T, c *client.Client, prefix, id string, within time.Duration) protocol.Resharding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var last protocol.Resharding
	for {
		r, err := c.Resharding(ctx, prefix, id, last.Phase, 2*time.Second)
		switch {
		case err == nil && r.Phase.Terminal():
			return r
		case err == nil:
			last = r
		}
		if ctx.Err() != nil {
			t.Fatalf("resharding %s did not end within %s; last seen %s, waiting for %v, last error %v", id, within, last.Phase, last.WaitingFor, err)
		}
	}
}

func putGroup(t *testing.T, c *client.Client, prefix, group string, spec protocol.GroupSpec) {
	t.Helper()
	if _, err := c.PutGroup(t.Context(), prefix, group, protocol.PutGroupRequest{GroupSpec: spec, RequestedBy: "e2e"}, client.Call{}); err != nil {
		t.Fatalf("group %s: %v", group, err)
	}
}

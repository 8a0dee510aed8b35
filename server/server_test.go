package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// start runs a server on a free port until the test ends.
func start(t *testing.T, change ...func(*server.Config)) *server.Server {
	t.Helper()
	cfg := server.Config{
		Listen: "127.0.0.1:0", RedisURL: redistest.Shared(t).URL(), KeyPrefix: redistest.KeyPrefix(t),
		AdminUsername: "admin", AdminPassword: "admin-password",
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	if err := s.Start(testContext(t)); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Stop(testContext(t)); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

// send makes one request and decodes its answer into into, if that is not nil.
func send(t *testing.T, s *server.Server, method, path, body string, into any) int {
	t.Helper()
	r, err := http.NewRequestWithContext(testContext(t), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth("admin", "admin-password")
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("%s %s: %d %q: %v", method, path, resp.StatusCode, raw, err)
		}
	}
	if resp.StatusCode >= 500 {
		t.Logf("%s %s: %d %s", method, path, resp.StatusCode, raw)
	}
	return resp.StatusCode
}

func TestStreamGroupHeartbeatAndAudit(t *testing.T) {
	t.Parallel()
	s := start(t)
	prefix := redistest.Prefix(t)
	path := "/coord/v1/streams/" + prefix

	var stream protocol.Stream
	if code := send(t, s, "PUT", path, `{"shardCount":2,"requestedBy":"ann"}`, &stream); code != 201 {
		t.Fatalf("create: %d", code)
	}
	if code := send(t, s, "PUT", path+"/groups/billing", `{}`, nil); code != 201 {
		t.Fatalf("create group: %d", code)
	}
	// The shards are assigned once they are in force; each beat is held until something changes.
	var answer protocol.HeartbeatResponse
	deadline := time.Now().Add(20 * time.Second)
	for len(answer.Assignment.AssignedShards) != 2 {
		if time.Now().After(deadline) {
			t.Fatalf("not assigned in 20 s; last answer %+v", answer)
		}
		beat := fmt.Sprintf(`{"protocolVersion":1,"requestId":"q1","memberId":"m1","incarnation":"i1","memberEpoch":%d,"metadataVersion":%d,"maxWaitMs":200,
			"runtimeConsumerCapacity":{"runtimeMaxConcurrency":1,"availableConcurrency":1}}`, answer.MemberEpoch, answer.MetadataVersion)
		if code := send(t, s, "POST", path+"/groups/billing/members/m1/heartbeat", beat, &answer); code != 200 || answer.Status != protocol.StatusOK {
			t.Fatalf("heartbeat: %d %+v", code, answer)
		}
	}
	var routing protocol.Routing
	if code := send(t, s, "GET", path+"/routing", "", &routing); code != 200 || routing.ShardCount != 2 {
		t.Errorf("routing: %d %+v", code, routing)
	}
	if code := send(t, s, "PUT", path, `{"shardCount":-1}`, nil); code != 400 {
		t.Errorf("refused: %d", code)
	}
	var events protocol.AuditList
	send(t, s, "GET", "/coord/v1/audit/events?streamPrefix="+prefix, "", &events)
	var seen []string
	for _, ev := range events.Events {
		seen = append(seen, fmt.Sprintf("%s %d", ev.Action, ev.Status))
	}
	if got := strings.Join(seen, ", "); got != "PUT_STREAM 400, PUT_GROUP 201, PUT_STREAM 201" {
		t.Errorf("audited: %s", got)
	}
}

func TestStartIsQuickAndReady(t *testing.T) {
	t.Parallel()
	s := start(t)
	if code := send(t, s, "GET", "/readyz", "", nil); code != 200 {
		t.Errorf("readyz right after Start: %d", code)
	}
	if host, _, err := net.SplitHostPort(s.Addr()); err != nil || host != "127.0.0.1" {
		t.Errorf("Addr: %q", s.Addr())
	}
}

// While a server stops, every request that reaches it is answered, readiness is 503 from the
// beginning, and nothing listens afterwards.
func TestStopDropsNothing(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { c.ShutdownDelay = 500 * time.Millisecond })
	url := s.URL()
	prefix := redistest.Prefix(t)
	if code := send(t, s, "PUT", "/coord/v1/streams/"+prefix, `{"shardCount":1}`, nil); code != 201 {
		t.Fatalf("create: %d", code)
	}

	var draining, failed atomic.Int64
	var clients sync.WaitGroup
	// As a balancer does: its health check takes the replica out before the listener closes.
	var unready atomic.Bool
	clients.Go(func() {
		for !unready.Load() {
			resp, err := http.Get(url + "/readyz")
			if err != nil {
				failed.Add(1)
				t.Logf("readiness: %v", err)
				unready.Store(true)
				return
			}
			_ = resp.Body.Close()
			unready.Store(resp.StatusCode == http.StatusServiceUnavailable && draining.Load() > 0)
		}
	})
	for range 4 {
		clients.Go(func() {
			for !unready.Load() {
				r, err := http.NewRequest("GET", url+"/coord/v1/streams/"+prefix, nil)
				if err != nil {
					failed.Add(1)
					return
				}
				r.SetBasicAuth("admin", "admin-password")
				resp, err := http.DefaultClient.Do(r)
				switch {
				case err != nil || resp.StatusCode != 200:
					failed.Add(1)
					t.Logf("client: %v %v", err, resp)
					return
				case resp.Close:
					draining.Add(1)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	done := make(chan error, 1)
	go func() { done <- s.Stop(testContext(t)) }()
	// A request that is held for longer than the whole stop is answered when holds are released.
	var routing protocol.Routing
	send(t, s, "GET", "/coord/v1/streams/"+prefix+"/routing", "", &routing)
	began := time.Now()
	if code := send(t, s, "GET", fmt.Sprintf("/coord/v1/streams/%s/routing?version=%d&maxWaitMs=30000", prefix, routing.RoutingVersion), "", &routing); code != 200 {
		t.Errorf("held request: %d", code)
	}
	if held := time.Since(began); held > 10*time.Second {
		t.Errorf("a held request kept the server for %v", held)
	}
	if err := <-done; err != nil {
		t.Errorf("Stop: %v", err)
	}
	clients.Wait()
	if failed.Load() != 0 || draining.Load() == 0 {
		t.Errorf("%d requests failed, %d were told to close their connection", failed.Load(), draining.Load())
	}
	if _, err := http.Get(url + "/livez"); err == nil {
		t.Error("something still listens")
	}
	if err := s.Stop(testContext(t)); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
}

func TestStartFailures(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	valid := server.Config{Listen: "127.0.0.1:0", RedisURL: redistest.Shared(t).URL(), AdminPassword: "x"}

	cfg := valid
	cfg.Listen = taken.Addr().String()
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a taken address: %v", err)
	}
	if err := s.Start(testContext(t)); err == nil {
		t.Error("a server started twice")
	}

	closed := taken.Addr().String()
	taken.Close()
	cfg = valid
	cfg.RedisURL, cfg.StartTimeout = "redis://"+closed, 300*time.Millisecond
	if s, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t)); err == nil || !strings.Contains(err.Error(), "redis") {
		t.Errorf("no redis: %v", err)
	}
	cfg.StartUnready = true
	if s, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(testContext(t)); err != nil {
		t.Fatalf("StartUnready: %v", err)
	}
	if code := send(t, s, "GET", "/readyz", "", nil); code != 503 {
		t.Errorf("readyz without redis: %d", code)
	}
	if code := send(t, s, "GET", "/livez", "", nil); code != 200 {
		t.Errorf("livez without redis: %d", code)
	}
	if err := s.Stop(testContext(t)); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{AdminPassword: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(testContext(t)); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := s.Start(testContext(t)); err == nil {
		t.Error("started after Stop")
	}
	if s.Addr() != "" || s.URL() != "" {
		t.Errorf("listens on %q", s.Addr())
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, err := server.New(server.Config{Listen: "127.0.0.1:0", RedisURL: redistest.Shared(t).URL(), KeyPrefix: redistest.KeyPrefix(t), AdminPassword: "x"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	deadline := time.Now().Add(20 * time.Second)
	for s.URL() == "" {
		if time.Now().After(deadline) {
			t.Fatal("Run did not start in 20 s")
		}
		select {
		case err := <-done:
			t.Fatalf("Run ended early: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*server.Config)
		says   string
	}{
		"no user":           {func(c *server.Config) { c.AdminPassword = "" }, "no user is configured"},
		"user, no password": {func(c *server.Config) { c.AdminUsername, c.AdminPassword = "ann", "" }, "AdminPassword: is required"},
		"listen":            {func(c *server.Config) { c.Listen = "8080" }, `Listen: "8080"`},
		"half TLS":          {func(c *server.Config) { c.TLSCertFile = "x" }, "TLSKeyFile"},
		"redis":             {func(c *server.Config) { c.RedisURL = "http://:secret@x" }, "RedisURL: is not a usable URL"},
		"redis port":        {func(c *server.Config) { c.RedisURL = "redis://u:secret@x:port" }, "RedisURL: is not a usable URL"},
		"cluster host":      {func(c *server.Config) { c.RedisURL = "redis+cluster://u:secret@a,b:1" }, "RedisURL"},
		"cluster database":  {func(c *server.Config) { c.RedisURL = "redis+cluster://a:1,b:1/3" }, "RedisURL"},
		"sentinel master":   {func(c *server.Config) { c.RedisURL = "redis+sentinel://a:1/0" }, "RedisURL"},
		"key prefix":        {func(c *server.Config) { c.KeyPrefix = "a{b}" }, "KeyPrefix"},
		"token secret":      {func(c *server.Config) { c.TokenSecret = "secret" }, "TokenSecret: has 6 bytes; at least 32"},
		"token life":        {func(c *server.Config) { c.TokenTTL = time.Second }, "TokenTTL: is 1s; it must be between 1m0s"},
		"proxies":           {func(c *server.Config) { c.TrustedProxies = []string{"proxy"} }, `TrustedProxies: "proxy"`},
		"body limit":        {func(c *server.Config) { c.BodyLimit = 1 }, "BodyLimit: is 1; it must be between"},
		"shard count":       {func(c *server.Config) { c.DefaultShardCount = 20000 }, "DefaultShardCount"},
		"delay":             {func(c *server.Config) { c.ShutdownDelay = -1 }, "ShutdownDelay"},
		"coordinator id":    {func(c *server.Config) { c.CoordinatorID = "a b" }, "CoordinatorID"},
		"role":              {func(c *server.Config) { c.Users = []server.User{{"a", "p", []string{"KING"}}} }, "KING"},
	} {
		cfg := server.Config{AdminUsername: "admin", AdminPassword: "p"}
		c.change(&cfg)
		if name == "no user" {
			cfg.AdminUsername = ""
		}
		_, err := server.New(cfg)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
}

func TestRedisURLForms(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "redis.sock")
	if err := os.WriteFile(socket, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"redis://h:6379/2", "rediss://user:p%40ss@h:6380", "h:6379", "unix://" + socket, "h1:1,h2:2,h3:3",
		"redis+cluster://user:pass@h1:1,h2:2?pool_size=7", "rediss+cluster://h1:1", "redis://h1:1,h2:2",
		"redis+sentinel://u:p@s1:26379,s2:26379/1?master=mymaster",
	} {
		s, err := server.New(server.Config{RedisURL: url, InsecureAllowAnonymous: true})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := s.Stop(testContext(t)); err != nil {
			t.Errorf("%s: Stop: %v", url, err)
		}
	}
}

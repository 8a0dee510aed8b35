package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs handler as a coordinator.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

func connect(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, code protocol.Code) {
	answer(w, code.HTTPStatus(), protocol.NewError(code, "no"))
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]client.Config{
		"no endpoint":             {},
		"no scheme":               {Endpoints: []string{"localhost:8080"}},
		"other scheme":            {Endpoints: []string{"redis://localhost"}},
		"credentials in the URL":  {Endpoints: []string{"http://admin:secret@localhost"}},
		"query":                   {Endpoints: []string{"http://localhost?a=b"}},
		"token and name":          {Endpoints: []string{"http://localhost"}, Token: "t", Username: "u"},
		"password without a name": {Endpoints: []string{"http://localhost"}, Password: "secret"},
		"negative time-out":       {Endpoints: []string{"http://localhost"}, CallTimeout: -1},
	} {
		_, err := client.New(cfg)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	var seen *http.Request
	var body []byte
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ = io.ReadAll(r.Body)
		prefix := "a b/ü"
		if r.Method == http.MethodGet {
			prefix = "s"
		}
		answer(w, http.StatusAccepted, protocol.Stream{StreamPrefix: prefix, Status: protocol.StreamStatus{ActiveReshardingID: "r1"}})
	})
	n := int64(8)
	t.Run("put", func(t *testing.T) {
		c := connect(t, client.Config{Endpoints: []string{url + "/gate/"}, Username: "u", Password: "p", UserAgent: "mine/1"})
		got, err := c.PutStream(t.Context(), "a b/ü", protocol.PutStreamRequest{ShardCount: &n}, client.Call{IfMatch: 7, IdempotencyKey: "k", RequestID: "q"})
		if err != nil || !got.Resharding || got.Created || got.ReshardingID != "r1" {
			t.Fatalf("%+v %v", got, err)
		}
		if got, want := seen.URL.EscapedPath(), "/gate/coord/v1/streams/a%20b%2F%C3%BC"; got != want {
			t.Errorf("path %s, want %s", got, want)
		}
		user, pass, _ := seen.BasicAuth()
		for name, want := range map[string]string{
			"If-Match": `"7"`, "Idempotency-Key": "k", "X-Request-Id": "q",
			"Content-Type": "application/json", "User-Agent": "mine/1 redis-stream-coordinator-go",
		} {
			if got := seen.Header.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if user != "u" || pass != "p" || !strings.Contains(string(body), `"shardCount":8`) {
			t.Errorf("credentials %q %q, body %s", user, pass, body)
		}
	})
	t.Run("bearer and query", func(t *testing.T) {
		c := connect(t, client.Config{Endpoints: []string{url}, Token: "tok"})
		if _, err := c.Routing(t.Context(), "s", client.RoutingQuery{Version: 3, MaxWait: 2 * time.Second, ProducerID: "p", Fenced: true}); err != nil {
			t.Fatal(err)
		}
		if got := seen.URL.RawQuery; got != "fenced=true&maxWaitMs=2000&producerId=p&version=3" {
			t.Errorf("query %s", got)
		}
		if got := seen.Header.Get("Authorization"); got != "Bearer tok" {
			t.Errorf("authorization %q", got)
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name      string
		handler   http.HandlerFunc
		is        error
		isNot     error
		permanent bool
	}{
		{"404 of a coordinator", func(w http.ResponseWriter, _ *http.Request) { refuse(w, protocol.CodeStreamNotFound) }, protocol.ErrStreamNotFound, client.ErrUnexpectedAnswer, true},
		{"404 of a proxy", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(404)
			_, _ = w.Write([]byte("<html>STREAM_NOT_FOUND</html>"))
		}, client.ErrUnexpectedAnswer, protocol.ErrStreamNotFound, false},
		{"JSON without a code", func(w http.ResponseWriter, _ *http.Request) { answer(w, 404, map[string]string{"message": "x"}) }, client.ErrUnexpectedAnswer, protocol.ErrStreamNotFound, false},
		{"truncated JSON", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"streamPrefix": "s`))
		}, client.ErrUnexpectedAnswer, nil, false},
		{"body cut short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"streamPrefix": "s"`))
		}, client.ErrUnexpectedAnswer, nil, false},
		{"HTML with 200", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<html>login</html>`))
		}, client.ErrUnexpectedAnswer, nil, false},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, client.ErrUnexpectedAnswer, nil, false},
		{"401", func(w http.ResponseWriter, _ *http.Request) { refuse(w, protocol.CodeUnauthenticated) }, protocol.NewError(protocol.CodeUnauthenticated, ""), nil, true},
		{"403", func(w http.ResponseWriter, _ *http.Request) { refuse(w, protocol.CodeForbidden) }, protocol.NewError(protocol.CodeForbidden, ""), nil, true},
		{"500", func(w http.ResponseWriter, _ *http.Request) { refuse(w, protocol.CodeInternal) }, protocol.NewError(protocol.CodeInternal, ""), nil, false},
		{"429", func(w http.ResponseWriter, _ *http.Request) { refuse(w, protocol.CodeRateLimited) }, protocol.NewError(protocol.CodeRateLimited, ""), nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, client.Config{Endpoints: []string{serve(t, tc.handler)}, Retries: -1, Password: "hunter2", Username: "u"})
			_, err := c.Stream(t.Context(), "s")
			if !errors.Is(err, tc.is) || (tc.isNot != nil && errors.Is(err, tc.isNot)) {
				t.Fatalf("error %v", err)
			}
			if client.Permanent(err) != tc.permanent {
				t.Errorf("permanent is %v", !tc.permanent)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	n := int64(1)
	put := func(c *client.Client, call client.Call) error {
		_, err := c.PutStream(context.Background(), "s", protocol.PutStreamRequest{ShardCount: &n}, call)
		return err
	}
	cut := func(w http.ResponseWriter) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}
	for _, tc := range []struct {
		name  string
		do    func(*client.Client) error
		fault func(http.ResponseWriter)
		calls int32
		fails bool
	}{
		{"a read", func(c *client.Client) error { _, err := c.Stream(context.Background(), "s"); return err }, cut, 2, false},
		{"a read whose refusal is cut short", func(c *client.Client) error { _, err := c.Stream(context.Background(), "s"); return err }, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"status":"NOT_FOUND"`)) // the rest is what is missing
		}, 2, false},
		{"a declaration", func(c *client.Client) error { return put(c, client.Call{}) }, cut, 2, false},
		{"a declaration against a generation", func(c *client.Client) error { return put(c, client.Call{IfMatch: 1}) }, cut, 1, true},
		{"the same, refused with 503", func(c *client.Client) error { return put(c, client.Call{IfMatch: 1}) }, func(w http.ResponseWriter) { refuse(w, protocol.CodeTerminating) }, 2, false},
		{"a mutation whose answer is lost", func(c *client.Client) error {
			_, err := c.Rollback(context.Background(), "s", "r", protocol.RollbackRequest{}, client.Call{})
			return err
		}, cut, 1, true},
		{"a conflict", func(c *client.Client) error { return put(c, client.Call{}) }, func(w http.ResponseWriter) { refuse(w, protocol.CodeActiveMigration) }, 1, true},
		{"a heartbeat", func(c *client.Client) error {
			_, _, err := c.Heartbeat(context.Background(), "s", "g", protocol.HeartbeatRequest{MemberID: "m"})
			return err
		}, func(w http.ResponseWriter) { refuse(w, protocol.CodeTerminating) }, 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			c := connect(t, client.Config{Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 1 {
					tc.fault(w)
					return
				}
				answer(w, http.StatusOK, protocol.Stream{StreamPrefix: "s"})
			})}})
			if err := tc.do(c); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			if got := calls.Load(); got != tc.calls {
				t.Errorf("%d calls, want %d", got, tc.calls)
			}
		})
	}
	t.Run("Retry-After is obeyed", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int32
		c := connect(t, client.Config{Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.Header().Set("Retry-After", "1")
				refuse(w, protocol.CodeRateLimited)
				return
			}
			answer(w, http.StatusOK, protocol.Stream{StreamPrefix: "s"})
		})}})
		begin := time.Now()
		if _, err := c.Stream(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d < time.Second {
			t.Errorf("repeated after %v", d)
		}
	})
	t.Run("not beyond the deadline", func(t *testing.T) {
		t.Parallel()
		c := connect(t, client.Config{Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			refuse(w, protocol.CodeRateLimited)
		})}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		begin := time.Now()
		_, err := c.Stream(ctx, "s")
		var e *client.Error
		if !errors.As(err, &e) || e.RetryAfter != time.Minute || time.Since(begin) > 4*time.Second {
			t.Errorf("error %v after %v", err, time.Since(begin))
		}
	})
}

func TestFailover(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + l.Addr().String()
	_ = l.Close()
	var calls atomic.Int32
	alive := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		answer(w, http.StatusOK, map[string]string{"streamPrefix": "s", "memberId": "m"})
	})
	c := connect(t, client.Config{Endpoints: []string{dead, alive}})
	for range 3 {
		begin := time.Now()
		if _, err := c.Stream(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > time.Second {
			t.Errorf("took %v", d)
		}
	}
	if got := calls.Load(); got != 3 {
		t.Errorf("%d calls reached the one that lives", got)
	}

	// A heartbeat is sent once; the next one goes elsewhere.
	c = connect(t, client.Config{Endpoints: []string{dead, alive}})
	if _, _, err := c.Heartbeat(t.Context(), "s", "g", protocol.HeartbeatRequest{MemberID: "m"}); err == nil {
		t.Error("the first heartbeat reached somebody")
	}
	if _, _, err := c.Heartbeat(t.Context(), "s", "g", protocol.HeartbeatRequest{MemberID: "m"}); err != nil {
		t.Errorf("the second heartbeat: %v", err)
	}
}

// A call that is given up because a newer one replaces it says nothing about the endpoint.
func TestCancelledCallKeepsTheEndpoint(t *testing.T) {
	t.Parallel()
	var first, second atomic.Int32
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if first.Add(1) == 1 {
			_, _ = io.Copy(io.Discard, r.Body) // only then the server notices that the client goes
			<-r.Context().Done()
			return
		}
		answer(w, http.StatusOK, protocol.HeartbeatResponse{MemberID: "m"})
	})
	b := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		second.Add(1)
		answer(w, http.StatusOK, protocol.HeartbeatResponse{MemberID: "m"})
	})
	c := connect(t, client.Config{Endpoints: []string{a, b}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := c.Heartbeat(ctx, "s", "g", protocol.HeartbeatRequest{MemberID: "m", MaxWaitMs: 60000})
		done <- err
	}()
	for deadline := time.Now().Add(5 * time.Second); first.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the call did not arrive")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	if _, _, err := c.Heartbeat(t.Context(), "s", "g", protocol.HeartbeatRequest{MemberID: "m"}); err != nil {
		t.Fatal(err)
	}
	if second.Load() != 0 {
		t.Error("the next call went to the other endpoint")
	}
}

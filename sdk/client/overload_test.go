package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func rollback(ctx context.Context, c *client.Client, key string) error {
	_, err := c.Rollback(ctx, "s", "r", protocol.RollbackRequest{}, client.Call{IdempotencyKey: key})
	return err
}

func TestOverloadBudget(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys := map[string]int{}
	c := connect(t, client.Config{Retries: -1, OverloadBudget: 600 * time.Millisecond, Endpoints: []string{serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		refuse(w, protocol.CodeTerminating)
	})}})
	begin := time.Now()
	err := rollback(t.Context(), c, "k1")
	var e *client.Error
	if !errors.As(err, &e) || e.StatusCode != 503 || e.Attempts < 3 || !strings.Contains(err.Error(), "attempts in") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if len(keys) != 1 || keys["k1"] != e.Attempts {
		t.Errorf("keys %v, %d attempts", keys, e.Attempts)
	}
}

// A Retry-After of a day is no reason to sleep that long, nor to give up at once.
func TestRetryAfterIsCapped(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"seconds": "86400", "date": time.Now().Add(24 * time.Hour).UTC().Format(http.TimeFormat)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			c := connect(t, client.Config{OverloadBudget: 800 * time.Millisecond, Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if calls.Add(1) == 1 {
					w.Header().Set("Retry-After", value)
					refuse(w, protocol.CodeRateLimited)
					return
				}
				answer(w, http.StatusOK, protocol.Stream{StreamPrefix: "s"})
			})}})
			begin := time.Now()
			if _, err := c.Stream(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took < 400*time.Millisecond || took > 10*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Who is no coordinator may have passed a mutation on before it answered 503.
func TestBare503(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{"": 1, "k": 2} {
		var calls atomic.Int32
		c := connect(t, client.Config{Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			answer(w, http.StatusOK, protocol.Resharding{ReshardingID: "r"})
		})}})
		if err := rollback(t.Context(), c, key); (err != nil) != (want == 1) || calls.Load() != want {
			t.Errorf("key %q: %d calls, %v", key, calls.Load(), err)
		}
	}
}

// All calls of a client slow down together, and all get through.
func TestCallsHoldBackTogether(t *testing.T) {
	t.Parallel()
	const perSecond, callers, callsEach = 20, 10, 4
	var mu sync.Mutex
	var tokens, refusals = float64(perSecond), 0
	last := time.Now()
	c := connect(t, client.Config{Retries: -1, OverloadBudget: 30 * time.Second, Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		tokens = min(perSecond, tokens+now.Sub(last).Seconds()*perSecond)
		last = now
		if tokens < 1 {
			refusals++
			w.Header().Set("Retry-After", "1")
			refuse(w, protocol.CodeRateLimited)
			return
		}
		tokens--
		answer(w, http.StatusOK, protocol.Stream{StreamPrefix: "s"})
	})}})
	begin := time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range callsEach {
				if _, err := c.Stream(t.Context(), "s"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
	if refusals == 0 || refusals > callers*callsEach {
		t.Errorf("%d refusals", refusals)
	}
}

func TestGrace(t *testing.T) {
	t.Parallel()
	t.Run("a request under way is finished", func(t *testing.T) {
		t.Parallel()
		arrived, release := make(chan struct{}), make(chan struct{})
		c := connect(t, client.Config{Endpoints: []string{serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			close(arrived)
			<-release
			answer(w, http.StatusOK, protocol.Resharding{ReshardingID: "r"})
		})}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel(); close(release) }()
		if _, err := c.Rollback(ctx, "s", "r", protocol.RollbackRequest{}, client.Call{Grace: time.Minute}); err != nil {
			t.Error(err)
		}
	})
	t.Run("no other one is sent", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		c := connect(t, client.Config{OverloadBudget: time.Minute, Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.Header().Set("Retry-After", "20")
			refuse(w, protocol.CodeRateLimited)
			cancel()
		})}})
		begin := time.Now()
		_, err := c.Rollback(ctx, "s", "r", protocol.RollbackRequest{}, client.Call{Grace: time.Minute})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, protocol.NewError(protocol.CodeRateLimited, "")) || calls.Load() != 1 {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestTokenSourceAndObserve(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var tokens []string
	var attempts []client.Attempt
	n := 0
	c := connect(t, client.Config{
		TokenSource: func() (string, error) {
			mu.Lock()
			defer mu.Unlock()
			n++
			if n == 3 {
				return "", errors.New("file is gone")
			}
			return []string{"first", "second"}[n-1], nil
		},
		Observe: func(_ context.Context, a client.Attempt) {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, a)
		},
		Endpoints: []string{serve(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			tokens = append(tokens, r.Header.Get("Authorization"))
			first := len(tokens) == 1
			mu.Unlock()
			if first {
				refuse(w, protocol.CodeTerminating)
				return
			}
			answer(w, http.StatusOK, map[string]any{"streamPrefix": "s", "authenticated": true})
		})},
	})
	if _, err := c.Stream(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tokens, []string{"Bearer first", "Bearer second"}) {
		t.Errorf("tokens %q", tokens)
	}
	if len(attempts) != 2 || attempts[0].StatusCode != 503 || attempts[0].Err == nil || attempts[1].Number != 2 || attempts[1].StatusCode != 200 || attempts[1].Err != nil {
		t.Errorf("attempts %+v", attempts)
	}
	if _, err := c.Stream(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "file is gone") {
		t.Errorf("error %v", err)
	}
	if _, err := c.SessionOf(t.Context(), "other"); err != nil || tokens[2] != "Bearer other" {
		t.Errorf("%v, tokens %q", err, tokens)
	}
	if _, err := client.New(client.Config{Endpoints: []string{"http://c"}, Token: "t", TokenSource: func() (string, error) { return "", nil }}); err == nil {
		t.Error("two kinds of credentials were taken")
	}
}

// A replica that shuts down refuses calls for a while and is then gone for a moment: the refusals
// have not used up the retries that are for that.
func TestOverloadUsesUpNoRetries(t *testing.T) {
	t.Parallel()
	const retries, refusals = 1, 4
	var calls atomic.Int32
	c := connect(t, client.Config{Retries: retries, OverloadBudget: 30 * time.Second, Endpoints: []string{serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n := calls.Add(1); {
		case n <= refusals:
			refuse(w, protocol.CodeTerminating)
		case n == refusals+1:
			w.WriteHeader(http.StatusBadGateway)
		default:
			answer(w, http.StatusOK, protocol.Stream{StreamPrefix: "s"})
		}
	})}})
	if _, err := c.Stream(t.Context(), "s"); err != nil || calls.Load() != refusals+2 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// Behind the grace stands why the caller's context has ended: time that is over is no interruption.
func TestGraceIsOver(t *testing.T) {
	t.Parallel()
	given, interrupt := context.WithCancel(t.Context())
	c := connect(t, client.Config{Endpoints: []string{serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client has gone
		if strings.HasSuffix(r.URL.Path, "/interrupted/rollback") {
			interrupt()
		}
		<-r.Context().Done()
	})}})
	late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, tt := range []struct {
		ctx       context.Context
		id        string
		want, not error
	}{{late, "late", context.DeadlineExceeded, context.Canceled}, {given, "interrupted", context.Canceled, context.DeadlineExceeded}} {
		_, err := c.Rollback(tt.ctx, "s", tt.id, protocol.RollbackRequest{}, client.Call{Grace: 20 * time.Millisecond})
		if !errors.Is(err, tt.want) || errors.Is(err, tt.not) {
			t.Errorf("%v, want %v", err, tt.want)
		}
	}
}

package httpapi

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func asError(err error, target **protocol.Error) bool { return errors.As(err, target) }

func TestReadiness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if got := b.do("GET", "/readyz", "", noAuth); got.Code != 200 {
		t.Errorf("ready: %d", got.Code)
	}
	b.engine.notReady = protocol.NewError(protocol.CodeRedisUnavailable, "silent")
	if got := b.do("GET", "/readyz", "", noAuth); got.Code != 503 {
		t.Errorf("redis away: %d", got.Code)
	}
	var state protocol.Health
	b.do("GET", Base+"/monitoring/health", "").json(&state)
	if state.Status != "DEGRADED" || state.Redis != "DOWN" {
		t.Errorf("health: %+v", state)
	}
	b.engine.notReady = nil
	b.h.Drain()
	if got := b.do("GET", "/readyz", "", noAuth); got.Code != 503 || !strings.Contains(got.Body.String(), "COORDINATOR_TERMINATING") {
		t.Errorf("draining: %d %s", got.Code, got.Body)
	}
	if got := b.do("GET", "/livez", "", noAuth); got.Code != 200 {
		t.Errorf("alive while draining: %d", got.Code)
	}
	if got := b.do("PUT", Base+"/streams/a", `{"shardCount":1}`); got.Code != 200 || got.Header().Get("Connection") != "close" {
		t.Errorf("while draining: %d, Connection %q", got.Code, got.Header().Get("Connection"))
	}
}

// Held requests are answered, truly and at once, when they are released; later ones are not held.
func TestReleaseHolds(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(b *bundle) answer{
		"routing": func(b *bundle) answer { return b.do("GET", Base+"/streams/a/routing?version=4&maxWaitMs=50000", "") },
		"resharding": func(b *bundle) answer {
			return b.do("GET", Base+"/streams/a/reshardings/r?seenPhase=DRAINING&maxWaitMs=50000", "")
		},
		"heartbeat": func(b *bundle) answer {
			return b.do("POST", Base+"/streams/a/groups/g/members/m1/heartbeat", strings.Replace(fullBeat, `"maxWaitMs":1000`, `"maxWaitMs":50000`, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			waits := make(chan time.Duration, 8)
			b.engine.hold = func(ctx contextOf, wait time.Duration) {
				waits <- wait
				if wait > 0 {
					<-ctx.Done()
				}
			}
			next := func() time.Duration {
				t.Helper()
				select {
				case wait := <-waits:
					return wait
				case <-time.After(5 * time.Second):
					t.Fatal("the engine was not asked within 5 s")
					return 0
				}
			}
			done := make(chan int, 1)
			go func() { done <- request(b).Code }()
			if wait := next(); wait != 50*time.Second {
				t.Fatalf("held for %v", wait)
			}
			b.h.ReleaseHolds()
			select {
			case code := <-done:
				if code != 200 {
					t.Errorf("answered with %d", code)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("still held 5 s after the release")
			}
			if wait := next(); wait != 0 {
				t.Errorf("asked again with a wait of %v", wait)
			}
			if got := request(b); got.Code != 200 {
				t.Errorf("after the release: %d", got.Code)
			}
			if wait := next(); wait != 0 {
				t.Errorf("held after the release, for %v", wait)
			}
		})
	}
}

// What clients make up adds no series.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	series := func() int {
		families, err := b.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	b.do("GET", "/x", "")
	b.do("GET", Base+"/streams/x", "")
	b.do("BREW0", "/x", "")
	before := series()
	for i := range 1000 {
		for _, target := range []string{fmt.Sprintf("GET /scan/%d", i), fmt.Sprintf("GET %s/streams/s%d", Base, i), fmt.Sprintf("BREW%d /x", i)} {
			method, path, _ := strings.Cut(target, " ")
			r := httptest.NewRequest(method, path, nil)
			as("root")(r)
			b.h.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	if grown := series() - before; grown > 5 {
		t.Errorf("%d new series", grown)
	}
}

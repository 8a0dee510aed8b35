package provider

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const shardCount = "redisstream_shard_count"

// orders is the usual configuration, with changes.
func orders(count any, changes ...attrs) attrs {
	a := attrs{"stream_prefix": "orders", "shard_count": count, "deletion_protection": false}
	for _, c := range changes {
		maps.Copy(a, c)
	}
	return a
}

func setup(t *testing.T) (*core, *fakeCoordinator) {
	t.Helper()
	f := newFake(t)
	return newCore(t, attrs{"endpoint": f.URL, "username": "terraform", "password": "correct-horse-battery"}), f
}

// eventually polls cond until it holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !cond(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond) // between two looks
	}
}

// changes says whether a request is a mutation and no dry run.
func changes(r *http.Request) bool {
	return r.Method == http.MethodPut && !r.URL.Query().Has("dryRun")
}

func wantField(t *testing.T, i instance, name, want string) {
	t.Helper()
	if got := i.field(t, name); got != want {
		t.Errorf("%s is %s, want %s", name, got, want)
	}
}

func TestShardCountLifecycle(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	wantField(t, i, "shard_count", "2")
	wantField(t, i, "publish_state", "OPEN")
	wantField(t, i, "last_resharding.id", "rs-1")
	wantField(t, i, "last_resharding.phase", "COMPLETED")
	wantField(t, i, "strategy", "quiesce")
	wantField(t, i, "pause_timeout", "5m")

	i = c.must(c.refresh(i), orders(4))
	wantField(t, i, "shard_count", "4")
	i = c.must(c.refresh(i), orders(3, attrs{"retire": "archive"}))
	wantField(t, i, "shard_count", "3")
	wantField(t, i, "last_resharding.from_shard_count", "4")
	if p := c.plan(c.refresh(i), orders(3, attrs{"retire": "archive"})); !p.noop() {
		t.Errorf("plan after apply is not empty: %s", p.state)
	}

	after := c.must(c.refresh(i), nil)
	if !after.state.IsNull() || f.streams["orders"] != nil {
		t.Errorf("destroyed, but state is %s and the coordinator has %v", after.state, f.streams["orders"])
	}
	for _, r := range f.mutations() {
		for _, h := range []string{"Idempotency-Key", "X-Request-Id"} {
			if r.header.Get(h) == "" {
				t.Errorf("%s %s has no %s", r.method, r.path, h)
			}
		}
		for _, want := range []string{`"requestedBy":"terraform:`, `"reason":"terraform: `} {
			if !strings.Contains(r.body, want) {
				t.Errorf("%s %s: body has no %s: %s", r.method, r.path, want, r.body)
			}
		}
	}
}

// What the plan shows as known after apply: what a resharding alters when there is one, nothing
// otherwise.
func TestShardCountPlan(t *testing.T) {
	c, f := setup(t)
	base := orders(2, attrs{"reason": "first"})
	i := c.must(c.none(shardCount), base)
	computed := []string{"metadata_version", "layout_epoch", "publish_state", "last_resharding"}

	for name, change := range map[string]attrs{
		"shard_count":   {"shard_count": 3},
		"strategy":      {"strategy": "online"},
		"drain_scope":   {"drain_scope": "removed"},
		"retire":        {"retire": "archive"},
		"pause_timeout": {"pause_timeout": "10s"},
		"drain_timeout": {"drain_timeout": "10s"},
		"on_timeout":    {"on_timeout": "fail"},
		"ignore_groups": {"ignore_groups": []string{"old"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.plan(i, orders(2, base, change))
			if p.noop() || p.replace != 0 || failed(p.diags) {
				t.Fatalf("want an update in place, got noop=%v replace=%d %q", p.noop(), p.replace, errorsOf(p.diags))
			}
			for _, attribute := range computed {
				if fields(t, p.state)[attribute].IsKnown() {
					t.Errorf("%s is known before the apply", attribute)
				}
			}
			if !fields(t, p.state)["shards"].IsFullyKnown() {
				t.Error("the plan does not show the shards")
			}
			// Versions move between plan and apply, as with -refresh=false.
			f.set(func() { f.streams["orders"].MetadataVersion += 7 })
			after, diags := c.apply(t.Context(), p)
			c.ok(diags)
			after = c.refresh(after)
			if p := c.plan(after, orders(2, base, change)); !p.noop() {
				t.Errorf("plan after apply is not empty: %s", p.state)
			}
			i = c.must(after, base)
		})
	}

	for name, change := range map[string]attrs{
		"reason":                {"reason": "second"},
		"reason left out":       {"reason": nil},
		"duration spelt anew":   {"pause_timeout": "300s"},
		"default spelt out":     {"strategy": "quiesce"},
		"volatile values":       {},
		"reason and a spelling": {"reason": "second", "drain_timeout": "60m"},
	} {
		t.Run(name, func(t *testing.T) {
			f.set(func() {
				f.streams["orders"].MetadataVersion++
				f.streams["orders"].Status.PublishState = protocol.PublishPaused
			})
			i = c.refresh(i)
			if p := c.plan(i, orders(2, base, change)); !p.noop() {
				t.Errorf("plan is not empty: %s", p.state)
			}
		})
	}

	t.Run("deletion_protection", func(t *testing.T) {
		before := len(f.mutations())
		p := c.plan(i, orders(2, base, attrs{"deletion_protection": true, "timeouts": attrs{"update": "5s"}}))
		if p.noop() || !p.state.IsFullyKnown() {
			t.Errorf("want a change with nothing unknown, got %s", p.state)
		}
		i, diags := c.apply(t.Context(), p)
		c.ok(diags)
		wantField(t, i, "deletion_protection", "true")
		if n := len(f.mutations()) - before; n != 0 {
			t.Errorf("%d requests changed something", n)
		}
	})

	// Its removal is planned as that of a destroy, also when the new prefix is known only after apply:
	// Terraform destroys before it knows.
	for name, prefix := range map[string]any{"stream_prefix replaces": "others", "a prefix known after apply replaces": tftypes.UnknownValue} {
		t.Run(name, func(t *testing.T) {
			p := c.plan(i, orders(2, base, attrs{"stream_prefix": prefix}))
			if w := strings.Join(warningsOf(p.diags), "\n"); p.replace != 1 || failed(p.diags) || !strings.Contains(w, `Destroying stream "orders"`) {
				t.Errorf("replaces %d, %q, %q", p.replace, errorsOf(p.diags), w)
			}
			kept := c.must(i, orders(2, base, attrs{"deletion_protection": true}))
			oneError(t, c.plan(kept, orders(2, base, attrs{"stream_prefix": prefix})).diags, "deletion_protection = false")
		})
	}

	t.Run("scale-in says what becomes of the data", func(t *testing.T) {
		p := c.plan(i, orders(2, base, attrs{"shard_count": 1, "retire": "archive"}))
		if w := warningsOf(p.diags); len(w) != 1 || !strings.Contains(w[0], "removed: shard 1; a removed shard is archived") || !strings.Contains(w[0], "50 %") {
			t.Errorf("warnings: %q", w)
		}
	})
}

func TestShardCountValidation(t *testing.T) {
	c, _ := setup(t)
	for _, tt := range []struct {
		name   string
		config attrs
		words  []string
	}{
		{"shard_count -1", attrs{"shard_count": -1}, []string{"shard_count", "-1", "between 1 and 16384"}},
		{"shard_count 0", attrs{"shard_count": 0}, []string{"shard_count", "destroy the resource"}},
		{"shard_count 2147483648", attrs{"shard_count": 2147483648}, []string{"shard_count", "2147483648", "16384"}},
		{"prefix with braces", attrs{"stream_prefix": "{orders}"}, []string{"stream_prefix", "braces"}},
		{"prefix with spaces", attrs{"stream_prefix": "my orders"}, []string{"stream_prefix", "white space"}},
		{"prefix with a slash", attrs{"stream_prefix": "a/b"}, []string{"stream_prefix", "slash"}},
		{"prefix blank", attrs{"stream_prefix": ""}, []string{"stream_prefix", "blank"}},
		{"prefix long", attrs{"stream_prefix": strings.Repeat("x", 257)}, []string{"stream_prefix", "257", "256"}},
		{"unknown strategy", attrs{"strategy": "yolo"}, []string{"strategy", "yolo", "quiesce, online"}},
		{"strategy in upper case", attrs{"strategy": "QUIESCE"}, []string{"strategy", "quiesce, online"}},
		{"unknown drain_scope", attrs{"drain_scope": "some"}, []string{"drain_scope", "all, removed"}},
		{"unknown retire", attrs{"retire": "keep"}, []string{"retire", "delete, archive"}},
		{"unknown on_timeout", attrs{"on_timeout": "panic"}, []string{"on_timeout", "rollback, fail"}},
		{"pause_timeout without a unit", attrs{"pause_timeout": "30"}, []string{"pause_timeout", "unit"}},
		{"pause_timeout short", attrs{"pause_timeout": "1ms"}, []string{"pause_timeout", "100ms", "24h"}},
		{"drain_timeout long", attrs{"drain_timeout": "200h"}, []string{"drain_timeout", "168h"}},
		{"pause_timeout fine", attrs{"pause_timeout": "1000000001ns"}, []string{"pause_timeout", "millisecond"}},
		{"reason long", attrs{"reason": strings.Repeat("x", 1025)}, []string{"reason", "1024"}},
		{"no time to create", attrs{"timeouts": attrs{"create": "0s"}}, []string{"timeouts.create", "0s", "longer than nothing"}},
		{"less than no time to update", attrs{"timeouts": attrs{"update": "-1m"}}, []string{"timeouts.update", "-1m", "longer than nothing"}},
		{"ignore_groups", attrs{"ignore_groups": []string{"a b"}}, []string{"ignore_groups", "white space"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			oneError(t, c.validate(shardCount, orders(2, tt.config)), tt.words...)
		})
	}
	c.ok(c.validate(shardCount, orders(tftypes.UnknownValue, attrs{"stream_prefix": tftypes.UnknownValue, "pause_timeout": tftypes.UnknownValue})))
	c.ok(c.validate(shardCount, orders(16384, attrs{"pause_timeout": "1h30m", "stream_prefix": "ünïcode%2F:x"})))
}

// Only the coordinator's own word that there is no such stream removes it from the state.
func TestShardCountIsWhole(t *testing.T) {
	c, _ := setup(t)
	for value, shown := range map[float64]string{1.5: "1.5", 1e30: "1e+30", -0.25: "-0.25"} {
		n := tftypes.NewValue(tftypes.Number, big.NewFloat(value))
		oneError(t, c.validate(shardCount, orders(n)), "is "+shown, "whole number between 1 and 16384")
	}
}

func TestT4ReadBelievesOnlyTheCode(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	answer := func(status int, contentType, body string) func(http.ResponseWriter, *http.Request, []byte) bool {
		return func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // the client may have closed already
			return true
		}
	}
	for _, tt := range []struct {
		name        string
		status      int
		contentType string
		body        string
		words       []string
	}{
		{"404 of a proxy", 404, "text/html", "<html>404 Not Found</html>", []string{"orders", "404"}},
		{"404 without a code", 404, "application/json", `{"message":"not found"}`, []string{"orders"}},
		{"404 of another kind", 404, "application/json", `{"status":"NOT_FOUND","errorCode":"NOT_FOUND","message":"no such route"}`, []string{"orders", "no such route"}},
		{"401", 401, "application/json", `{"status":"UNAUTHORIZED","errorCode":"UNAUTHENTICATED","message":"wrong credentials"}`, []string{"Authentication failed", "REDISSTREAM_PASSWORD"}},
		{"401 of a proxy", 401, "text/plain", `no`, []string{"401"}},
		{"403", 403, "application/json", `{"status":"FORBIDDEN","errorCode":"FORBIDDEN","message":"viewer"}`, []string{"Permission denied"}},
		{"500", 500, "application/json", `{"status":"INTERNAL_SERVER_ERROR","errorCode":"INTERNAL","message":"oops","requestId":"req-9"}`, []string{"oops", "req-9"}},
		{"502 of a proxy", 502, "text/html", "<html>bad gateway</html>", []string{"502"}},
		{"503", 503, "application/json", `{"status":"SERVICE_UNAVAILABLE","errorCode":"REDIS_UNAVAILABLE","message":"redis away"}`, []string{"cannot reach Redis"}},
		{"truncated", 200, "application/json", `{"streamPrefix":"orders","gener`, []string{"orders"}},
		{"empty", 200, "application/json", ``, []string{"orders"}},
		{"a page", 200, "text/html", `<html>log in</html>`, []string{"orders"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.set(func() { f.intercept = answer(tt.status, tt.contentType, tt.body) })
			after, diags := c.read(i)
			oneError(t, diags, tt.words...)
			if !after.state.Equal(i.state) {
				t.Errorf("state changed to %s", after.state)
			}
		})
	}
	f.set(func() { f.intercept = nil; delete(f.streams, "orders") })
	after, diags := c.read(i)
	c.ok(diags)
	if w := warningsOf(diags); !after.state.IsNull() || len(w) != 1 || !strings.Contains(w[0], "removed from the state") {
		t.Errorf("want it removed with a warning, got %s, %q", after.state, w)
	}
}

func TestShardCountUpdateInterrupted(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(4))
	f.set(func() { f.block = true })

	ctx, interrupt := context.WithCancel(t.Context())
	p := c.plan(i, orders(8, attrs{"strategy": "online"}))
	go func() {
		eventually(t, "the resharding is being waited for", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			last := f.requests[len(f.requests)-1]
			return strings.HasSuffix(last.path, "/reshardings/rs-2") && f.records["rs-2"] != nil
		})
		interrupt()
	}()
	started := time.Now()
	i, diags := c.apply(ctx, p)
	oneError(t, diags, "Interrupted", "rs-2", "DRAINING", "goes on", "Apply again")
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	wantField(t, i, "shard_count", "4")
	wantField(t, i, "strategy", "online") // the coordinator has it
	wantField(t, i, "last_resharding.id", "rs-2")

	i = c.refresh(i)
	wantField(t, i, "shard_count", "4")
	before := len(f.mutations())
	p = c.plan(i, orders(8, attrs{"strategy": "online"}))
	if p.noop() {
		t.Fatal("the unfinished change is not planned again")
	}
	seen := f.count("/reshardings/rs-2")
	go func() {
		eventually(t, "the second apply waits", func() bool { return f.count("/reshardings/rs-2") > seen+1 })
		f.finish(t, "orders", protocol.PhaseCompleted, "")
	}()
	i, diags = c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "shard_count", "8")
	wantField(t, i, "last_resharding.id", "rs-2")
	if n := len(f.mutations()) - before; n != 0 {
		t.Errorf("attaching sent %d mutations", n)
	}
	if ids := f.reshardingIDs(); len(ids) != 2 {
		t.Errorf("reshardings: %v", ids)
	}
	if p := c.plan(c.refresh(i), orders(8, attrs{"strategy": "online"})); !p.noop() {
		t.Errorf("plan is not empty: %s", p.state)
	}
}

// count counts the requests whose path ends so.
func (f *fakeCoordinator) count(suffix string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if strings.HasSuffix(r.path, suffix) {
			n++
		}
	}
	return n
}

// An interrupted change that has completed meanwhile needs a refresh only.
func TestShardCountFinishedMeanwhile(t *testing.T) {
	c, f := setup(t)
	config := func(n int) attrs { return orders(n, attrs{"timeouts": attrs{"update": "300ms"}}) }
	i := c.must(c.none(shardCount), config(4))
	f.set(func() { f.block = true })
	i, diags := c.apply(t.Context(), c.plan(i, config(8)))
	oneError(t, diags, "Timed out", "rs-2", "DRAINING", "shard orders:0", "billing", "1 pending", "timeouts.update", "goes on")
	wantField(t, i, "shard_count", "4")
	wantField(t, i, "last_resharding.id", "rs-2")
	f.finish(t, "orders", protocol.PhaseCompleted, "")
	i = c.refresh(i)
	wantField(t, i, "shard_count", "8")
	if p := c.plan(i, config(8)); !p.noop() {
		t.Errorf("plan is not empty: %s", p.state)
	}
}

// Once the layout has changed, removed shards are still to be drained: the change is not done,
// though the count in force is the new one.
func TestShardCountInterruptedAfterDecision(t *testing.T) {
	c, f := setup(t)
	config := func(n int) attrs { return orders(n, attrs{"timeouts": attrs{"update": "300ms"}}) }
	i := c.must(c.none(shardCount), config(4))
	f.set(func() { f.block = true })
	i, diags := c.apply(t.Context(), c.plan(i, config(2)))
	oneError(t, diags, "Timed out")
	f.set(func() {
		f.streams["orders"].Status.ShardCount = 2
		f.records["rs-2"].Phase = protocol.PhaseDrainingRemoved
	})
	i = c.refresh(i)
	wantField(t, i, "shard_count", "4")
	if p := c.plan(i, config(2)); p.noop() {
		t.Error("the rest of the change is not planned")
	}
}

func TestShardCountRolledBack(t *testing.T) {
	for _, phase := range []protocol.Phase{protocol.PhaseRolledBack, protocol.PhaseFailed} {
		t.Run(string(phase), func(t *testing.T) {
			c, f := setup(t)
			i := c.must(c.none(shardCount), orders(4))
			f.set(func() { f.block = true })
			p := c.plan(i, orders(8))
			go func() {
				eventually(t, "the resharding runs", func() bool { return f.count("/reshardings/rs-2") > 1 })
				f.finish(t, "orders", phase, "pauseTimeout passed")
			}()
			i, diags := c.apply(t.Context(), p)
			oneError(t, diags, "rs-2", "pauseTimeout passed", "shard orders:0", "keeps its 4 shards")
			wantField(t, i, "shard_count", "4")
			wantField(t, i, "last_resharding.phase", string(phase))

			f.set(func() { f.block = false })
			i = c.must(c.refresh(i), orders(8)) // a new attempt
			wantField(t, i, "shard_count", "8")
			wantField(t, i, "last_resharding.id", "rs-3")
		})
	}
}

func TestShardCountOtherReshardingRuns(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(4))
	f.set(func() {
		f.records["rs-x"] = &protocol.Resharding{ReshardingID: "rs-x", StreamPrefix: "orders", FromShardCount: 4, ToShardCount: 6,
			Phase: protocol.PhaseDraining, RequestedBy: "somebody", Reason: "else"}
		f.streams["orders"].Status.ActiveReshardingID = "rs-x"
		f.streams["orders"].Spec.ShardCount = 6
	})
	after, diags := c.apply(t.Context(), c.plan(i, orders(8)))
	oneError(t, diags, "Another resharding is running", "rs-x", "from 4 to 6", "somebody", "wants 8")
	wantField(t, after, "shard_count", "4")
}

// Before its own change can begin, an apply waits for what the coordinator is repairing; when its
// time is over by then, it says what it waited for, and that nothing of its own was done.
func TestShardCountWaitsForARepair(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(4))
	f.set(func() {
		f.block = true
		f.records["rs-x"] = &protocol.Resharding{ReshardingID: "rs-x", StreamPrefix: "orders", FromShardCount: 4, ToShardCount: 4,
			Phase: protocol.PhaseDraining, WaitingFor: []string{"shard 3: billing has 2 pending"}}
		f.streams["orders"].Status.ActiveReshardingID = "rs-x"
	})
	after, diags := c.apply(t.Context(), c.plan(i, orders(8, attrs{"timeouts": attrs{"update": "300ms"}})))
	oneError(t, diags, "Timed out while another resharding is running", "rs-x", "billing has 2 pending", "Nothing of this apply was done")
	wantField(t, after, "shard_count", "4")
}

// Giving an unfinished change up rolls it back: that is what was asked for, and no failure.
func TestShardCountGivenUp(t *testing.T) {
	c, f := setup(t)
	short := attrs{"timeouts": attrs{"create": "200ms", "update": "200ms", "delete": "10s"}}
	f.set(func() { f.block = true })
	i, diags := c.apply(t.Context(), c.plan(c.none(shardCount), orders(4, short)))
	c.ok(diags)
	t.Run("a creation, by destroying", func(t *testing.T) {
		if after := c.must(c.refresh(i), nil); !after.state.IsNull() || f.streams["orders"] != nil {
			t.Errorf("state %s, stream %v", after.state, f.streams["orders"])
		}
	})
	t.Run("an update, by the old count", func(t *testing.T) {
		f.set(func() { f.block = false })
		i := c.must(c.none(shardCount), orders(4, short))
		f.set(func() { f.block = true })
		i, diags := c.apply(t.Context(), c.plan(i, orders(8, short)))
		oneError(t, diags, "Timed out")
		i = c.must(c.refresh(i), orders(4, short, attrs{"retire": "archive"}))
		wantField(t, i, "shard_count", "4")
		wantField(t, i, "last_resharding.phase", "ROLLED_BACK")
	})
}

// Create: the stream is in the state as soon as it exists, and slowness is no taint.
func TestShardCountCreateInterrupted(t *testing.T) {
	c, f := setup(t)
	f.set(func() { f.block = true })
	config := orders(4, attrs{"timeouts": attrs{"create": "300ms", "update": "10s"}})
	i, diags := c.apply(t.Context(), c.plan(c.none(shardCount), config))
	c.ok(diags) // an error would taint
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "rs-1") || !strings.Contains(w[0], "Apply again") {
		t.Errorf("warnings: %q", w)
	}
	wantField(t, i, "shard_count", "4")
	i = c.refresh(i)
	wantField(t, i, "shard_count", "0")
	p := c.plan(i, config)
	if p.noop() || p.replace != 0 {
		t.Fatal("want the rest of the creation as an update")
	}
	f.finish(t, "orders", protocol.PhaseCompleted, "")
	i, diags = c.apply(t.Context(), p)
	c.ok(diags)
	wantField(t, i, "shard_count", "4")
	if ids := f.reshardingIDs(); len(ids) != 1 || len(f.mutations()) != 1 {
		t.Errorf("reshardings %v, %d mutations", ids, len(f.mutations()))
	}
	if p := c.plan(c.refresh(i), config); !p.noop() {
		t.Error("plan is not empty")
	}
}

// The first PUT is carried out, but its answer is lost with the connection.
func TestT2AnswerLost(t *testing.T) {
	c, f := setup(t)
	lost := false
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if !changes(r) || lost {
				return false
			}
			lost = true
			f.carryOut(r, body)
			conn, _, err := w.(http.Hijacker).Hijack() // as net/http documents
			if err != nil {
				t.Error(err)
				return true
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			return true
		}
	})
	i := c.must(c.none(shardCount), orders(2))
	wantField(t, i, "shard_count", "2")
	keys := map[string]bool{}
	for _, m := range f.mutations() {
		keys[m.header.Get("Idempotency-Key")] = true
	}
	if len(keys) != 1 || len(f.reshardingIDs()) != 1 {
		t.Errorf("idempotency keys %v, reshardings %v", keys, f.reshardingIDs())
	}
}

// A coordinator that fails behind its commit has carried the request out.
func TestShardCountStoredAndRefused(t *testing.T) {
	c, f := setup(t)
	refuseNext := func() {
		first := true
		f.set(func() {
			f.intercept = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				if !changes(r) || !first {
					return false
				}
				first = false
				f.carryOut(r, body)
				refuse(w, protocol.NewError(protocol.CodeInternal, "it may have been stored"))
				return true
			}
		})
	}
	refuseNext()
	i := c.must(c.none(shardCount), orders(2))
	refuseNext()
	i = c.must(i, orders(4))
	wantField(t, i, "shard_count", "4")
	if n := len(f.mutations()); n != 2 {
		t.Errorf("%d mutations", n)
	}
}

// A replica that lags answers "no such stream" and "no such resharding" at first.
func TestT2ReadYourWrite(t *testing.T) {
	c, f := setup(t)
	misses := map[string]int{}
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodGet || len(f.mutations()) == 0 || misses[r.URL.Path] == 2 {
				return false
			}
			misses[r.URL.Path]++
			if strings.Contains(r.URL.Path, "/reshardings/") {
				refuse(w, protocol.ErrReshardingNotFound)
			} else {
				refuse(w, protocol.ErrStreamNotFound)
			}
			return true
		}
	})
	i, diags := c.apply(t.Context(), c.plan(c.none(shardCount), orders(2)))
	c.ok(diags)
	if w := warningsOf(diags); len(w) != 0 {
		t.Errorf("warnings: %q", w)
	}
	wantField(t, i, "shard_count", "2")
	wantField(t, i, "last_resharding.phase", "COMPLETED")
	if n := len(f.mutations()); n != 1 {
		t.Errorf("%d mutations", n)
	}
}

// Ctrl-C while the PUT is on its way: it is let finish, so that its outcome is known.
func TestShardCountCreateInterruptedWhileSending(t *testing.T) {
	c, f := setup(t)
	ctx, interrupt := context.WithCancel(t.Context())
	f.set(func() {
		f.block = true
		f.intercept = func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			if changes(r) {
				interrupt() // the request is on its way
				select {    // would the client give up, it would do so now
				case <-r.Context().Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
			return false
		}
	})
	i, diags := c.apply(ctx, c.plan(c.none(shardCount), orders(2)))
	c.ok(diags)
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "rs-1") {
		t.Errorf("warnings: %q", w)
	}
	wantField(t, i, "stream_prefix", "orders")
	wantField(t, i, "last_resharding.id", "rs-1")
}

func TestShardCountCreateOnExisting(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	p := c.plan(c.none(shardCount), orders(5, attrs{"retire": "archive"}))
	oneWarning(t, p.diags, "is in the way", "shard_count is 2, wanted 5", "terraform import", "tainted")
	_, diags := c.apply(t.Context(), p)
	oneError(t, diags, "already exists", "shard_count is 2, wanted 5", "retire is delete, wanted archive", "terraform import", "orders")
	if n := len(f.mutations()); n != 1 {
		t.Errorf("%d mutations", n)
	}
	// With the same settings, and by the same requester, it is what an apply has left behind that
	// was killed.
	again := c.must(c.none(shardCount), orders(2))
	if !again.state.Equal(i.state) {
		t.Errorf("state is %s, want %s", again.state, i.state)
	}
	// The settings alone prove nothing: somebody else has the same defaults.
	for _, change := range []struct {
		of  func(r *protocol.Resharding)
		why string
	}{
		{func(r *protocol.Resharding) { r.RequestedBy = "terraform:staging" }, `it was made by "terraform:staging"`},
		{func(r *protocol.Resharding) { r.FromShardCount = 4 }, "has been resharded"},
	} {
		f.set(func() { change.of(f.records["rs-1"]) })
		p := c.plan(c.none(shardCount), orders(2))
		oneWarning(t, p.diags, "is in the way", change.why, "terraform import")
		_, diags := c.apply(t.Context(), p)
		oneError(t, diags, "already exists", change.why, "terraform import")
		f.set(func() { f.records["rs-1"].RequestedBy = "terraform:default" })
	}
	if n := len(f.mutations()); n != 1 {
		t.Errorf("%d mutations", n)
	}
}

// Two resources of one name in one run: the second is refused, though the stream is just what it
// would make.
func TestShardCountTwice(t *testing.T) {
	c, f := setup(t)
	one, two := c.plan(c.none(shardCount), orders(2)), c.plan(c.none(shardCount), orders(2))
	if _, diags := c.apply(t.Context(), one); failed(diags) {
		t.Fatal(errorsOf(diags))
	}
	_, diags := c.apply(t.Context(), two)
	oneError(t, diags, "Two resources of one name", "orders")
	if n := len(f.mutations()); n != 1 {
		t.Errorf("%d mutations", n)
	}
}

// A replacement that creates before it destroys, and keeps the name: the stream is one and stays.
func TestShardCountReplacedByItself(t *testing.T) {
	c, f := setup(t)
	old := c.must(c.none(shardCount), orders(2))
	creation, destroy := c.plan(c.none(shardCount), orders(2)), c.plan(old, nil)
	i, diags := c.apply(t.Context(), creation)
	c.ok(diags)
	gone, diags := c.apply(t.Context(), destroy)
	c.ok(diags)
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "Not destroyed") || !gone.state.IsNull() || f.streams["orders"] == nil {
		t.Errorf("warnings %q, state %s, stream %v", w, gone.state, f.streams["orders"])
	}
	if p := c.plan(c.refresh(i), orders(2)); !p.noop() {
		t.Errorf("plan is not empty: %s", p.state)
	}
	// The other way round, and at once: the creation waits for the end of the destroy.
	creation, destroy = c.plan(c.none(shardCount), orders(2)), c.plan(i, nil)
	f.set(func() { f.block = true })
	destroyed := make(chan struct{})
	go func() {
		defer close(destroyed)
		if _, diags := c.apply(t.Context(), destroy); failed(diags) {
			t.Errorf("destroy: %q", errorsOf(diags))
		}
	}()
	eventually(t, "the destroy drains", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.streams["orders"].Status.ActiveReshardingID != ""
	})
	created := make(chan instance)
	go func() {
		i, diags := c.apply(t.Context(), creation)
		if failed(diags) {
			t.Errorf("create: %q", errorsOf(diags))
		}
		created <- i
	}()
	f.set(func() { f.block = false })
	f.finish(t, "orders", protocol.PhaseCompleted, "")
	<-destroyed
	wantField(t, <-created, "shard_count", "2")
}

// A coordinator that does not answer for a while during the wait is borne.
func TestShardCountOutageWhileWaiting(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	misses := 0
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if !strings.HasSuffix(r.URL.Path, "/rs-2") || misses > 2 {
				return false
			}
			misses++
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
	})
	i = c.must(i, orders(4))
	wantField(t, i, "shard_count", "4")
}

func TestShardCountDelete(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2, attrs{"deletion_protection": nil}))
	wantField(t, i, "deletion_protection", "true")

	t.Run("protected", func(t *testing.T) {
		oneError(t, c.plan(i, nil).diags, "deletion_protection = false", "terraform apply")
		// Also when nothing was planned, as for the old one of a replacement.
		p := c.plan(i, nil)
		p.diags = nil
		after, diags := c.apply(t.Context(), p)
		oneError(t, diags, "deletion_protection = false")
		if !after.state.Equal(i.state) {
			t.Errorf("state changed to %s", after.state)
		}
		oneError(t, c.plan(i, orders(2, attrs{"stream_prefix": "others", "deletion_protection": nil})).diags, "deletion_protection = false")
	})

	i = c.must(i, orders(2, attrs{"timeouts": attrs{"delete": "300ms"}}))
	t.Run("drain does not end", func(t *testing.T) {
		f.set(func() { f.block = true })
		p := c.plan(i, nil)
		if w := warningsOf(p.diags); len(w) != 2 || !strings.Contains(w[0], "removes its 2 shards") || !strings.Contains(w[1], "removed: shards 0 and 1") {
			t.Errorf("warnings: %q", w)
		}
		after, diags := c.apply(t.Context(), p)
		oneError(t, diags, "Timed out", "rs-2", "billing", "timeouts.delete")
		wantField(t, after, "shard_count", "2")
		i = c.refresh(after)
		wantField(t, i, "shard_count", "2")
	})
	t.Run("attaches", func(t *testing.T) {
		before := len(f.mutations())
		f.set(func() { f.block = false })
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
		if m := f.mutations()[before:]; len(m) != 1 || m[0].method != http.MethodDelete {
			t.Errorf("mutations: %v", m)
		}
	})
	t.Run("its answer is lost", func(t *testing.T) {
		c, f := setup(t)
		i := c.must(c.none(shardCount), orders(2))
		f.set(func() {
			f.intercept = func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
				if r.Method != http.MethodDelete {
					return false
				}
				f.carryOut(r, body)
				panic(http.ErrAbortHandler)
			}
		})
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
	})
	t.Run("gone already", func(t *testing.T) {
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
	})
}

// A destroy whose stream somebody else removes while it drains has what it wanted. That the stream is
// gone is believed after a while, since a replica may lag.
func TestShardCountDeleteFinishedByOthers(t *testing.T) {
	t.Parallel()
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	f.set(func() { f.block = true })
	go func() {
		eventually(t, "the drain is waited for", func() bool { return f.count("/reshardings/rs-2") > 1 })
		f.set(func() { delete(f.streams, "orders") })
	}()
	if after := c.must(i, nil); !after.state.IsNull() {
		t.Errorf("state is %s", after.state)
	}
}

func TestShardCountImport(t *testing.T) {
	c, f := setup(t)
	full := orders(3, attrs{"strategy": "online", "drain_scope": "removed", "retire": "archive", "pause_timeout": "90s", "drain_timeout": "2h30m",
		"on_timeout": "fail", "ignore_groups": []string{"b", "a"}, "deletion_protection": true, "reason": "because"})
	i := c.must(c.none(shardCount), full)
	imported, diags := c.importID(shardCount, "orders")
	c.ok(diags)
	if p := c.plan(imported, full); !p.noop() {
		t.Errorf("plan after import is not empty:\n%s\n%s", p.state, imported.state)
	}
	wantField(t, imported, "pause_timeout", "1m30s")
	wantField(t, imported, "last_resharding.id", i.field(t, "last_resharding.id"))

	for id, words := range map[string][]string{
		"":          {"blank"},
		"a/b":       {"slash", "stream prefix"},
		"my orders": {"white space"},
		"{orders}":  {"braces"},
	} {
		t.Run(fmt.Sprintf("%q", id), func(t *testing.T) {
			_, diags := c.importID(shardCount, id)
			oneError(t, diags, words...)
		})
	}
	f.set(func() {
		s, other := *f.streams["orders"], *f.streams["orders"]
		s.StreamPrefix, s.Status.ShardCount, s.Status.ActiveReshardingID = "coming", 0, "rs-9"
		f.streams["coming"] = &s
		other.StreamPrefix, other.Status.ShardCount = "going", 0
		f.streams["going"] = &other
	})
	for id, words := range map[string]string{"coming": "is being created: it will have 3 shards", "going": "nothing to import"} {
		_, diags := c.importID(shardCount, id)
		oneError(t, diags, words)
	}
	for _, id := range []string{"nope", "Orders", "orders%20"} {
		gone, diags := c.importID(shardCount, id)
		c.ok(diags)
		if !gone.state.IsNull() {
			t.Errorf("import of %q made a state: %s", id, gone.state)
		}
	}
}

// Arguments of the provider that another resource will produce: the plan comes from the state
// alone, and nothing is sent.
func TestUnknownProviderConfiguration(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	sent := len(f.requests)
	c.ok(c.configure(attrs{"endpoint": tftypes.UnknownValue}))
	after := c.refresh(i)
	if !after.state.Equal(i.state) {
		t.Errorf("state changed to %s", after.state)
	}
	if p := c.plan(i, orders(3)); p.noop() || failed(p.diags) {
		t.Errorf("plan: %q", errorsOf(p.diags))
	}
	if len(f.requests) != sent {
		t.Errorf("%d requests were sent", len(f.requests)-sent)
	}
	_, diags := c.apply(t.Context(), c.plan(i, orders(3)))
	oneError(t, diags, "Provider not configured")
}

// One clear diagnostic, and nothing changed, when nobody can be reached or credentials are wrong.
func TestShardCountRefusedUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(f *fakeCoordinator)
		words []string
	}{
		"coordinator down": {func(f *fakeCoordinator) { f.Config.SetKeepAlivesEnabled(false); f.Close() }, []string{"orders", "endpoint"}},
		"wrong password": {func(f *fakeCoordinator) {
			f.set(func() {
				f.intercept = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
					refuse(w, protocol.NewError(protocol.CodeUnauthenticated, "wrong credentials"))
					return true
				}
			})
		}, []string{"Authentication failed", "password"}},
		"redis down": {func(f *fakeCoordinator) {
			f.set(func() {
				f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if r.Method == http.MethodGet {
						return false
					}
					w.Header().Set("Retry-After", "0")
					refuse(w, protocol.NewError(protocol.CodeRedisUnavailable, "redis away"))
					return true
				}
			})
		}, []string{"cannot reach Redis"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := setup(t)
			i := c.must(c.none(shardCount), orders(2))
			p := c.plan(i, orders(3))
			tt.spoil(f)
			after, diags := c.apply(t.Context(), p)
			oneError(t, diags, tt.words...)
			if !after.state.Equal(i.state) {
				t.Errorf("state changed to %s", after.state)
			}
		})
	}
}

// Whatever text comes back, credentials do not get out.
func TestDiagnosticsHideSecrets(t *testing.T) {
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2))
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			refuse(w, protocol.NewError(protocol.CodeForbidden, "you sent "+r.Header.Get("Authorization")+" and correct-horse-battery"))
			return true
		}
	})
	_, diags := c.read(i)
	oneError(t, diags, "you sent Basic ***")
	for _, d := range diags {
		for _, secret := range []string{"correct-horse", "dGVycmFmb3Jt"} {
			if strings.Contains(d.Summary+d.Detail, secret) {
				t.Errorf("diagnostic shows %q: %s", secret, d.Detail)
			}
		}
	}
}

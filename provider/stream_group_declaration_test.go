package provider

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// on answers requests of one method for orders/billing, dry runs excepted, until answer is done.
func (f *fakeCoordinator) on(method string, answer func(w http.ResponseWriter, r *http.Request, body []byte) bool) {
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if r.Method != method || !strings.HasSuffix(r.URL.Path, "/groups/billing") || r.URL.Query().Has("dryRun") {
				return false
			}
			return answer(w, r, body)
		}
	})
}

// lost has the next such request carried out, and its answer lost; do is called in between.
func (f *fakeCoordinator) lost(method string, do func()) {
	first := true // requests for one object come one after another
	f.on(method, func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
		if !first {
			return false
		}
		first = false
		f.carryOut(r, body)
		do()
		panic(http.ErrAbortHandler)
	})
}

func nothing()                              {}
func lastOf(requests []request) (r request) { return requests[len(requests)-1] }

func (f *fakeCoordinator) billing() protocol.Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.groups["orders/billing"]; g != nil {
		return *g
	}
	return protocol.Group{}
}

// change is somebody else's.
func (f *fakeCoordinator) change(rebalanceTimeoutMs int64) {
	f.set(func() {
		g := f.groups["orders/billing"]
		g.Spec.RebalanceTimeoutMs = rebalanceTimeoutMs
		g.Generation++
	})
}

// Each request says which generation it presupposes, with a key that it would have again.
func TestStreamGroupPresupposes(t *testing.T) {
	c, f := setupGroup(t)
	sent := func(header, value string) {
		t.Helper()
		r := lastOf(f.mutations())
		if got := r.header.Get(header); got != value || r.header.Get("Idempotency-Key") == "" {
			t.Errorf("%s %s: %s is %q, want %q", r.method, r.path, header, got, value)
		}
	}
	i := c.must(c.none(streamGroup), billing())
	sent("If-None-Match", "*")
	i = c.must(i, billing(attrs{"rebalance_timeout": "10s"}))
	sent("If-Match", `"1"`)
	i = c.must(i, billing(attrs{"rebalance_timeout": "20s"})) // not refreshed: the answer told the generation
	sent("If-Match", `"2"`)
	f.change(30_000)
	i = c.refresh(i)
	i = c.must(i, billing(attrs{"rebalance_timeout": "40s"}))
	sent("If-Match", `"4"`)
	i = c.must(i, billing(attrs{"rebalance_timeout": "40s", "force_destroy": true})) // no request, and nothing forgotten
	c.must(i, nil)
	sent("If-Match", `"5"`)

	keys := map[string]bool{}
	for range 2 {
		c.must(c.none(streamGroup), billing())
		keys[lastOf(f.mutations()).header.Get("Idempotency-Key")] = true
		f.set(func() { delete(f.groups, "orders/billing") })
	}
	if len(keys) != 1 {
		t.Errorf("two creations of the same have keys %v", keys)
	}
}

// What was changed or deleted since the state was read is left alone, and the error says so.
func TestStreamGroupStalePlan(t *testing.T) {
	const changed = "The consumer group was changed since the plan"
	for name, tt := range map[string]struct {
		config attrs
		since  func(f *fakeCoordinator)
		words  []string
	}{
		"update of a changed one": {billing(attrs{"rebalance_timeout": "10s"}), func(f *fakeCoordinator) { f.change(7000) },
			[]string{changed, `generation 1 of consumer group "billing" of stream "orders"`, "generation 2 now", "Nothing was done", "terraform plan"}},
		"update of a deleted one": {billing(attrs{"rebalance_timeout": "10s"}), func(f *fakeCoordinator) { f.set(func() { delete(f.groups, "orders/billing") }) },
			[]string{changed, "does not exist any more", "deleted since", "Nothing was done"}},
		"destroy of a changed one": {nil, func(f *fakeCoordinator) { f.change(7000) }, []string{changed, "generation 2 now", "Nothing was done"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := setupGroup(t)
			p := c.plan(c.must(c.none(streamGroup), billing()), tt.config)
			tt.since(f)
			before := f.billing()
			after, diags := c.apply(t.Context(), p)
			oneError(t, diags, tt.words...)
			if f.billing().Spec != before.Spec || f.billing().Generation != before.Generation {
				t.Errorf("it is %+v now, and was %+v", f.billing(), before)
			}
			if !after.state.Equal(p.prior.state) {
				t.Errorf("state is %s", after.state)
			}
		})
	}
	t.Run("changed to just what is wanted", func(t *testing.T) {
		c, f := setupGroup(t)
		p := c.plan(c.must(c.none(streamGroup), billing()), billing(attrs{"rebalance_timeout": "7s"}))
		f.change(7000)
		i, diags := c.apply(t.Context(), p)
		c.ok(diags)
		c.must(i, billing(attrs{"rebalance_timeout": "8s"}))
		if g := f.billing(); g.Generation != 3 || g.Spec.RebalanceTimeoutMs != 8000 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("deleted already", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing())
		f.set(func() { delete(f.groups, "orders/billing") })
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
	})
}

// A state that was written before generations were remembered, and a coordinator that tells none.
func TestStreamGroupWithoutGeneration(t *testing.T) {
	c, f := setupGroup(t)
	i := c.must(c.none(streamGroup), billing())
	f.change(7000)
	i.private = nil
	after := c.must(i, billing(attrs{"rebalance_timeout": "9s"}))
	if got := lastOf(f.mutations()).header.Get("If-Match"); got != `"2"` {
		t.Errorf("If-Match is %q", got)
	}
	f.set(func() { delete(f.groups, "orders/billing") })
	after.private = nil
	_, diags := c.apply(t.Context(), c.plan(after, billing(attrs{"rebalance_timeout": "10s"})))
	oneError(t, diags, "consumer group does not exist")
	if g := f.billing(); g.ConsumerGroup != "" {
		t.Errorf("it was made again: %+v", g)
	}
	old := c.must(c.none(streamGroup), billing())
	f.set(func() { f.groups["orders/billing"].Generation = 0 })
	old = c.refresh(old)
	c.must(c.must(old, billing(attrs{"rebalance_timeout": "10s"})), nil)
	for _, r := range f.mutations()[len(f.mutations())-2:] {
		if m := r.header.Get("If-Match"); r.method == http.MethodPut && m != "" {
			t.Errorf("%s with If-Match %q", r.method, m)
		}
	}
}

// An answer that is lost costs nothing: what was carried out is found, what was not is sent again.
func TestStreamGroupAnswerLost(t *testing.T) {
	t.Run("create", func(t *testing.T) {
		c, f := setupGroup(t)
		f.lost(http.MethodPut, nothing)
		i := c.must(c.none(streamGroup), billing())
		if g := f.billing(); g.Generation != 1 || g.GroupEpoch != 1 {
			t.Errorf("%+v", g)
		}
		c.must(i, billing(attrs{"rebalance_timeout": "9s"}))
	})
	t.Run("create, not carried out", func(t *testing.T) {
		c, f := setupGroup(t)
		sent := 0
		f.on(http.MethodPut, func(http.ResponseWriter, *http.Request, []byte) bool {
			if sent++; sent <= 3 { // net/http repeats one by itself
				panic(http.ErrAbortHandler)
			}
			return false
		})
		c.must(c.none(streamGroup), billing())
	})
	t.Run("create, and somebody else was faster", func(t *testing.T) {
		c, f := setupGroup(t)
		p := c.plan(c.none(streamGroup), billing())
		first := true
		f.on(http.MethodPut, func(http.ResponseWriter, *http.Request, []byte) bool {
			if first {
				first = false
				f.set(func() {
					f.groups["orders/billing"] = &protocol.Group{StreamPrefix: "orders", ConsumerGroup: "billing", Generation: 1, Ready: true,
						Spec: protocol.GroupSpec{RebalanceTimeoutMs: 1234}.WithDefaults()}
				})
			}
			return false
		})
		after, diags := c.apply(t.Context(), p)
		oneError(t, diags, "already exists", "rebalance_timeout is 1.234s, wanted 1m", "It was not touched")
		if g := f.billing(); g.Spec.RebalanceTimeoutMs != 1234 || !after.state.IsNull() {
			t.Errorf("%+v, state %s", g, after.state)
		}
	})
	t.Run("update", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing())
		f.lost(http.MethodPut, nothing)
		c.must(c.must(i, billing(attrs{"rebalance_timeout": "9s"})), billing(attrs{"rebalance_timeout": "10s"}))
		if g := f.billing(); g.Generation != 3 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("update, overtaken", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing())
		f.lost(http.MethodPut, func() { f.change(5000) })
		_, diags := c.apply(t.Context(), c.plan(i, billing(attrs{"rebalance_timeout": "9s"})))
		if len(errorsOf(diags)) != 1 || f.billing().Spec.RebalanceTimeoutMs != 5000 {
			t.Errorf("%q, %+v", errorsOf(diags), f.billing())
		}
	})
}

// A group that is not ready on every shard yet is waited for, as long as timeouts says; then it
// stays, in the state, and untainted.
func TestStreamGroupWaitsUntilReady(t *testing.T) {
	ready := func(f *fakeCoordinator) {
		reads := 0
		f.on(http.MethodGet, func(http.ResponseWriter, *http.Request, []byte) bool {
			if reads++; reads == 3 {
				f.set(func() {
					if g := f.groups["orders/billing"]; g != nil {
						g.Ready = true
					}
				})
			}
			return false
		})
	}
	t.Run("create", func(t *testing.T) {
		c, f := setupGroup(t)
		f.set(func() { f.slow = true })
		p := c.plan(c.none(streamGroup), billing())
		ready(f)
		i, diags := c.apply(t.Context(), p)
		if failed(diags) || len(warningsOf(diags)) > 0 || !f.billing().Ready || i.state.IsNull() {
			t.Errorf("%q, %q, ready %v", errorsOf(diags), warningsOf(diags), f.billing().Ready)
		}
		wantField(t, i, "group_epoch", fmt.Sprint(f.billing().GroupEpoch))
	})
	t.Run("create, and time is up", func(t *testing.T) {
		c, f := setupGroup(t)
		f.set(func() { f.slow = true })
		config := billing(attrs{"timeouts": attrs{"create": "2s"}})
		i, diags := c.apply(t.Context(), c.plan(c.none(streamGroup), config))
		w := warningsOf(diags)
		if failed(diags) || len(w) != 1 || !strings.Contains(w[0], "Timed out") || !strings.Contains(w[0], "timeouts.create") || !strings.Contains(w[0], "not exist on every shard yet") {
			t.Fatalf("%q, %q", errorsOf(diags), w)
		}
		if p := c.plan(c.refresh(i), config); !p.noop() {
			t.Errorf("plan afterwards: %s", p.state)
		}
		f.set(func() { f.groups["orders/billing"].Ready = true })
		c.must(i, billing(attrs{"rebalance_timeout": "9s"})) // the generation was remembered
	})
	t.Run("create, and no more is heard", func(t *testing.T) {
		c, f := setupGroup(t)
		f.set(func() { f.slow = true })
		p := c.plan(c.none(streamGroup), billing(attrs{"timeouts": attrs{"create": "2s"}}))
		reads := 0
		f.on(http.MethodGet, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			if reads++; reads == 1 { // whether it exists
				return false
			}
			refuse(w, protocol.NewError(protocol.CodeRedisUnavailable, "away"))
			return true
		})
		f.set(func() {
			reading := f.intercept
			f.intercept = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				if r.Method == http.MethodPut {
					f.carryOut(r, body)
					refuse(w, protocol.NewError(protocol.CodeProvisioningFailed, "registered, and the coordinator goes on"))
					return true
				}
				return reading(w, r, body)
			}
		})
		i, diags := c.apply(t.Context(), p)
		if w := warningsOf(diags); failed(diags) || len(w) != 1 || !strings.Contains(w[0], "registered with these settings") || i.state.IsNull() {
			t.Fatalf("%q, %q, state %s", errorsOf(diags), w, i.state)
		}
		f.set(func() { f.intercept = nil; f.groups["orders/billing"].Ready = true })
		c.must(c.refresh(i), billing(attrs{"rebalance_timeout": "9s"}))
	})
	t.Run("create, and it is changed meanwhile", func(t *testing.T) {
		c, f := setupGroup(t)
		f.set(func() { f.slow = true })
		p := c.plan(c.none(streamGroup), billing())
		ready(f)
		settled := f.intercept
		looks := 0 // at what is registered
		f.on(http.MethodGet, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if f.billing().ConsumerGroup != "" {
				if looks++; looks == 2 {
					f.change(7000)
				}
			}
			return settled(w, r, body)
		})
		i, diags := c.apply(t.Context(), p)
		c.ok(diags)
		_, diags = c.apply(t.Context(), c.plan(i, billing(attrs{"rebalance_timeout": "9s"})))
		oneError(t, diags, "changed since the plan", "generation 1", "generation 2 now")
		c.must(c.refresh(i), billing(attrs{"rebalance_timeout": "9s"}))
	})
	t.Run("create, and it is deleted meanwhile", func(t *testing.T) {
		c, f := setupGroup(t)
		f.set(func() { f.slow = true })
		p := c.plan(c.none(streamGroup), billing())
		f.on(http.MethodGet, func(http.ResponseWriter, *http.Request, []byte) bool {
			f.set(func() { delete(f.groups, "orders/billing") })
			return false
		})
		after, diags := c.apply(t.Context(), p)
		oneError(t, diags, "was deleted meanwhile", `Consumer group "billing" of stream "orders"`)
		if !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
	})
	t.Run("update, and time is up", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing())
		f.set(func() { f.groups["orders/billing"].Ready = false })
		config := billing(attrs{"rebalance_timeout": "9s", "timeouts": attrs{"update": "2s"}})
		after, diags := c.apply(t.Context(), c.plan(i, config))
		oneError(t, diags, "Timed out", "timeouts.update", "registered with these settings")
		wantField(t, after, "rebalance_timeout", "9s")
		if p := c.plan(c.refresh(after), config); !p.noop() {
			t.Errorf("plan afterwards: %s", p.state)
		}
	})
}

// Whatever ends a creation whose request was carried out, the group is in the state, with a warning
// and without an error, which would have it destroyed.
func TestStreamGroupIsNeverLost(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request) // to the PUT, behind its work
		words  []string
	}{
		"interrupted": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, []string{"Interrupted", "registered with these settings"}},
		"redis is away behind it": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, protocol.NewError(protocol.CodeRedisUnavailable, "it may have been stored"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c, f := setupGroup(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			p := c.plan(c.none(streamGroup), billing())
			f.on(http.MethodPut, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
				f.carryOut(r, body)
				if tt.words != nil {
					interrupt()
				}
				tt.answer(w, r)
				return true
			})
			i, diags := c.apply(ctx, p)
			w := warningsOf(diags)
			if failed(diags) || (len(w) == 1) != (tt.words != nil) {
				t.Fatalf("%q, %q", errorsOf(diags), w)
			}
			for _, word := range tt.words {
				if !strings.Contains(w[0], word) {
					t.Errorf("%q lacks %q", w[0], word)
				}
			}
			f.set(func() { f.intercept = nil })
			if p := c.plan(c.refresh(i), billing()); !p.noop() {
				t.Errorf("plan afterwards: %s", p.state)
			}
			if after := c.must(i, nil); !after.state.IsNull() || f.billing().ConsumerGroup != "" {
				t.Errorf("destroyed: state %s, %+v", after.state, f.billing())
			}
		})
	}
	t.Run("nothing came of it", func(t *testing.T) {
		c, f := setupGroup(t)
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		p := c.plan(c.none(streamGroup), billing())
		f.on(http.MethodPut, func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			interrupt()
			<-r.Context().Done()
			return true
		})
		after, diags := c.apply(ctx, p)
		oneError(t, diags, "Interrupted", "Applying again is safe")
		if !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
	})
}

// What exists already is told when it is planned, and so whenever it is applied.
func TestStreamGroupTaken(t *testing.T) {
	c, f := setupGroup(t)
	if w := warningsOf(c.plan(c.none(streamGroup), billing()).diags); len(w) != 0 {
		t.Errorf("nothing is there: %q", w)
	}
	c.must(c.none(streamGroup), billing())
	before := len(f.mutations())
	p := c.plan(c.none(streamGroup), billing())
	if w := warningsOf(p.diags); len(w) != 1 || !strings.Contains(w[0], "exists already") || !strings.Contains(w[0], `Consumer group "billing" of stream "orders"`) {
		t.Errorf("%q", w)
	}
	i, diags := c.apply(t.Context(), p)
	c.ok(diags)
	if n := len(f.mutations()) - before; n != 0 {
		t.Errorf("%d requests changed something", n)
	}
	c.must(i, billing(attrs{"rebalance_timeout": "9s"}))
	f.on(http.MethodGet, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		refuse(w, protocol.NewError(protocol.CodeForbidden, "not for you, correct-horse-battery"))
		return true
	})
	p = c.plan(c.none(streamGroup), billing())
	if w := warningsOf(p.diags); failed(p.diags) || len(w) != 1 || !strings.Contains(w[0], "could not be checked") || strings.Contains(w[0], "correct-horse") {
		t.Errorf("%q, %q", errorsOf(p.diags), w)
	}
}

// A destroy ends when the shards have let go of the group, and touches no other of its name.
func TestStreamGroupRemovalIsWaitedFor(t *testing.T) {
	slow := protocol.NewError(protocol.CodeRedisUnavailable, "it is deleted; the coordinator goes on")
	t.Run("ends", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing())
		asked := 0
		f.on(http.MethodDelete, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if asked++; asked == 1 {
				f.carryOut(r, body)
			}
			if asked < 6 {
				refuse(w, slow)
				return true
			}
			// The end, and somebody has registered the name again at once.
			f.set(func() {
				f.groups["orders/billing"] = &protocol.Group{StreamPrefix: "orders", ConsumerGroup: "billing", Generation: 1, Ready: true}
			})
			return false
		})
		if after := c.must(i, nil); !after.state.IsNull() {
			t.Errorf("state is %s", after.state)
		}
		if asked != 6 || f.billing().ConsumerGroup == "" {
			t.Errorf("asked %d times, %+v", asked, f.billing())
		}
	})
	t.Run("time is up", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing(attrs{"timeouts": attrs{"delete": "2s"}}))
		asked := 0
		f.on(http.MethodDelete, func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if asked++; asked == 1 {
				f.carryOut(r, body)
			}
			refuse(w, slow)
			return true
		})
		after, diags := c.apply(t.Context(), c.plan(i, nil))
		oneError(t, diags, "is deleted", "not gone from every shard yet")
		if after.state.IsNull() {
			t.Error("the state is gone")
		}
	})
	t.Run("not deleted", func(t *testing.T) {
		c, f := setupGroup(t)
		i := c.must(c.none(streamGroup), billing())
		f.on(http.MethodDelete, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool { refuse(w, slow); return true })
		started := time.Now()
		_, diags := c.apply(t.Context(), c.plan(i, nil))
		oneError(t, diags, "cannot reach Redis")
		if took := time.Since(started); took > 30*time.Second || lastOf(f.mutations()).header.Get("If-None-Match") != "" {
			t.Errorf("after %s: %+v", took, lastOf(f.mutations()).header)
		}
	})
}

// A replacement that creates before it destroys, and keeps the name: the group is one and stays. A
// second resource of one name is refused.
func TestStreamGroupReplacedByItself(t *testing.T) {
	c, f := setupGroup(t)
	old := c.must(c.none(streamGroup), billing())
	create, second, destroy := c.plan(c.none(streamGroup), billing()), c.plan(c.none(streamGroup), billing()), c.plan(old, nil)
	i, diags := c.apply(t.Context(), create)
	c.ok(diags)
	_, diags = c.apply(t.Context(), second)
	oneError(t, diags, "Two resources of one name", `consumer group "billing"`)
	gone, diags := c.apply(t.Context(), destroy)
	if w := warningsOf(diags); failed(diags) || len(w) != 1 || !strings.Contains(w[0], "Not destroyed") || !gone.state.IsNull() || f.billing().ConsumerGroup == "" {
		t.Errorf("%q, %q, state %s, %+v", errorsOf(diags), w, gone.state, f.billing())
	}
	if p := c.plan(c.refresh(i), billing()); !p.noop() {
		t.Errorf("plan afterwards: %s", p.state)
	}
	oneError(t, c.validate(streamGroup, billing(attrs{"timeouts": attrs{"update": "0s"}})), "timeouts.update", "longer than nothing")
}

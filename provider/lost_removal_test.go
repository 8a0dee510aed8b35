package provider

import (
	"net/http"
	"testing"
)

// A proxy that answers a removal itself, for a while, does not fail the destroy: what is still there as
// it was seen is removed by the same request again.
func TestRemovalThatDidNotArrive(t *testing.T) {
	c, f := setupGroup(t)
	stream := c.must(c.none(shardCount), orders(2, attrs{"stream_prefix": "other"}))
	group := c.must(c.none(streamGroup), billing())
	for name, i := range map[string]instance{"group": group, "stream": stream} {
		t.Run(name, func(t *testing.T) {
			left, keys := 2, map[string]int{}
			f.set(func() {
				f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if r.Method != http.MethodDelete || r.URL.RawQuery != "" {
						return false
					}
					keys[r.Header.Get("Idempotency-Key")]++
					if left == 0 {
						return false
					}
					left--
					w.Header().Set("Content-Type", "text/html")
					w.WriteHeader(http.StatusBadGateway)
					return true
				}
			})
			_, diags := c.apply(t.Context(), c.plan(i, nil))
			c.ok(diags)
			if left != 0 || len(keys) != 1 {
				t.Errorf("%d faults left; keys %v", left, keys)
			}
		})
	}
	if f.streams["other"] != nil || len(f.groups) != 0 {
		t.Errorf("left: %v, %v", f.streams, f.groups)
	}
}

// That a removal was answered as done is believed when the coordinator itself has the stream no more:
// the answer has no body, and anything in between may give one like it.
func TestRemovalThatSomethingElseAnswered(t *testing.T) {
	t.Parallel()
	c, f := setup(t)
	i := c.must(c.none(shardCount), orders(2, attrs{"deletion_protection": false}))
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
			}
			return r.Method == http.MethodDelete
		}
	})
	kept, diags := c.apply(t.Context(), c.plan(i, nil))
	oneError(t, diags, "answered as done", "still has it")
	if kept.state.IsNull() || f.streams["orders"] == nil {
		t.Errorf("state %v, streams %v", kept.state, f.streams)
	}
}

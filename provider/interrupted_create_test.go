package provider

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// A creation that is interrupted while its request is under way has made the stream all the same: it is in
// the state, untainted, and the next apply waits for the rest. One that did not arrive leaves nothing.
func TestCreationInterruptedBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	for name, arrives := range map[string]bool{"it arrived": true, "it did not arrive": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, f := setup(t)
			p := c.plan(c.none(shardCount), orders(2))
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			f.set(func() {
				f.intercept = func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
					if r.Method != http.MethodPut || r.URL.RawQuery != "" {
						return false
					}
					if arrives {
						f.carryOut(r, body)
					}
					interrupt()
					<-r.Context().Done() // never answered
					return true
				}
			})
			i, diags := c.apply(ctx, p)
			f.set(func() { f.intercept = nil })
			if !arrives {
				oneError(t, diags, "interrupted before the coordinator had answered")
				if !i.state.IsNull() {
					t.Errorf("state %s", i.state)
				}
				return
			}
			if w := warningsOf(diags); failed(diags) || i.state.IsNull() || len(w) > 1 || len(w) == 1 && !strings.Contains(w[0], "Interrupted") {
				t.Fatalf("errors %q, warnings %q, state %s", errorsOf(diags), w, i.state)
			}
			c.config = nil // another run
			c.must(c.refresh(i), orders(2))
			if n := len(f.streams); n != 1 {
				t.Errorf("%d streams", n)
			}
		})
	}
}

// What was made a moment ago is not gone because a replica of the coordinator does not know it yet.
func TestReplicaThatDoesNotKnowItYet(t *testing.T) {
	t.Parallel()
	c, f := setupGroup(t)
	stream, group := c.must(c.none(shardCount), orders(2, attrs{"stream_prefix": "other"})), c.must(c.none(streamGroup), billing())
	f.set(func() {
		f.streams["other"].CreatedAt, f.groups["orders/billing"].CreatedAt = time.Now(), time.Now()
	})
	stream, group = c.refresh(stream), c.refresh(group)
	for path, i := range map[string]instance{"/coord/v1/streams/other": stream, "/coord/v1/streams/orders/groups/billing": group} {
		left := 2
		f.set(func() {
			f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.URL.Path != path || left == 0 {
					return false
				}
				left--
				refuse(w, protocol.NewError(map[string]protocol.Code{shardCount: protocol.CodeStreamNotFound, streamGroup: protocol.CodeGroupNotFound}[i.kind], "not known here"))
				return true
			}
		})
		if c.refresh(i).state.IsNull() || left != 0 {
			t.Errorf("%s: dropped, %d answers left", path, left)
		}
	}
}

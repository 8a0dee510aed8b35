//go:build unix

package provider

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// front stands before a coordinator like a load balancer, and answers in its place, or slowly,
// when it is told to.
type front struct {
	*httptest.Server
	fault atomic.Pointer[http.HandlerFunc]
	asked atomic.Int32
}

// newProxy hands requests on to the coordinator.
func newProxy(c *coordinator) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host, _ = strings.Cut(c.url, "://")
	}}
}

func newFront(t *testing.T, c *coordinator) *front {
	t.Helper()
	f, forward := &front{}, newProxy(c)
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fault := f.fault.Load(); fault != nil {
			f.asked.Add(1)
			(*fault)(w, r)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// during answers every request by h while do runs, and wants some.
func (f *front) during(t *testing.T, h http.HandlerFunc, do func()) {
	t.Helper()
	f.asked.Store(0)
	f.fault.Store(&h)
	defer f.fault.Store(nil)
	do()
	if f.asked.Load() == 0 {
		t.Error("nothing was asked")
	}
}

// T4 by the real CLI: what is no answer of the coordinator about the object changes neither the
// state nor the stream, and is one clear error, at a refresh, at an apply and at a destroy. Only
// its own "not found" is believed.
func TestAccT4BadAnswers(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	// Without a reference each is asked for whatever becomes of the other.
	config := func(endpoint, more string) string {
		return strings.Replace(providerBlock(endpoint, password), "}\n", "  retry_budget = \"1s\"\n}\n", 1) + `
variable "shards" { type = number }
resource "redisstream_shard_count" "orders" {
  stream_prefix       = "` + prefix + `"
  shard_count         = var.shards
  deletion_protection = false
}
resource "redisstream_stream_group" "billing" {
  stream_prefix       = "` + prefix + `"
  consumer_group      = "billing"
  deletion_protection = false
` + more + "}\n"
	}
	w := newWorkdir(t, config(c.url, "  depends_on = [redisstream_shard_count.orders]\n"))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	w = newWorkdir(t, config(c.url, ""))
	for _, id := range []string{"redisstream_shard_count.orders=" + prefix, "redisstream_stream_group.billing=" + prefix + "/billing"} {
		address, name, _ := strings.Cut(id, "=")
		w.terraform(0, nil, "import", "-var=shards=2", address, name)
	}
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2") // without protection
	before := w.read("terraform.tfstate")
	elsewhere := func(t *testing.T, f *front) *workdir {
		w := newWorkdir(t, config(f.URL, ""))
		w.write("terraform.tfstate", before)
		return w
	}
	type run struct {
		errors int
		args   []string
	}
	others := []run{
		{1, []string{"apply", "-auto-approve", "-refresh=false", "-var=shards=3"}},
		{1, []string{"destroy", "-auto-approve", "-refresh=false", "-target=redisstream_stream_group.billing", "-var=shards=2"}},
		{1, []string{"destroy", "-auto-approve", "-refresh=false", "-target=redisstream_shard_count.orders", "-var=shards=2"}},
	}

	t.Run("answers", func(t *testing.T) {
		for i, tt := range badAnswers {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				f := newFront(t, c)
				w := elsewhere(t, f)
				// A run of Terraform takes seconds: of the changes each answer meets one.
				for _, run := range []run{{2, []string{"plan", "-var=shards=2"}}, others[i%len(others)]} {
					f.during(t, func(w http.ResponseWriter, r *http.Request) { bad(tt.status, tt.contentType, tt.body)(w, r, nil) }, func() {
						out := unwrap(w.terraform(1, nil, run.args...))
						if n := strings.Count(out, "Error: "); n != run.errors {
							t.Errorf("%s: %d errors, want %d\n%s", run.args[0], n, run.errors, out)
						}
						if run.args[0] == "plan" && !strings.Contains(out, tt.words[0]) {
							t.Errorf("no word of %q\n%s", tt.words[0], out)
						}
					})
					if after := w.read("terraform.tfstate"); after != before {
						t.Fatalf("%s: the state has changed\n%s\n%s", run.args[0], before, after)
					}
				}
			})
		}
		t.Run("slowly, but whole", func(t *testing.T) {
			t.Parallel()
			f, whole := newFront(t, c), newProxy(c)
			w := elsewhere(t, f)
			f.during(t, func(w http.ResponseWriter, r *http.Request) { whole.ServeHTTP(&dribble{w}, r) }, func() {
				w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
			})
		})
	})
	s, err := c.client.Stream(t.Context(), prefix)
	if err != nil || s.Status.ShardCount != 2 || s.Generation != 1 {
		t.Errorf("the stream afterwards: %+v, %v", s, err)
	}

	// The coordinator's own word that the group is gone.
	if err := c.client.DeleteGroup(t.Context(), prefix, "billing", protocol.DeleteGroupRequest{RequestedBy: "test", Reason: "test", Force: true}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	if out := w.terraform(2, nil, "plan", "-detailed-exitcode", "-var=shards=2"); !strings.Contains(unwrap(out), "1 to add, 0 to change, 0 to destroy") {
		t.Errorf("plan of a group that is gone:\n%s", out)
	}
}

// dribble sends a few bytes at a time.
type dribble struct{ http.ResponseWriter }

func (d *dribble) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); sent += 40 {
		if _, err := d.ResponseWriter.Write(p[sent:min(sent+40, len(p))]); err != nil {
			return sent, err
		}
		_ = http.NewResponseController(d.ResponseWriter).Flush() // not flushed is only faster
		time.Sleep(2 * time.Millisecond)                         // the fault itself
	}
	return len(p), nil
}

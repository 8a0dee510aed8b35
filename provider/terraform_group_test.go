//go:build unix

package provider

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const groupConfig = `
variable "rebalance" { default = "1m" }
resource "redisstream_stream_group" "billing" {
  stream_prefix       = %q
  consumer_group      = "billing"
  rebalance_timeout   = var.rebalance
  deletion_protection = false
}
`

const billingAddress = "redisstream_stream_group.billing"

// groupWorkdir is a configuration with a group alone, of a stream that exists, behind a front.
func groupWorkdir(t *testing.T) (c *coordinator, f *front, w *workdir, prefix string) {
	t.Helper()
	c = startCoordinator(t, redistest.Shared(t))
	f = newFront(t, c)
	prefix = redistest.Prefix(t)
	count := int64(2)
	if _, err := c.client.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &count}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is laid out", func() bool {
		s, err := c.client.Stream(t.Context(), prefix)
		return err == nil && s.Status.ActiveReshardingID == ""
	})
	return c, f, newWorkdir(t, providerBlock(f.URL, password)+fmt.Sprintf(groupConfig, prefix)), prefix
}

func (c *coordinator) group(t *testing.T, prefix string) protocol.Group {
	t.Helper()
	g, err := c.client.Group(t.Context(), prefix, "billing")
	if err != nil && !errors.Is(err, protocol.ErrGroupNotFound) {
		t.Fatal(err)
	}
	return g
}

// putGroups counts the creations and changes of groups that were stored.
func (c *coordinator) putGroups(t *testing.T, prefix string) (n int) {
	t.Helper()
	events, err := c.client.AuditEvents(t.Context(), client.AuditQuery{StreamPrefix: prefix, Action: "PUT_GROUP"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Events {
		if e.Outcome == "SUCCESS" {
			n++
		}
	}
	return n
}

// delay holds up the answer to the PUT of the group, whose work is done, or not even begun, until
// its client has gone; held is closed when it is.
func delay(c *coordinator, path string, done bool) (held chan struct{}, fault http.HandlerFunc) {
	held = make(chan struct{})
	forward := newProxy(c)
	return held, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut || r.URL.Path != path {
			forward.ServeHTTP(w, r)
			return
		}
		if done {
			forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		_, _ = io.Copy(io.Discard, r.Body) // the end of the connection is only seen behind the body
		close(held)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// Ctrl-C while a group is created whose answer does not come: it is in the state, untainted, and
// the next plan has nothing to do. Had nothing come of it, the next apply makes it. A supervisor that
// ends Terraform and all that it has started (timeout, systemd) does the same.
func TestAccGroupCreateInterrupted(t *testing.T) {
	acceptance(t)
	for name, tt := range map[string]struct {
		done   bool
		signal syscall.Signal
	}{"carried out": {true, syscall.SIGINT}, "not carried out": {false, syscall.SIGINT}, "terminated": {true, syscall.SIGTERM}} {
		t.Run(name, func(t *testing.T) {
			done := tt.done
			c, f, w, prefix := groupWorkdir(t)
			held, fault := delay(c, "/coord/v1/streams/"+prefix+"/groups/billing", done)
			f.fault.Store(&fault)
			cmd, out := w.start(nil, "apply", "-auto-approve", "-no-color")
			<-held
			if err := syscall.Kill(-cmd.Process.Pid, tt.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // what it says counts
			f.fault.Store(nil)
			state := w.stateOf(billingAddress) // fails when it is tainted
			if (state != nil) != done {
				t.Fatalf("state %v\n%s", state, out)
			}
			if text := unwrap(out.String()); !strings.Contains(text, "Interrupted") || done && !strings.Contains(text, "is registered with these settings") {
				t.Errorf("output:\n%s", out)
			}
			if done {
				w.terraform(0, nil, "plan", "-detailed-exitcode")
			}
			w.terraform(0, nil, "apply", "-auto-approve")
			w.terraform(0, nil, "plan", "-detailed-exitcode")
			if g, n := c.group(t, prefix), c.putGroups(t, prefix); g.Generation != 1 || !g.Ready || n != 1 {
				t.Errorf("%d creations or changes, %+v", n, g)
			}
			w.terraform(0, nil, "destroy", "-auto-approve")
			if g := c.group(t, prefix); g.ConsumerGroup != "" {
				t.Errorf("after destroy: %+v", g)
			}
		})
	}
}

// Terraform is killed while a group is created: the next plan says that it exists, and its apply
// takes it into the state.
func TestAccGroupCreateKilled(t *testing.T) {
	acceptance(t)
	c, f, w, prefix := groupWorkdir(t)
	held, fault := delay(c, "/coord/v1/streams/"+prefix+"/groups/billing", true)
	f.fault.Store(&fault)
	cmd, _ := w.start(nil, "apply", "-auto-approve", "-lock=false")
	<-held
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	f.fault.Store(nil)
	if state := w.stateOf(billingAddress); state != nil {
		t.Fatalf("state %v", state)
	}
	if out := unwrap(w.terraform(0, nil, "apply", "-auto-approve")); !strings.Contains(out, "Consumer group exists already") {
		t.Errorf("nothing is said of the group that is taken:\n%s", out)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode")
	if n := c.putGroups(t, prefix); n != 1 {
		t.Errorf("%d creations or changes", n)
	}
}

// The group is changed or deleted by somebody else between the plan and its apply: the apply is
// refused, says why, and has changed nothing.
func TestAccGroupStalePlan(t *testing.T) {
	acceptance(t)
	const changed = "The consumer group was changed since the plan"
	for name, tt := range map[string]struct {
		plan  []string // arguments
		since func(t *testing.T, c *coordinator, prefix string)
		words []string
	}{
		"changed": {[]string{"-var=rebalance=10s"}, changeGroup, []string{changed, "generation 1 of", "generation 2 now", "Nothing was done"}},
		"deleted": {[]string{"-var=rebalance=10s"}, func(t *testing.T, c *coordinator, prefix string) {
			if err := c.client.DeleteGroup(t.Context(), prefix, "billing", protocol.DeleteGroupRequest{RequestedBy: "somebody", Reason: "test"}, client.Call{}); err != nil {
				t.Fatal(err)
			}
		}, []string{changed, "does not exist any more", "Nothing was done"}},
		"changed before a destroy": {[]string{"-destroy"}, changeGroup, []string{changed, "generation 2 now", "Nothing was done"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, w, prefix := groupWorkdir(t)
			w.terraform(0, nil, "apply", "-auto-approve")
			w.terraform(0, nil, append([]string{"plan", "-out=plan.bin"}, tt.plan...)...)
			tt.since(t, c, prefix)
			before := c.group(t, prefix)
			out := unwrap(w.terraform(1, nil, "apply", "plan.bin"))
			for _, word := range tt.words {
				if !strings.Contains(out, word) {
					t.Errorf("output lacks %q:\n%s", word, out)
				}
			}
			if now := c.group(t, prefix); now.Spec != before.Spec || now.Generation != before.Generation || now.ConsumerGroup != before.ConsumerGroup {
				t.Errorf("it is %+v, and was %+v", now, before)
			}
			w.terraform(0, nil, append([]string{"apply", "-auto-approve"}, tt.plan...)...) // of a plan of now
			if tt.plan[0] != "-destroy" {
				w.terraform(0, nil, append([]string{"plan", "-detailed-exitcode"}, tt.plan...)...)
			}
		})
	}
}

func changeGroup(t *testing.T, c *coordinator, prefix string) {
	t.Helper()
	if _, err := c.client.PutGroup(t.Context(), prefix, "billing", protocol.PutGroupRequest{GroupSpec: protocol.GroupSpec{RebalanceTimeoutMs: 7000}}, client.Call{IfMatch: 1}); err != nil {
		t.Fatal(err)
	}
}

// Two workspaces create one group, with other settings, at once: one wins, the other is told, and
// what the winner has made stays.
func TestAccGroupTwoCreators(t *testing.T) {
	acceptance(t)
	c, _, one, prefix := groupWorkdir(t)
	two := newWorkdir(t, c.config(groupConfig, prefix))
	procs := map[string]*workdir{"10s": one, "20s": two}
	won, lost := []string{}, ""
	type end struct {
		timeout, out string
		err          error
	}
	ends := make(chan end)
	for timeout, w := range procs {
		w.terraform(0, nil, "plan", "-out=plan.bin", "-var=rebalance="+timeout)
	}
	for timeout, w := range procs {
		cmd, out := w.start(nil, "apply", "plan.bin")
		go func() { err := cmd.Wait(); ends <- end{timeout, out.String(), err} }()
	}
	for range procs {
		if e := <-ends; e.err == nil {
			won = append(won, e.timeout)
		} else {
			lost += e.out
		}
	}
	if len(won) != 1 || !strings.Contains(unwrap(lost), "Consumer group already exists") {
		t.Fatalf("won: %v; lost:\n%s", won, lost)
	}
	if g := c.group(t, prefix); durationOfMs(g.Spec.RebalanceTimeoutMs).ValueString() != won[0] || g.Generation != 1 {
		t.Errorf("%s won, and it is %+v", won[0], g)
	}
}

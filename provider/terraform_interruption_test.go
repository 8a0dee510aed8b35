//go:build unix

package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// lose has the next request of this method carried out, and its answer lost: then is called with
// the request done, and the connection is cut.
func (f *front) lose(c *coordinator, method, path string, then func()) {
	forward := newProxy(c)
	done := false // requests for one object come one after another
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if done || r.Method != method || r.URL.Path != path || r.URL.Query().Has("dryRun") {
			forward.ServeHTTP(w, r)
			return
		}
		done = true
		forward.ServeHTTP(httptest.NewRecorder(), r)
		then()
		panic(http.ErrAbortHandler)
	})
	f.fault.Store(&h)
}

// T1: Terraform is killed when the stream has been made and the answer has not come yet. The
// state knows of nothing; the next apply takes the stream as it is, and makes no other.
func TestAccT1KilledCreate(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	f := newFront(t, c)
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, providerBlock(f.URL, password)+fmt.Sprintf(heldConfig, prefix))
	made, cut := make(chan struct{}), make(chan struct{})
	f.lose(c, http.MethodPut, "/coord/v1/streams/"+prefix, func() { close(made); <-cut })
	cmd, _ := w.start(nil, "apply", "-auto-approve", "-lock=false", "-var=shards=2")
	<-made
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	close(cut)
	f.fault.Store(nil)

	if out := unwrap(w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")); !strings.Contains(out, "Stream exists already") {
		t.Errorf("nothing is said of the stream that is taken:\n%s", out)
	}
	if list, err := c.client.Reshardings(t.Context(), prefix); err != nil || len(list.Reshardings) != 1 {
		t.Errorf("reshardings: %+v, %v", list, err)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
}

// T2: the answers to the requests that make the stream and the group are lost on the way, as
// through a balancer that restarts. One apply, one of each.
func TestAccT2AnswerLost(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	f := newFront(t, c)
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, providerBlock(f.URL, password)+fmt.Sprintf(heldConfig, prefix))
	group := "/coord/v1/streams/" + prefix + "/groups/billing"
	f.lose(c, http.MethodPut, "/coord/v1/streams/"+prefix, func() { f.lose(c, http.MethodPut, group, func() {}) })
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
	s, err := c.client.Stream(t.Context(), prefix)
	if err != nil || s.Status.ShardCount != 2 || s.Generation != 1 {
		t.Errorf("the stream: %+v, %v", s, err)
	}
	f.lose(c, http.MethodPut, "/coord/v1/streams/"+prefix, func() {})
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=3")
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=3")
	if list, err := c.client.Reshardings(t.Context(), prefix); err != nil || len(list.Reshardings) != 2 {
		t.Errorf("reshardings: %+v, %v", list, err)
	}
}

// T1: Ctrl-C, and then a kill, during a destroy that drains: the stream stays in the state until it
// is gone, and the next destroy goes on with the same resharding.
func TestAccT1InterruptedDestroy(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := fmt.Sprintf(heldConfig, prefix)
	w := newWorkdir(t, providerBlock(c.url, password)+config[:strings.Index(config, "resource \"redisstream_stream_group\"")])
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	if _, err := c.client.PutGroup(t.Context(), prefix, "billing", protocol.PutGroupRequest{}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	ack := c.hold(t, prefix, "billing")
	active := func() string {
		s, err := c.client.Stream(t.Context(), prefix)
		if err != nil {
			return ""
		}
		return s.Status.ActiveReshardingID
	}
	var id string
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd, out := w.start([]string{"TF_LOG_PROVIDER=INFO"}, "destroy", "-auto-approve", "-lock=false", "-var=shards=2")
		eventually(t, "the destroy waits", func() bool { return strings.Contains(out.String(), "resharding has entered phase DRAINING") })
		if err := syscall.Kill(-cmd.Process.Pid, signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if id == "" {
			id = active()
		}
		if now := active(); now == "" || now != id {
			t.Errorf("resharding %q runs, it was %q", now, id)
		}
		if got := fmt.Sprint(w.stateOf("redisstream_shard_count.orders")["shard_count"]); got != "2" {
			t.Errorf("shard_count in the state is %s", got)
		}
	}
	cmd, out := w.start([]string{"TF_LOG_PROVIDER=INFO"}, "destroy", "-auto-approve", "-lock=false", "-var=shards=2")
	eventually(t, "the third destroy attaches", func() bool { return strings.Contains(out.String(), "attaching to a resharding") })
	ack()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s, err := c.client.Stream(t.Context(), prefix); err == nil {
		t.Errorf("the stream is still there: %+v", s)
	}
}

// T9: an apply whose time is over is followed by one that attaches while the resharding still runs.
func TestAccT9AttachesAfterTimeout(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	short := strings.Replace(heldConfig, "deletion_protection = false", "deletion_protection = false\n  timeouts = { update = \"1s\" }", 1)
	w := newWorkdir(t, c.config(short, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=3")
	ack := c.hold(t, prefix, "billing")
	w.terraform(1, nil, "apply", "-auto-approve", "-var=shards=2")
	w.write("main.tf", strings.Replace(w.read("main.tf"), "update = \"1s\"", "update = \"1m\"", 1))
	before := c.changesOf(t, prefix)
	cmd, out := w.start([]string{"TF_LOG_PROVIDER=INFO"}, "apply", "-auto-approve", "-var=shards=2")
	eventually(t, "the second apply attaches", func() bool { return strings.Contains(out.String(), "attaching to a resharding") })
	ack()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if after := c.changesOf(t, prefix); after != before {
		t.Errorf("%d more requests for a change", after-before)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
}

// A state file of schema version 0 goes on to be used, and nothing is planned.
func TestAccUpgradeFromVersion0(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, c.config(heldConfig, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	path := filepath.Join(w.dir, "terraform.tfstate")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	older := map[string][]string{ // attributes that version 0 had not
		"redisstream_shard_count":  {"skip_destroy", "force_destroy", "retention"},
		"redisstream_stream_group": {"skip_destroy", "deletion_protection", "timeouts"},
	}
	for _, r := range state["resources"].([]any) {
		resource := r.(map[string]any)
		instance := resource["instances"].([]any)[0].(map[string]any)
		instance["schema_version"] = 0
		delete(instance, "private")
		attributes := instance["attributes"].(map[string]any)
		for _, name := range older[resource["type"].(string)] {
			delete(attributes, name)
		}
		if last, ok := attributes["last_resharding"].(map[string]any); ok {
			delete(last, "certificate")
			last["phases"] = []any{}
		}
	}
	if text, err = json.Marshal(state); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The group is protected where nothing was said: so it is for an import as well.
	w.write("main.tf", strings.Replace(w.read("main.tf"), "consumer_group      = \"billing\"\n  deletion_protection = false", "consumer_group      = \"billing\"", 1))
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=3")
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=3")
}

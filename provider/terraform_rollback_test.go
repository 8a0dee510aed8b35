//go:build unix

package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// The pause of a resharding ends before its drain does: the coordinator undoes the change. The
// apply fails with what held it up, the state keeps the old count, and the next plan shows the
// change again.
func TestAccRolledBackByTheServer(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := strings.Replace(heldConfig, "deletion_protection = false", "deletion_protection = false\n  pause_timeout = \"1s\"", 1)
	w := newWorkdir(t, c.config(config, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	ack := c.hold(t, prefix, "billing")

	out := unwrap(w.terraform(1, nil, "apply", "-auto-approve", "-no-color", "-var=shards=4"))
	for _, want := range []string{"Error: Resharding was rolled back", "from 2 to 4 shards was rolled back", "pause timeout of 1s", "billing has 1 pending", "keeps its 2 shards"} {
		if !strings.Contains(out, want) {
			t.Errorf("output does not say %q:\n%s", want, out)
		}
	}
	state := w.stateOf("redisstream_shard_count.orders")
	if last, ok := state["last_resharding"].(map[string]any); fmt.Sprint(state["shard_count"]) != "2" || !ok || last["phase"] != "ROLLED_BACK" {
		t.Errorf("the state has shard_count %v and last_resharding %v", state["shard_count"], state["last_resharding"])
	}
	s, err := c.client.Stream(t.Context(), prefix)
	if err != nil || s.Status.ShardCount != 2 || s.Status.ActiveReshardingID != "" || s.Status.PublishState != protocol.PublishOpen {
		t.Errorf("the stream after the rollback: %+v, %v", s, err)
	}

	ack()
	out = unwrap(w.terraform(2, nil, "plan", "-detailed-exitcode", "-no-color", "-var=shards=4"))
	for _, want := range []string{"shard_count = 2 -> 4", "0 to add, 1 to change, 0 to destroy"} {
		if !strings.Contains(out, want) {
			t.Errorf("the plan after the rollback does not say %q:\n%s", want, out)
		}
	}
	// On a machine that is busy even an empty stream may not be drained within a second.
	w.write("main.tf", strings.Replace(w.read("main.tf"), "pause_timeout = \"1s\"", "pause_timeout = \"1m\"", 1))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=4")
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=4")
	if s, err = c.client.Stream(t.Context(), prefix); err != nil || s.Status.ShardCount != 4 {
		t.Errorf("the stream at the end: %+v, %v", s, err)
	}
}

// The apply of the old shard count, while the resharding to the new one still waits, takes the
// change back: it ends that resharding and begins no other.
func TestAccOldCountCancels(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := strings.Replace(heldConfig, "deletion_protection = false", "deletion_protection = false\n  timeouts = { update = \"2s\" }", 1)
	w := newWorkdir(t, c.config(config, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	c.hold(t, prefix, "billing")

	if out := unwrap(w.terraform(1, nil, "apply", "-auto-approve", "-var=shards=4")); !strings.Contains(out, "Timed out while a resharding is running") {
		t.Errorf("the apply that waits in vain says:\n%s", out)
	}
	s, err := c.client.Stream(t.Context(), prefix)
	id := s.Status.ActiveReshardingID
	if err != nil || id == "" {
		t.Fatalf("no resharding runs: %+v, %v", s, err)
	}
	w.write("main.tf", strings.Replace(w.read("main.tf"), "update = \"2s\"", "update = \"1m\"", 1)) // only the first is to run out
	out := unwrap(w.terraform(0, nil, "apply", "-auto-approve", "-no-color", "-var=shards=2"))
	for _, want := range []string{"will be cancelled", id + " is rolled back", "0 added, 1 changed, 0 destroyed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the apply of the old count does not say %q:\n%s", want, out)
		}
	}
	list, err := c.client.Reshardings(t.Context(), prefix)
	if err != nil || len(list.Reshardings) != 2 { // the other one is the creation
		t.Fatalf("reshardings: %+v, %v", list, err)
	}
	if r := list.Reshardings[0]; r.ReshardingID != id || r.Phase != protocol.PhaseRolledBack || r.ToShardCount != 4 {
		t.Errorf("the resharding that was taken back: %+v", r)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
	if s, err = c.client.Stream(t.Context(), prefix); err != nil || s.Spec.ShardCount != 2 || s.Status.ShardCount != 2 || s.Status.ActiveReshardingID != "" || s.Status.PublishState != protocol.PublishOpen {
		t.Errorf("the stream at the end: %+v, %v", s, err)
	}
	if pending, err := c.redis.XPending(t.Context(), protocol.ShardKey(prefix, 0), "billing").Result(); err != nil || pending.Count != 1 {
		t.Errorf("pending at the end: %+v, %v", pending, err)
	}
}

// force_destroy takes nothing but the stream's own prefix, and lets a destroy drop a stream of which
// a group has not acknowledged everything.
func TestAccForceDestroy(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := `
resource "redisstream_shard_count" "orders" {
  stream_prefix       = %q
  shard_count         = 2
  deletion_protection = false
}
`
	w := newWorkdir(t, c.config(config, prefix))
	w.terraform(0, nil, "apply", "-auto-approve")
	if _, err := c.client.PutGroup(t.Context(), prefix, "billing", protocol.PutGroupRequest{}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the group is ready", func() bool {
		g, err := c.client.Group(t.Context(), prefix, "billing")
		return err == nil && g.Ready
	})
	c.hold(t, prefix, "billing")

	plain := w.read("main.tf")
	forced := func(by string) string {
		return strings.Replace(plain, "deletion_protection = false", fmt.Sprintf("deletion_protection = false\n  force_destroy = %q", by), 1)
	}
	w.write("main.tf", forced(prefix+"-other"))
	for _, command := range []string{"validate", "plan", "destroy"} {
		args := []string{command, "-no-color"}
		if command == "destroy" {
			args = append(args, "-auto-approve")
		}
		out := unwrap(w.terraform(1, nil, args...))
		for _, want := range []string{"Invalid force_destroy", fmt.Sprintf("it must repeat stream_prefix, %q", prefix)} {
			if !strings.Contains(out, want) {
				t.Errorf("%s with another prefix does not say %q:\n%s", command, want, out)
			}
		}
	}
	keys := []string{protocol.ShardKey(prefix, 0), protocol.ShardKey(prefix, 1)}
	if n, err := c.redis.Exists(t.Context(), keys...).Result(); err != nil || n != 2 {
		t.Errorf("%d shards after what was refused, %v", n, err)
	}

	w.write("main.tf", forced(prefix))
	if out := unwrap(w.terraform(0, nil, "apply", "-auto-approve", "-no-color")); !strings.Contains(out, "0 added, 1 changed, 0 destroyed") {
		t.Errorf("the apply of force_destroy says:\n%s", out)
	}
	out := unwrap(w.terraform(0, nil, "destroy", "-auto-approve", "-no-color"))
	for _, want := range []string{"force_destroy repeats the prefix", "is removed at once with its 2 shards", "1 destroyed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the destroy does not say %q:\n%s", want, out)
		}
	}
	if s, err := c.client.Stream(t.Context(), prefix); !errors.Is(err, protocol.ErrStreamNotFound) {
		t.Errorf("the stream afterwards: %+v, %v", s, err)
	}
	if n, err := c.redis.Exists(t.Context(), keys...).Result(); err != nil || n != 0 {
		t.Errorf("%d shards are left, %v", n, err)
	}
	if len(w.stateOf("redisstream_shard_count.orders")) != 0 {
		t.Error("the stream is still in the state")
	}
}

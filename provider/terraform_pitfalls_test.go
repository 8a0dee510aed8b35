//go:build unix

package provider

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// manyStreams is how many streams TestAccPlanOfManyStreams has, with three groups each.
var manyStreams = flag.Int("streams", 60, "streams of TestAccPlanOfManyStreams")

// changesOf counts the changes of a stream's shard count in the audit log.
func (c *coordinator) changesOf(t *testing.T, prefix string) int {
	t.Helper()
	events, err := c.client.AuditEvents(t.Context(), client.AuditQuery{StreamPrefix: prefix, Action: "PUT_STREAM"})
	if err != nil {
		t.Fatal(err)
	}
	return len(events.Events)
}

// T1, the hard way: Terraform and the provider are SIGKILLed while a resharding runs. The state
// knows nothing of it; the next apply attaches without another request, and nothing is imported.
func TestAccT1Killed(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, c.config(heldConfig, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	ack := c.hold(t, prefix, "billing")

	cmd, _ := w.start(nil, "apply", "-auto-approve", "-lock=false", "-var=shards=4")
	var id string
	eventually(t, "the resharding runs", func() bool {
		s, err := c.client.Stream(t.Context(), prefix)
		id = s.Status.ActiveReshardingID
		return err == nil && id != ""
	})
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	before := c.changesOf(t, prefix)
	if got := fmt.Sprint(w.stateOf("redisstream_shard_count.orders")["shard_count"]); got != "2" {
		t.Errorf("shard_count in the state is %s", got)
	}

	cmd, out := w.start([]string{"TF_LOG_PROVIDER=INFO"}, "apply", "-auto-approve", "-var=shards=4")
	eventually(t, "the second apply attaches", func() bool { return strings.Contains(out.String(), "attaching to a resharding") })
	ack()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text := unwrap(out.String()); !strings.Contains(text, "is already on its way to 4 shards") {
		t.Errorf("the plan does not say that it attaches:\n%s", out)
	}
	if after := c.changesOf(t, prefix); after != before {
		t.Errorf("%d more requests for a change", after-before)
	}
	if r, err := c.client.Resharding(t.Context(), prefix, id, "", 0); err != nil || r.Phase != protocol.PhaseCompleted {
		t.Errorf("the resharding ended as %s, %v", r.Phase, err)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=4")
}

// T3: versions and epochs move between plan and apply, and nothing is inconsistent.
func TestAccT3VolatileValues(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, c.config(heldConfig, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	w.write("main.tf", strings.Replace(w.read("main.tf"), "= \"billing\"", "= \"billing\"\n  rebalance_timeout   = \"2m\"", 1))
	w.terraform(0, nil, "plan", "-out=plan.bin", "-var=shards=3")
	beat := protocol.HeartbeatRequest{
		ProtocolVersion: protocol.HeartbeatVersion, RequestID: "join", MemberID: "m", Incarnation: strings.Repeat("1", 32),
		RuntimeConsumerCapacity: protocol.Capacity{RuntimeMaxConcurrency: 1, AvailableConcurrency: 1},
		OwnedShards:             []protocol.Shard{}, RevokingShards: []protocol.RevokingShard{}, ShardProgress: []protocol.ShardProgress{},
	}
	for _, epoch := range []int64{0, protocol.EpochLeave} { // two rebalances
		beat.MemberEpoch = epoch
		if _, _, err := c.client.Heartbeat(t.Context(), prefix, "billing", beat); err != nil {
			t.Fatal(err)
		}
	}
	if g, err := c.client.Group(t.Context(), prefix, "billing"); err != nil || fmt.Sprint(g.GroupEpoch) == fmt.Sprint(w.stateOf("redisstream_stream_group.billing")["group_epoch"]) {
		t.Errorf("the group's epoch has not moved: %+v, %v", g, err)
	}
	if _, err := c.client.PutGroup(t.Context(), prefix, "others", protocol.PutGroupRequest{}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.PausePublishing(t.Context(), prefix, protocol.PauseRequest{TimeoutMs: 60_000}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	w.terraform(0, nil, "apply", "plan.bin")
	if _, err := c.client.ResumePublishing(t.Context(), prefix, protocol.ResumeRequest{}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=3")
	w.terraform(0, nil, "apply", "-auto-approve", "-refresh=false", "-var=shards=4")
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=4")
}

// T6: a changed number is a change in place, and what holds data is not destroyed by accident.
func TestAccT6DataIsKept(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, c.config(heldConfig, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=4")
	c.hold(t, prefix, "billing")
	out := unwrap(w.terraform(1, nil, "destroy", "-auto-approve", "-target=redisstream_stream_group.billing", "-var=shards=4"))
	for _, want := range []string{"Now: 1 pending entry on shard 0.", "billing", "has not finished"} {
		if !strings.Contains(out, want) {
			t.Errorf("destroy of a group that has read and not acknowledged does not say %q:\n%s", want, out)
		}
	}
	if pending, err := c.redis.XPending(t.Context(), protocol.ShardKey(prefix, 0), "billing").Result(); err != nil || pending.Count != 1 {
		t.Errorf("pending afterwards: %+v, %v", pending, err)
	}
	forced := strings.Replace(c.config(heldConfig, prefix), "consumer_group      = \"billing\"", "consumer_group      = \"billing\"\n  force_destroy = true", 1)
	w.write("main.tf", "terraform {\n  required_providers {\n    redisstream = { source = \"redisstream/redisstream\" }\n  }\n}\n"+forced)
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=4")
	out = unwrap(w.terraform(0, nil, "destroy", "-auto-approve", "-target=redisstream_stream_group.billing", "-var=shards=4"))
	for _, want := range []string{"force_destroy is set", "gives up 1 pending entry on shard 0", protocol.NoteBacklogLost} {
		if !strings.Contains(out, want) {
			t.Errorf("a destroy by force does not say %q:\n%s", want, out)
		}
	}
	if groups, err := c.redis.XInfoGroups(t.Context(), protocol.ShardKey(prefix, 0)).Result(); err != nil || len(groups) != 0 {
		t.Errorf("groups afterwards: %+v, %v", groups, err)
	}
	if n, err := c.redis.XLen(t.Context(), protocol.ShardKey(prefix, 0)).Result(); err != nil || n != 1 {
		t.Errorf("entries afterwards: %d, %v", n, err)
	}
}

// Two workspaces plan a change of one stream and apply at once: one wins; the other is told, and
// nothing of it is done.
func TestAccTwoWorkspaces(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := c.config(`
variable "shards" { type = number }
resource "redisstream_shard_count" "orders" {
  stream_prefix = %q
  shard_count   = var.shards
}
`, prefix)
	spaces := map[string]*workdir{"blue": newWorkdir(t, config), "green": newWorkdir(t, config)}
	other := map[string]string{"blue": "green", "green": "blue"}
	for name, w := range spaces {
		w.terraform(0, nil, "workspace", "new", name)
	}
	// race applies in both at once, and says who won and what the other was told.
	race := func(args map[string][]string) (winner, lost string) {
		t.Helper()
		var mu sync.Mutex
		var running sync.WaitGroup
		won := []string{}
		for name, w := range spaces {
			cmd, out := w.start(nil, append([]string{"apply"}, args[name]...)...)
			running.Go(func() {
				err := cmd.Wait()
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, name)
				} else {
					lost += out.String()
				}
			})
		}
		running.Wait()
		if len(won) != 1 || strings.Count(lost, "Error: ") != 1 {
			t.Fatalf("%q of two applies succeeded:\n%s", won, lost)
		}
		return won[0], unwrap(lost)
	}
	says := func(lost string, either ...string) {
		t.Helper()
		for _, words := range either {
			if strings.Contains(lost, words) {
				return
			}
		}
		t.Errorf("the loser is told none of %q:\n%s", either, lost)
	}

	create := []string{"-auto-approve", "-var=shards=2"}
	winner, lost := race(map[string][]string{"blue": create, "green": create})
	says(lost, fmt.Sprintf("it was made by \"terraform:%s\"", winner), "changed meanwhile")
	spaces[other[winner]].terraform(0, nil, "import", "-var=shards=2", "redisstream_shard_count.orders", prefix)

	wants := map[string]int{"blue": 4, "green": 6}
	for name, n := range wants {
		spaces[name].terraform(0, nil, "plan", "-out=plan.bin", fmt.Sprintf("-var=shards=%d", n))
	}
	winner, lost = race(map[string][]string{"blue": {"plan.bin"}, "green": {"plan.bin"}})
	says(lost, "changed since the plan", "changed meanwhile", "Another resharding is running")
	list, err := c.client.Reshardings(t.Context(), prefix)
	if err != nil || len(list.Reshardings) != 2 || list.Reshardings[0].ToShardCount != wants[winner] || list.Reshardings[0].RequestedBy != "terraform:"+winner {
		t.Errorf("%s won, reshardings: %+v, %v", winner, list.Reshardings, err)
	}
	spaces[winner].terraform(0, nil, "plan", "-detailed-exitcode", fmt.Sprintf("-var=shards=%d", wants[winner]))
}

// A plan of many resources with nothing to do asks once for each of them, and no more at a time
// than Terraform has walkers. How long it takes is measured by make bench.
func TestAccPlanOfManyStreams(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	var mu sync.Mutex
	asked, at, most := map[string]int{}, 0, 0
	forward := newProxy(c)
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.Method]++
		at++
		most = max(most, at)
		mu.Unlock()
		forward.ServeHTTP(w, r)
		mu.Lock()
		at--
		mu.Unlock()
	}))
	t.Cleanup(counting.Close)
	streams := *manyStreams
	w := newWorkdir(t, providerBlock(counting.URL, password)+fmt.Sprintf(`
resource "redisstream_shard_count" "s" {
  count         = %d
  stream_prefix = "%s-${count.index}"
  shard_count   = 1
}
resource "redisstream_stream_group" "g" {
  count          = %d
  stream_prefix  = redisstream_shard_count.s[floor(count.index / 3)].stream_prefix
  consumer_group = "g${count.index %% 3}"
}
`, streams, prefix, 3*streams))
	w.terraform(0, nil, "apply", "-auto-approve")
	mu.Lock()
	clear(asked)
	most = 0
	mu.Unlock()
	w.terraform(0, nil, "plan", "-detailed-exitcode")
	mu.Lock()
	defer mu.Unlock()
	t.Logf("plan of %d streams and %d groups: requests %v, at most %d at once", streams, 3*streams, asked, most)
	if asked["GET"] > 4*streams+2 || len(asked) != 1 || most > 10 {
		t.Errorf("requests %v, at most %d at once", asked, most)
	}
}

// oneArgument is one of a resource, alone: what it makes of the defaults that the coordinator has.
type oneArgument[spec any] struct {
	name, text string
	set        func(*spec) // nil for what the coordinator has no part in
}

// complete wants every argument of the schema, but for those that cannot be changed in place.
func complete[spec any](t *testing.T, r resource.Resource, arguments []oneArgument[spec], fixed ...string) {
	t.Helper()
	var resp resource.SchemaResponse
	r.Schema(t.Context(), resource.SchemaRequest{}, &resp)
	for name, a := range resp.Schema.Attributes {
		tried := func(o oneArgument[spec]) bool { return strings.Split(o.name, "-")[0] == name }
		if (a.IsRequired() || a.IsOptional()) && !slices.Contains(fixed, name) && !slices.ContainsFunc(arguments, tried) {
			t.Errorf("%T: %s is not among the arguments that are changed", r, name)
		}
	}
}

// Each argument alone: an update in place of the base and one back to it, nothing to do after
// either, and the coordinator has what was set and nothing else. Every argument has a stream or a
// group of its own, so that two applies do for all of them.
func TestAccEachArgument(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	streams := []oneArgument[protocol.StreamSpec]{
		{"shard_count", "", func(s *protocol.StreamSpec) { s.ShardCount = 3 }}, // the base has it as well: 2
		{"strategy", `strategy = "online"`, func(s *protocol.StreamSpec) { s.Resharding.Strategy = protocol.StrategyOnline }},
		{"drain_scope", `drain_scope = "removed"`, func(s *protocol.StreamSpec) { s.Resharding.DrainScope = protocol.DrainRemoved }},
		{"retire", `retire = "archive"`, func(s *protocol.StreamSpec) { s.Resharding.Retire = protocol.RetireArchive }},
		{"pause_timeout", `pause_timeout = "20s"`, func(s *protocol.StreamSpec) { s.Resharding.PauseTimeoutMs = 20_000 }},
		{"drain_timeout", `drain_timeout = "20m"`, func(s *protocol.StreamSpec) { s.Resharding.DrainTimeoutMs = 1_200_000 }},
		{"on_timeout", `on_timeout = "fail"`, func(s *protocol.StreamSpec) { s.Resharding.OnTimeout = protocol.OnTimeoutFail }},
		{"ignore_groups", `ignore_groups = ["old"]`, func(s *protocol.StreamSpec) { s.Resharding.IgnoreGroups = []string{"old"} }},
		{"retention-acked", `retention = { policy = "acked" }`, func(s *protocol.StreamSpec) { s.Retention.Policy = protocol.RetentionAcked }},
		{"retention-max_age", `retention = { policy = "max_age", max_age = "1h" }`, func(s *protocol.StreamSpec) {
			s.Retention = protocol.Retention{Policy: protocol.RetentionMaxAge, MaxAgeMs: 3_600_000}
		}},
		{"retention-max_len", `retention = { policy = "max_len", max_len = 1000 }`, func(s *protocol.StreamSpec) {
			s.Retention = protocol.Retention{Policy: protocol.RetentionMaxLen, MaxLen: 1000}
		}},
		{"deletion_protection", `deletion_protection = false`, nil},
		{"skip_destroy", `skip_destroy = true`, nil},
		{"force_destroy", fmt.Sprintf("force_destroy = %q", prefix+"-force_destroy"), nil},
		{"reason", `reason = "more to do"`, nil}, // a change of it alone is none
		{"timeouts-create", `timeouts = { create = "5m" }`, nil},
		{"timeouts-update", `timeouts = { update = "5m" }`, nil},
		{"timeouts-delete", `timeouts = { delete = "5m" }`, nil},
	}
	groups := []oneArgument[protocol.GroupSpec]{
		{"member_lease", `member_lease = "30s"`, func(g *protocol.GroupSpec) { g.MemberLeaseMs, g.HeartbeatIntervalMs = 30_000, 6000 }},
		{"heartbeat_interval", `heartbeat_interval = "2s"`, func(g *protocol.GroupSpec) { g.MemberLeaseMs, g.HeartbeatIntervalMs = 10_000, 2000 }},
		{"rebalance_timeout", `rebalance_timeout = "10s"`, func(g *protocol.GroupSpec) { g.RebalanceTimeoutMs = 10_000 }},
		{"deletion_protection", `deletion_protection = false`, nil},
		{"skip_destroy", `skip_destroy = true`, nil},
		{"force_destroy", `force_destroy = true`, nil},
		{"reason", `reason = "more to do"`, nil}, // a change of it alone is none
		{"timeouts-create", `timeouts = { create = "1m" }`, nil},
		{"timeouts-update", `timeouts = { update = "1m" }`, nil},
		{"timeouts-delete", `timeouts = { delete = "1m" }`, nil},
	}
	complete(t, &shardCountResource{}, streams, "stream_prefix")
	complete(t, &streamGroupResource{}, groups, "stream_prefix", "consumer_group", "start_position")
	changed := len(streams) + len(groups) - 2 // all but the reasons
	config := func(set bool) string {
		text := "terraform {\n  required_providers {\n    redisstream = { source = \"redisstream/redisstream\" }\n  }\n}\n" +
			c.config("resource \"redisstream_shard_count\" \"groups\" {\n  stream_prefix = %q\n  shard_count = 1\n}\n", prefix)
		for _, a := range streams {
			shards := 2
			switch {
			case !set:
				a.text = ""
			case a.name == "shard_count":
				shards = 3
			}
			text += fmt.Sprintf("resource \"redisstream_shard_count\" %q {\n  stream_prefix = %q\n  shard_count = %d\n  %s\n}\n", a.name, prefix+"-"+a.name, shards, a.text)
		}
		for _, a := range groups {
			if !set {
				a.text = ""
			}
			text += fmt.Sprintf("resource \"redisstream_stream_group\" %q {\n  stream_prefix = redisstream_shard_count.groups.stream_prefix\n  consumer_group = %q\n  %s\n}\n", a.name, a.name, a.text)
		}
		return text
	}
	// compare wants the defaults of the coordinator, with what was set, and one generation more for
	// each change that the coordinator was told of.
	compare := func(set bool, changes int64) {
		t.Helper()
		for _, a := range streams {
			want, generation := protocol.StreamSpec{ShardCount: 2, Resharding: protocol.DefaultPolicy(), Retention: protocol.Retention{}.WithDefaults()}, int64(1)
			if a.set != nil {
				generation += changes
				if set {
					a.set(&want)
				}
			}
			s, err := c.client.Stream(t.Context(), prefix+"-"+a.name)
			if len(s.Spec.Resharding.IgnoreGroups) == 0 {
				s.Spec.Resharding.IgnoreGroups = nil
			}
			if err != nil || !reflect.DeepEqual(s.Spec, want) || s.Generation != generation || s.Status.ShardCount != want.ShardCount {
				t.Errorf("%s of a stream, set: %t: generation %d with %d shards and %+v, want generation %d with %+v; %v", a.name, set, s.Generation, s.Status.ShardCount, s.Spec, generation, want, err)
			}
		}
		for _, a := range groups {
			want, generation := protocol.DefaultGroupSpec(), int64(1)
			if a.set != nil {
				generation += changes
				if set {
					a.set(&want)
				}
			}
			g, err := c.client.Group(t.Context(), prefix, a.name)
			if err != nil || g.Spec != want || g.Generation != generation {
				t.Errorf("%s of a group, set: %t: generation %d with %+v, want generation %d with %+v; %v", a.name, set, g.Generation, g.Spec, generation, want, err)
			}
		}
	}

	w := newWorkdir(t, "")
	for changes, set := range []bool{false, true, false} {
		w.write("main.tf", config(set))
		says := fmt.Sprintf("0 added, %d changed, 0 destroyed", changed)
		if changes == 0 {
			says = fmt.Sprintf("%d added, 0 changed, 0 destroyed", len(streams)+len(groups)+1)
		}
		if out := w.terraform(0, nil, "apply", "-auto-approve", "-no-color"); !strings.Contains(out, says) {
			t.Errorf("set: %t: not %q:\n%s", set, says, out)
		}
		w.terraform(0, nil, "plan", "-detailed-exitcode")
		compare(set, int64(changes))
		for _, address := range []string{"redisstream_shard_count.reason", "redisstream_stream_group.reason"} {
			if state := w.stateOf(address); state["reason"] != "" {
				t.Errorf("%s, set: %t: the state has the reason %v, but no change was made for it", address, set, state["reason"])
			}
		}
	}
}

// What somebody else has deleted is planned anew.
func TestAccDisappears(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, c.config(heldConfig, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	if err := c.client.DeleteGroup(t.Context(), prefix, "billing", protocol.DeleteGroupRequest{RequestedBy: "somebody", Reason: "test"}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	if out := unwrap(w.terraform(2, nil, "plan", "-detailed-exitcode", "-no-color", "-var=shards=2")); !strings.Contains(out, "Consumer group is gone") || !strings.Contains(out, "1 to add, 0 to change, 0 to destroy") {
		t.Errorf("after the group is deleted:\n%s", out)
	}
	if err := c.client.DeleteStream(t.Context(), prefix, protocol.DeleteStreamRequest{Force: true, Confirm: prefix, RequestedBy: "somebody", Reason: "test"}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is gone", func() bool {
		_, err := c.client.Stream(t.Context(), prefix)
		return errors.Is(err, protocol.ErrStreamNotFound)
	})
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
}

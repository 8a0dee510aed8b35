//go:build unix

package provider

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// environment lists all variables that stand in for arguments.
var environment = []string{
	envEndpoint, envEndpoints, envUsername, envPassword, envToken, envTokenFile, envCA, envCAFile, envClientCert, envClientCertFile,
	envClientKey, envClientKeyFile, envInsecure, envRequestID, envRequestedBy, envRetryBudget,
}

// Everything that the provider has stands in the examples, from which its pages are made.
func TestEverythingHasAnExample(t *testing.T) {
	t.Parallel()
	c := offline(t)
	want := map[string]string{}
	for name := range c.schema.ResourceSchemas {
		want["resources/"+name] = "resource.tf"
	}
	for name := range c.schema.DataSourceSchemas {
		want["data-sources/"+name] = "data-source.tf"
	}
	for name := range c.schema.Functions {
		want["functions/"+name] = "function.tf"
	}
	for name := range c.schema.EphemeralResourceSchemas {
		want["ephemeral-resources/"+name] = "ephemeral-resource.tf"
	}
	for name := range c.schema.ActionSchemas {
		want["actions/"+name] = "action.tf"
	}
	for name := range c.schema.ListResourceSchemas {
		want["list-resources/"+name] = "list-resource.tfquery.hcl"
	}
	if len(want) < 20 {
		t.Errorf("only %d things", len(want))
	}
	index, err := os.ReadFile("../docs/index.md")
	if err != nil {
		t.Fatal(err)
	}
	for dir, file := range want {
		if _, err := os.Stat(filepath.Join("../examples", dir, file)); err != nil {
			t.Error(err)
		}
		kind, name, _ := strings.Cut(dir, "/")
		page := filepath.Join(kind, strings.TrimPrefix(name, "redisstream_")+".md")
		if _, err := os.Stat(filepath.Join("../docs", page)); err != nil {
			t.Errorf("%v; run make generate", err)
		}
		if !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("docs/index.md does not name %s", page)
		}
	}
	for _, env := range environment {
		if !strings.Contains(string(index), env) {
			t.Errorf("docs/index.md does not name %s", env)
		}
	}
}

// Every example is one that Terraform takes, as far as this one can: it knows no actions and no
// lists yet.
func TestAccExamplesAreValid(t *testing.T) {
	acceptance(t)
	w := newWorkdir(t, "")
	var root strings.Builder
	n := 0
	for _, pattern := range []string{"provider/*.tf", "resources/*/resource*.tf", "data-sources/*/*.tf", "functions/*/*.tf", "ephemeral-resources/*/*.tf"} {
		files, err := filepath.Glob(filepath.Join("../examples", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n++
			dir := fmt.Sprintf("m%d", n)
			if err := os.Mkdir(filepath.Join(w.dir, dir), 0o700); err != nil {
				t.Fatal(err)
			}
			w.write(filepath.Join(dir, filepath.Base(file)), string(text))
			if !strings.Contains(string(text), "required_providers") {
				w.write(filepath.Join(dir, "versions.tf"), "terraform {\n  required_providers {\n    redisstream = { source = \"redisstream/redisstream\" }\n  }\n}\n")
			}
			fmt.Fprintf(&root, "module %q {\n  source = \"./%s\"\n}\n", dir, dir)
		}
	}
	w.write("examples.tf", root.String())
	w.terraform(0, nil, "get")
	w.terraform(0, nil, "validate")
}

// The examples of data sources, and what the guides read, applied at a coordinator whose audit log has what runs of Terraform do
// not leave: events without requester and reason, and without an authenticated user.
func TestAccDataSourceExamples(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	const id = "by-hand-1"
	for _, count := range []int64{2, 3} {
		_, err := c.client.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &count}, client.Call{RequestID: id})
		if err != nil {
			t.Fatal(err)
		}
		converged(t, c, prefix, count)
	}
	if _, err := c.client.PutGroup(t.Context(), prefix, "billing", protocol.PutGroupRequest{}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(c.url+"/coord/v1/streams/"+prefix+"/scale", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()

	w := newWorkdir(t, "", envEndpoint+"="+c.url, envUsername+"=admin", envPassword+"="+password)
	files, err := filepath.Glob("../examples/data-sources/*/*.tf")
	if err != nil || len(files) < 8 {
		t.Fatalf("%v, %v", files, err)
	}
	year := time.Now().Year()
	place := strings.NewReplacer(`= "orders"`, "= "+strconv.Quote(prefix), "2026-01-01T", fmt.Sprint(year-1)+"-01-01T", "2026-02-01T", fmt.Sprint(year+2)+"-01-01T")
	var root strings.Builder
	example := func(name, text string) {
		if err := os.Mkdir(filepath.Join(w.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		w.write(filepath.Join(name, "example.tf"), "terraform {\n  required_providers {\n    redisstream = { source = \"redisstream/redisstream\" }\n  }\n}\n"+place.Replace(text))
		fmt.Fprintf(&root, "module %[1]q {\n  source = \"./%[1]s\"\n}\noutput %[1]q {\n  value = module.%[1]s\n}\n", name)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		example(filepath.Base(filepath.Dir(file)), string(text))
	}
	for i, block := range readingBlocks(t) {
		example(fmt.Sprintf("guide_%d", i), block)
	}
	// Beside the examples: every event of every kind, and those of one id of a client.
	fmt.Fprintf(&root, `
data "redisstream_audit_events" "all" {
  stream_prefix = %q
}
output "unauthenticated" {
  value = [for e in data.redisstream_audit_events.all.events : "${coalesce(e.principal, "nobody")} ${e.outcome}" if e.principal == null]
}
data "redisstream_audit_events" "one" {
  request_id = %q
}
output "by_client_id" {
  value = length(data.redisstream_audit_events.one.events)
}
`, prefix, id)
	w.write("examples.tf", root.String())
	w.terraform(0, nil, "get")
	w.terraform(0, nil, "apply", "-auto-approve")
	var out map[string]struct{ Value any }
	if err := json.Unmarshal([]byte(w.terraform(0, nil, "output", "-json")), &out); err != nil {
		t.Fatal(err)
	}
	changes, _ := out["redisstream_audit_events"].Value.(map[string]any)["changes"].([]any)
	if len(changes) != 2 || !strings.HasSuffix(fmt.Sprint(changes[0]), "admin for nobody shardCount=3 no reason") {
		t.Errorf("changes: %q", changes)
	}
	if v := out["redisstream_resharding"].Value.(map[string]any)["still_holds"]; v != "true" && v != true {
		t.Errorf("recheck: %v", v)
	}
	if v := fmt.Sprint(out["unauthenticated"].Value); v != "[nobody UNAUTHORIZED]" {
		t.Errorf("unauthenticated: %s", v)
	}
	if v := fmt.Sprint(out["by_client_id"].Value); v != "2" {
		t.Errorf("%s events of the client's id", v)
	}
}

// readingBlocks are the blocks of Terraform in the guides that show something.
func readingBlocks(t *testing.T) []string {
	t.Helper()
	guides, err := filepath.Glob("../templates/guides/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("%v, %v", guides, err)
	}
	var blocks []string
	for _, guide := range guides {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?s)```terraform\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(block[1], "data \"") && strings.Contains(block[1], "output \"") {
				blocks = append(blocks, block[1])
			}
		}
	}
	if len(blocks) < 4 {
		t.Fatalf("the guides show %d things", len(blocks))
	}
	return blocks
}

// converged waits until the stream has this shard count and nothing is on its way.
func converged(t *testing.T, c *coordinator, prefix string, count int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s, err := c.client.Stream(t.Context(), prefix)
		if err == nil && s.Status.ShardCount == int(count) && s.Status.ActiveReshardingID == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("stream %s: last seen %+v, %v", prefix, s.Status, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// The example module, applied: two streams, three groups, and its checks hold.
func TestAccExampleModule(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	namespace := redistest.Prefix(t)
	w := newWorkdir(t, "", envEndpoint+"="+c.url, envUsername+"=admin", envPassword+"="+password,
		"TF_VAR_namespace="+namespace, "TF_VAR_deletion_protection=false", "TF_VAR_run=run-1", "TF_VAR_reason=ticket 7")
	files, err := filepath.Glob("../examples/shop/*.tf")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.write(filepath.Base(file), string(text))
	}
	w.terraform(0, nil, "validate")
	out := w.terraform(0, nil, "apply", "-auto-approve", "-var=orders_shards=4")
	if !strings.Contains(out, "5 added") || strings.Contains(out, "Warning: Check block assertion") {
		t.Errorf("apply:\n%s", out)
	}
	out = w.terraform(0, nil, "apply", "-auto-approve", "-var=orders_shards=6")
	if !strings.Contains(out, "1 changed") || strings.Contains(out, "Check block assertion") {
		t.Errorf("resharding:\n%s", out)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=orders_shards=6")
	s, err := c.client.Stream(t.Context(), namespace+".orders")
	if err != nil || s.Status.ShardCount != 6 || len(s.Groups) != 2 {
		t.Errorf("orders: %+v, %v", s, err)
	}
	events, err := c.client.AuditEvents(t.Context(), client.AuditQuery{StreamPrefix: namespace + ".orders", Outcome: "SUCCESS"})
	if err != nil || len(events.Events) == 0 {
		t.Fatalf("%+v, %v", events, err)
	}
	for _, e := range events.Events {
		if e.Reason != "ticket 7" || !strings.HasPrefix(e.ClientRequest, "run-1:") {
			t.Errorf("event: %+v", e)
		}
	}

	// A check that fails is a warning that says what is on its way.
	if _, err := c.client.PausePublishing(t.Context(), namespace+".clicks", protocol.PauseRequest{TimeoutMs: 60_000}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	if out := unwrap(w.terraform(0, nil, "plan", "-var=orders_shards=6")); !strings.Contains(out, "Publishing is paused on: "+namespace+".clicks") {
		t.Errorf("plan while publishing is paused:\n%s", out)
	}
	if _, err := c.client.ResumePublishing(t.Context(), namespace+".clicks", protocol.ResumeRequest{}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	w.terraform(0, nil, "destroy", "-auto-approve", "-var=orders_shards=6")
}

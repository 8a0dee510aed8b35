//go:build unix

package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

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

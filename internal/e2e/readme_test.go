package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/child"
)

// TestReadme: `redis-stream-coordinator dev`, then the README's HCL, exactly as they stand there,
// with the environment that dev prints; a changed shard count is applied in place, and the plan
// is empty afterwards.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```hcl\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 2 {
		t.Fatalf("the README has %d HCL blocks, want the configuration and dev_overrides", len(blocks))
	}
	work, bin := t.TempDir(), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../../cmd/...").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	d := &terraformDir{t: t, program: terraformCLI(t), dir: work}
	cli := d.write("cli.tfrc", strings.ReplaceAll(blocks[1][1], "/path/to/this/repository/build", bin))
	hcl := blocks[0][1]
	d.write("main.tf", hcl)

	addr, _, err := child.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dev, err := child.Start(t.Context(), work, "dev", nil, filepath.Join(bin, "redis-stream-coordinator"), "dev", "--listen", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Stop)
	env := append(os.Environ(), "TF_CLI_CONFIG_FILE="+cli, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	printed := regexp.MustCompile(`export (REDISSTREAM_\w+)='(.*)'`)
	for deadline := time.Now().Add(20 * time.Second); ; {
		text, err := os.ReadFile(filepath.Join(work, "dev.log"))
		if err != nil {
			t.Fatal(err)
		}
		if found := printed.FindAllStringSubmatch(string(text), -1); len(found) == 3 {
			for _, f := range found {
				env = append(env, f[1]+"="+f[2])
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("dev does not print its environment:\n%s", text)
		}
		_ = pause(t.Context(), 20*time.Millisecond)
	}
	d.env = env
	d.run(0, "apply", "-auto-approve", "-input=false", "-no-color")
	d.run(0, "plan", "-detailed-exitcode", "-input=false", "-no-color")
	changed := strings.Replace(hcl, "shard_count   = 4", "shard_count   = 7", 1)
	if changed == hcl {
		t.Fatal("the README's HCL has no shard_count = 4 to change")
	}
	d.write("main.tf", changed)
	if out := d.run(0, "apply", "-auto-approve", "-input=false", "-no-color"); !strings.Contains(out, "0 added, 1 changed, 0 destroyed") {
		t.Errorf("the change was not in place:\n%s", out)
	}
	d.run(0, "plan", "-detailed-exitcode", "-input=false", "-no-color")
	if out := d.run(0, "show", "-json"); !strings.Contains(out, fmt.Sprintf("%q", "orders:6")) {
		t.Errorf("the state does not show the new shards:\n%s", out)
	}
}

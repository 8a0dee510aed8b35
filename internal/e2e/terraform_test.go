package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/ledger"
	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// providerBinary is the directory with the provider, built once for all tests.
var providerBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir, "github.com/redisstream/terraform-provider-redisstream/cmd/terraform-provider-redisstream").CombinedOutput()
	if err != nil {
		return "", &buildError{err, out}
	}
	return dir, nil
})

// terraformCLI is the Terraform of the tests.
func terraformCLI(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("TF_ACC_TERRAFORM_PATH"); path != "" {
		return path
	}
	path, err := exec.LookPath("terraform")
	if err != nil {
		t.Fatal("no Terraform CLI: put terraform on the PATH, or run `make setup`")
	}
	return path
}

// terraformDir is a working directory with a configuration, and the provider of this repository.
type terraformDir struct {
	t       *testing.T
	program string
	dir     string
	env     []string
}

func newTerraformDir(t *testing.T, hcl string, env ...string) *terraformDir {
	t.Helper()
	provider, err := providerBinary()
	if err != nil {
		t.Fatal(err)
	}
	d := &terraformDir{t: t, program: terraformCLI(t), dir: t.TempDir()}
	cli := d.write("cli.tfrc", toolchain.DevOverrides(toolchain.ProviderSource, provider))
	d.write("main.tf", "terraform {\n  required_providers {\n    redisstream = { source = \"redisstream/redisstream\" }\n  }\n}\n"+hcl)
	d.env = append(append(os.Environ(), "TF_CLI_CONFIG_FILE="+cli, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1"), env...)
	return d
}

func (d *terraformDir) write(name, text string) string {
	d.t.Helper()
	path := filepath.Join(d.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// start runs terraform; its output is complete after Wait.
func (d *terraformDir) start(args ...string) (*exec.Cmd, *bytes.Buffer) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), d.program, args...)
	out := &bytes.Buffer{}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.dir, d.env, out, out
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	return cmd, out
}

// run runs terraform to its end and wants this exit code.
func (d *terraformDir) run(code int, args ...string) string {
	d.t.Helper()
	cmd, out := d.start(args...)
	_ = cmd.Wait() // the exit code says it
	if got := cmd.ProcessState.ExitCode(); got != code {
		d.t.Fatalf("terraform %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out.String()
}

// TestApplyWhileTheCoordinatorIsKilled: one terraform apply of 8 → 3 under load, in whose course
// the only coordinator is SIGKILLed twice, before and after the layout has changed. The apply
// succeeds, nothing is lost, the order of every key is kept, and there was one resharding.
func TestApplyWhileTheCoordinatorIsKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	keyPrefix, prefix := redistest.KeyPrefix(t), redistest.Prefix(t)
	c := startCoordinator(t, redis.URL(), keyPrefix, "")
	d := newTerraformDir(t, fmt.Sprintf(`
variable "shards" { type = number }
resource "redisstream_shard_count" "orders" {
  stream_prefix = %q
  shard_count   = var.shards
}
resource "redisstream_stream_group" "billing" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "billing"
}
`, prefix), "REDISSTREAM_ENDPOINT="+c.url(), "REDISSTREAM_USERNAME="+username, "REDISSTREAM_PASSWORD="+password)
	d.run(0, "apply", "-auto-approve", "-input=false", "-no-color", "-var=shards=8")

	tr := startTraffic(t, redis.Client(t), prefix, "billing", trafficConfig{producers: 2, consumers: 2, keys: 64, perSecond: 500}, func() *client.Client { return connect(t, c.url()) })
	tr.until("traffic", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > 200 })
	restart := func(fault string) {
		c.conf.Env = []string{"RSC_KEY_PREFIX=" + keyPrefix, "RSC_FAULT=" + fault}
		c.start()
	}
	c.kill()
	restart("DECIDE#1")
	apply, out := d.start("apply", "-auto-approve", "-input=false", "-no-color", "-var=shards=3")
	c.awaitDeath(40 * time.Second)
	restart("RETIRE#2")
	c.awaitDeath(40 * time.Second)
	restart("")
	if err := apply.Wait(); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	if text := out.String(); !strings.Contains(text, "0 added, 1 changed, 0 destroyed") {
		t.Errorf("the change was not in place:\n%s", text)
	}
	d.run(0, "plan", "-detailed-exitcode", "-input=false", "-no-color", "-var=shards=3")
	list, err := connect(t, c.url()).Reshardings(t.Context(), prefix)
	if err != nil || len(list.Reshardings) != 2 || list.Reshardings[0].Phase != protocol.PhaseCompleted {
		t.Errorf("reshardings: %+v, %v", list.Reshardings, err)
	}
	from := tr.book.Count().Handled
	tr.until("traffic after it", 30*time.Second, func(t ledger.Tally) bool { return t.Handled > from+200 })
	tr.finish()
}

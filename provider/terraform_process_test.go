//go:build unix

package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// build makes the provider's binary, once for all tests.
var build = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp(scratch, "binary-"); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "terraform-provider-redisstream"), "../cmd/terraform-provider-redisstream").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the provider: %w\n%s", err, out)
	}
	return dir, nil
})

// workdir is a directory with a configuration, and Terraform with our binary in it.
type workdir struct {
	t   *testing.T
	dir string
	env []string
}

func newWorkdir(t *testing.T, config string, env ...string) *workdir {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	w := &workdir{t: t, dir: t.TempDir()}
	rc := filepath.Join(w.dir, "terraformrc")
	w.write("terraformrc", toolchain.DevOverrides(toolchain.ProviderSource, binary))
	w.write("main.tf", "terraform {\n  required_providers {\n    redisstream = { source = \"redisstream/redisstream\" }\n  }\n}\n"+config)
	w.env = append(append(os.Environ(), "TF_CLI_CONFIG_FILE="+rc, "TF_IN_AUTOMATION=1"), env...)
	return w
}

func (w *workdir) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *workdir) read(name string) string {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

// buffer collects the output of a process while it is being read.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start runs terraform in a process group of its own, as a shell does: Ctrl-C reaches the
// provider's process as well.
func (w *workdir) start(env []string, args ...string) (*exec.Cmd, *buffer) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	w.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Getenv("TF_ACC_TERRAFORM_PATH"), args...)
	out := &buffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, out, out
	cmd.Env = append(append([]string{}, w.env...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	return cmd, out
}

// terraform runs it to its end and wants this exit code.
func (w *workdir) terraform(code int, env []string, args ...string) string {
	w.t.Helper()
	cmd, out := w.start(env, args...)
	_ = cmd.Wait() // the exit code says it
	if got := cmd.ProcessState.ExitCode(); got != code {
		w.t.Fatalf("terraform %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return out.String()
}

// stateOf gives the attributes of a resource in the state.
func (w *workdir) stateOf(address string) map[string]any {
	w.t.Helper()
	var show struct {
		Values struct {
			RootModule struct {
				Resources []struct {
					Address string         `json:"address"`
					Values  map[string]any `json:"values"`
					Tainted bool           `json:"tainted"`
				} `json:"resources"`
			} `json:"root_module"`
		} `json:"values"`
	}
	cmd := exec.Command(os.Getenv("TF_ACC_TERRAFORM_PATH"), "show", "-json")
	cmd.Dir, cmd.Env = w.dir, w.env
	text, err := cmd.Output()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &show); err != nil {
		w.t.Fatalf("%v in %s", err, text)
	}
	for _, r := range show.Values.RootModule.Resources {
		if r.Address == address {
			if r.Tainted {
				w.t.Errorf("%s is tainted", address)
			}
			return r.Values
		}
	}
	return nil
}

// hold leaves one pending entry of the group on shard 0 and returns what acknowledges it.
func (c *coordinator) hold(t *testing.T, prefix, group string) (ack func()) {
	t.Helper()
	key := protocol.ShardKey(prefix, 0)
	id, err := c.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: key, Values: []string{"k", "v"}}).Result()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.redis.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: group, Consumer: "somebody", Streams: []string{key, ">"}, Count: 1, Block: -1}).Result(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if n, err := c.redis.XAck(t.Context(), key, group, id).Result(); err != nil || n != 1 {
			t.Errorf("acknowledge %s: %d, %v", id, n, err)
		}
	}
}

const heldConfig = `
variable "shards" { type = number }
resource "redisstream_shard_count" "orders" {
  stream_prefix       = %q
  shard_count         = var.shards
  deletion_protection = false
}
resource "redisstream_stream_group" "billing" {
  stream_prefix       = redisstream_shard_count.orders.stream_prefix
  consumer_group      = "billing"
  deletion_protection = false
}
`

// Ctrl-C during an apply; the next one attaches to the same resharding; then there is nothing
// left to do.
func TestAccT1Interrupted(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	w := newWorkdir(t, c.config(heldConfig, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=2")
	ack := c.hold(t, prefix, "billing")

	cmd, out := w.start(nil, "apply", "-auto-approve", "-var=shards=4")
	var id string
	eventually(t, "the resharding waits for the pending entry", func() bool {
		s, err := c.client.Stream(t.Context(), prefix)
		if err != nil || s.Status.ActiveReshardingID == "" {
			return false
		}
		id = s.Status.ActiveReshardingID
		r, err := c.client.Resharding(t.Context(), prefix, id, "", 0)
		return err == nil && r.Phase == protocol.PhaseDraining && len(r.WaitingFor) > 0
	})
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	interrupted := time.Now()
	_ = cmd.Wait() // the exit code says it
	if took, code := time.Since(interrupted), cmd.ProcessState.ExitCode(); took > 5*time.Second || code != 1 {
		t.Errorf("exit code %d after %s\n%s", code, took, out)
	}
	for _, want := range []string{id, "Interrupted while a resharding is running", "goes on"} {
		if !strings.Contains(unwrap(out.String()), want) {
			t.Errorf("output does not say %q:\n%s", want, out)
		}
	}
	state := w.stateOf("redisstream_shard_count.orders")
	if got := fmt.Sprint(state["shard_count"]); got != "2" {
		t.Errorf("shard_count in the state is %s", got)
	}
	if last, ok := state["last_resharding"].(map[string]any); !ok || last["id"] != id {
		t.Errorf("last_resharding in the state is %v, want id %s", state["last_resharding"], id)
	}
	if r, err := c.client.Resharding(t.Context(), prefix, id, "", 0); err != nil || r.Phase != protocol.PhaseDraining {
		t.Errorf("the resharding did not go on: %+v, %v", r, err)
	}

	cmd, out = w.start([]string{"TF_LOG_PROVIDER=INFO"}, "apply", "-auto-approve", "-var=shards=4")
	eventually(t, "the second apply attaches, and waits", func() bool {
		_, after, attached := strings.Cut(out.String(), "attaching to a resharding")
		return attached && strings.Contains(after, "resharding has entered phase DRAINING")
	})
	ack()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for phase, extra := range map[string]string{"DRAINING": "waiting_for=", "COMPLETED": "phase=COMPLETED"} {
		_, line, logged := strings.Cut(out.String(), "resharding has entered phase "+phase)
		line, _, _ = strings.Cut(line, "\n")
		for _, field := range []string{"from_shard_count=2", "to_shard_count=4", "resharding_id=" + id, extra} {
			if !logged || !strings.Contains(line, field) {
				t.Errorf("phase %s is not logged with %s: %q\n%s", phase, field, line, out)
			}
		}
	}
	list, err := c.client.Reshardings(t.Context(), prefix)
	if err != nil || len(list.Reshardings) != 2 || list.Reshardings[0].ReshardingID != id || list.Reshardings[0].Phase != protocol.PhaseCompleted {
		t.Errorf("reshardings: %+v, %v", list, err)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=4")
	w.terraform(0, nil, "destroy", "-auto-approve", "-var=shards=4")
}

// unwrap joins the lines of Terraform's boxed messages.
func unwrap(s string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(s)), " ")
}

// A drain that takes longer than the update may wait: the error shows what blocks, the state
// keeps the old count, and the next apply finishes the same resharding.
func TestAccT9Timeout(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := strings.Replace(heldConfig, "deletion_protection = false", "deletion_protection = false\n  timeouts = { update = \"1s\" }", 1)
	w := newWorkdir(t, c.config(config, prefix))
	w.terraform(0, nil, "apply", "-auto-approve", "-var=shards=3")
	ack := c.hold(t, prefix, "billing")
	out := unwrap(w.terraform(1, nil, "apply", "-auto-approve", "-var=shards=2"))
	for _, want := range []string{"Timed out while a resharding is running", "shard 0", "1 pending", "billing", "timeouts.update"} {
		if !strings.Contains(out, want) {
			t.Errorf("output does not say %q:\n%s", want, out)
		}
	}
	if got := fmt.Sprint(w.stateOf("redisstream_shard_count.orders")["shard_count"]); got != "3" {
		t.Errorf("shard_count in the state is %s", got)
	}
	ack()
	eventually(t, "the resharding ends by itself", func() bool {
		s, err := c.client.Stream(t.Context(), prefix)
		return err == nil && s.Status.ActiveReshardingID == "" && s.Status.ShardCount == 2
	})
	w.terraform(0, nil, "plan", "-detailed-exitcode", "-var=shards=2")
}

// What an import block generates is a configuration that plans nothing.
func TestAccT5GeneratedConfig(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	count := int64(3)
	_, err := c.client.PutStream(t.Context(), prefix, protocol.PutStreamRequest{ShardCount: &count, Resharding: protocol.ReshardingPolicy{
		Retire: protocol.RetireArchive, PauseTimeoutMs: 90_000, IgnoreGroups: []string{"old"}}}, client.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.PutGroup(t.Context(), prefix, "billing", protocol.PutGroupRequest{GroupSpec: protocol.GroupSpec{HeartbeatIntervalMs: 2000}}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream is laid out", func() bool {
		s, err := c.client.Stream(t.Context(), prefix)
		return err == nil && s.Status.ActiveReshardingID == ""
	})
	w := newWorkdir(t, c.config(`
import {
  to = redisstream_shard_count.x
  id = %[1]q
}
import {
  to = redisstream_stream_group.x
  id = "%[1]s/billing"
}
`, prefix))
	w.terraform(2, nil, "plan", "-detailed-exitcode", "-generate-config-out=generated.tf") // 2: imports are changes
	w.terraform(0, nil, "apply", "-auto-approve")
	w.terraform(0, nil, "plan", "-detailed-exitcode")
	if state := w.stateOf("redisstream_shard_count.x"); state["deletion_protection"] != true || state["pause_timeout"] != "1m30s" {
		t.Errorf("state: %v", state)
	}
	if out := unwrap(w.terraform(1, nil, "destroy", "-auto-approve")); !strings.Contains(out, "set deletion_protection = false") {
		t.Errorf("destroy of a protected stream says:\n%s", out)
	}
}

// Credentials do not show up anywhere: logs at TRACE, plan, state.
func TestAccT8Secrets(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	login, err := c.client.Login(t.Context(), "admin", password)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(login.AccessToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	clientCert, clientKey := newAuthority(t).issue("terraform")
	keyLines := strings.Split(strings.TrimSpace(clientKey), "\n")
	keyLines = keyLines[1 : len(keyLines)-1]
	config := fmt.Sprintf("provider \"redisstream\" {}\nresource \"redisstream_shard_count\" \"x\" {\n stream_prefix = %q\n shard_count = 2\n}\n", redistest.Prefix(t))
	opened := config + `
ephemeral "redisstream_token" "t" {
  ttl = "1m"
}
provider "redisstream" {
  alias = "opened"
  token = ephemeral.redisstream_token.t.token
}
data "redisstream_coordinator" "c" {
  provider = redisstream.opened
}
`
	header, _, _ := strings.Cut(login.AccessToken, ".") // of every token
	trace := "TF_LOG=TRACE"
	for name, tt := range map[string]struct {
		env     []string
		code    int
		secrets []string
	}{
		"password":             {[]string{envEndpoint + "=" + c.url, envUsername + "=admin", envPassword + "=" + password}, 0, []string{password}},
		"wrong password":       {[]string{envEndpoint + "=" + c.url, envUsername + "=admin", envPassword + "=Wr0ng-&-P4ssw0rd"}, 1, []string{"Wr0ng-&-P4ssw0rd"}},
		"token with a newline": {[]string{envEndpoint + "=" + c.url, envToken + "=" + login.AccessToken + "\n"}, 0, []string{login.AccessToken}},
		"broken token":         {[]string{envEndpoint + "=" + c.url, envToken + "=abc-T0k3n-d3f\rX-Evil: 1"}, 1, []string{"abc-T0k3n-d3f"}},
		"token file":           {[]string{envEndpoint + "=" + c.url, envTokenFile + "=" + tokenFile}, 0, []string{login.AccessToken}},
		"client key":           {[]string{envEndpoint + "=" + c.url, envUsername + "=admin", envPassword + "=" + password, envClientCert + "=" + clientCert, envClientKey + "=" + clientKey}, 0, keyLines},
		"token of the run":     {[]string{envEndpoint + "=" + c.url, envUsername + "=admin", envPassword + "=" + password}, 0, []string{password, header}},
		"password in the URL":  {[]string{envEndpoint + "=" + strings.Replace(c.url, "http://", "http://admin:Url-P4ssw0rd@", 1)}, 1, []string{"Url-P4ssw0rd"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkdir(t, config)
			if name == "token of the run" {
				w = newWorkdir(t, opened)
			}
			out := w.terraform(tt.code, append(tt.env, trace), "apply", "-auto-approve")
			if !strings.Contains(out, "[TRACE]") || !strings.Contains(out, "redisstream_shard_count") {
				t.Fatalf("this is no trace:\n%s", out)
			}
			if tt.code == 0 {
				w.terraform(0, tt.env, "plan", "-out=plan.bin")
				out += w.terraform(0, tt.env, "show", "-json", "plan.bin")
			}
			if state, err := os.ReadFile(filepath.Join(w.dir, "terraform.tfstate")); err == nil {
				out += string(state)
			}
			for _, secret := range tt.secrets {
				forms := []string{base64.StdEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte("admin:" + secret)), url.QueryEscape(secret)}
				for i := 0; i+8 <= min(len(secret), 200); i++ {
					forms = append(forms, secret[i:i+8])
				}
				for _, form := range forms {
					if at := strings.Index(out, form); at >= 0 {
						t.Fatalf("output shows %q: …%s…", form, out[max(0, at-200):min(len(out), at+50)])
					}
				}
			}
		})
	}
}

//go:build unix

package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/echoprovider"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// outputs gives the outputs of a configuration that was applied.
func (w *workdir) outputs() map[string]any {
	w.t.Helper()
	var all map[string]struct{ Value any }
	if err := json.Unmarshal([]byte(w.terraform(0, nil, "output", "-json")), &all); err != nil {
		w.t.Fatal(err)
	}
	out := map[string]any{}
	for name, o := range all {
		out[name] = o.Value
	}
	return out
}

const observingConfig = `
resource "redisstream_shard_count" "orders" {
  stream_prefix       = %[1]q
  shard_count         = 4
  deletion_protection = false
  pause_timeout       = "90s"
}
resource "redisstream_stream_group" "billing" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "billing"
  reason         = "ticket 42"

  deletion_protection = false
}
locals {
  group = redisstream_stream_group.billing.consumer_group
}
data "redisstream_stream" "it" {
  stream_prefix = redisstream_stream_group.billing.stream_prefix
}
data "redisstream_stream_group" "it" {
  stream_prefix  = redisstream_stream_group.billing.stream_prefix
  consumer_group = local.group
}
data "redisstream_stream_groups" "it" {
  stream_prefix = redisstream_stream_group.billing.stream_prefix
  depends_on    = [redisstream_stream_group.billing]
}
data "redisstream_routing" "it" {
  stream_prefix = redisstream_shard_count.orders.stream_prefix
  depends_on    = [redisstream_shard_count.orders]
}
data "redisstream_reshardings" "it" {
  stream_prefix = redisstream_shard_count.orders.stream_prefix
  depends_on    = [redisstream_shard_count.orders]
}
data "redisstream_resharding" "it" {
  stream_prefix = redisstream_shard_count.orders.stream_prefix
  id            = data.redisstream_reshardings.it.reshardings[0].id
}
data "redisstream_audit_events" "it" {
  stream_prefix = redisstream_stream_group.billing.stream_prefix
  action        = "PUT_GROUP"
  limit         = 5
  depends_on    = [redisstream_stream_group.billing]
}
data "redisstream_coordinator" "it" {}

output "stream" { value = data.redisstream_stream.it }
output "group" { value = data.redisstream_stream_group.it }
output "groups" { value = [for g in data.redisstream_stream_groups.it.groups : g.consumer_group] }
output "routing" { value = data.redisstream_routing.it }
output "resharding" { value = data.redisstream_resharding.it }
output "events" { value = data.redisstream_audit_events.it.events }
output "coordinator" { value = data.redisstream_coordinator.it }
output "index" { value = provider::redisstream::shard_index("customer-1", 4) }
output "keys" { value = provider::redisstream::shard_keys(%[1]q, 4) }
output "slot" { value = provider::redisstream::hash_slot("${redisstream_shard_count.orders.stream_prefix}:0") }
output "moved" { value = provider::redisstream::moved_fraction(4, 8) }
check "converged" {
  assert {
    condition     = data.redisstream_stream.it.converged && data.redisstream_stream_group.it.converged
    error_message = "not converged"
  }
}
`

// Every data source and function against a real coordinator, in one apply.
func TestAccObservation(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	block := strings.Replace(providerBlock(c.url, password), "}", "  request_id_prefix = \"run-7:\"\n}", 1)
	w := newWorkdir(t, block+fmt.Sprintf(observingConfig, prefix))
	if out := w.terraform(0, nil, "apply", "-auto-approve"); strings.Contains(out, "not converged") {
		t.Errorf("the check failed:\n%s", out)
	}
	w.terraform(0, nil, "plan", "-detailed-exitcode")

	out := w.outputs()
	at := func(path string) string {
		t.Helper()
		var v any = out
		for step := range strings.SplitSeq(path, ".") {
			switch x := v.(type) {
			case map[string]any:
				v = x[step]
			case []any:
				var n int
				if _, err := fmt.Sscan(step, &n); err != nil || n >= len(x) {
					t.Fatalf("%s: no element %s of %v", path, step, x)
				}
				v = x[n]
			}
		}
		return fmt.Sprint(v)
	}
	index, _ := protocol.ShardIndex([]byte("customer-1"), 4)
	for path, want := range map[string]string{
		"stream.shard_count": "4", "stream.converged": "true", "stream.pause_timeout": "1m30s", "stream.groups.0": "billing", "stream.shards.3.key": prefix + ":3",
		"stream.retention.policy": "none", "group.state": "EMPTY", "group.ready": "true", "group.member_lease": "15s", "groups": "[billing]",
		"routing.hash": protocol.HashName, "routing.shards.3.key": prefix + ":3", "routing.shards.3.slot": fmt.Sprint(protocol.RedisSlot(prefix + ":3")),
		"resharding.phase": "COMPLETED", "resharding.to_shard_count": "4", "resharding.requested_by": "terraform:default",
		"events.0.outcome": "SUCCESS", "events.0.requested_by": "terraform:default", "events.0.reason": "ticket 42", "events.0.principal": "admin",
		"coordinator.healthy": "true", "coordinator.compatible": "true", "coordinator.username": "admin",
		"index": fmt.Sprint(index), "keys.3": prefix + ":3", "slot": fmt.Sprint(protocol.RedisSlot(prefix + ":0")), "moved": "0.5",
	} {
		if got := at(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	// An audit event says which run it was, and what sent it.
	if id := at("events.0.client_request_id"); !strings.HasPrefix(id, "run-7:") {
		t.Errorf("client request id %q", id)
	}
	if agent := at("events.0.user_agent"); !strings.Contains(agent, "terraform/1.") || !strings.Contains(agent, "go/1.") || !strings.Contains(agent, "terraform-provider-redisstream/") {
		t.Errorf("user agent %q", agent)
	}
	// Reading the routing is no producer's doing: one that does not fence would hold up the next
	// resharding.
	for _, key := range []string{"*:plain-seen", "*:producers"} {
		if keys, err := c.redis.Keys(t.Context(), "*{"+prefix+"}"+key[1:]).Result(); err != nil || len(keys) > 0 {
			t.Errorf("%s: %q, %v", key, keys, err)
		}
	}
	w.terraform(0, nil, "destroy", "-auto-approve")
}

// The token is real, stands nowhere but where it is put, and holds no longer than the run.
func TestAccToken(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	f := factories(1)
	f["echo"] = echoprovider.NewProviderServer()
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: f,
		Steps: []resource.TestStep{{
			Config:      providerBlock(c.url, "Wr0ng-P4ssword") + "ephemeral \"redisstream_token\" \"it\" {}\nprovider \"echo\" {\n  data = ephemeral.redisstream_token.it\n}\nresource \"echo\" \"it\" {}\n",
			ExpectError: regexp.MustCompile(`Authentication\s+failed`),
		}, {
			Config: c.config(`
ephemeral "redisstream_token" "it" {
  ttl = "15m"
}
provider "echo" {
  data = ephemeral.redisstream_token.it
}
resource "echo" "it" {}
`),
			ConfigStateChecks: []statecheck.StateCheck{
				statecheck.ExpectKnownValue("echo.it", tfjsonpath.New("data").AtMapKey("token"), knownvalue.StringFunc(func(token string) error {
					// The run that got it has ended.
					if _, err := c.client.SessionOf(t.Context(), token); !errors.Is(err, protocol.NewError(protocol.CodeUnauthenticated, "")) {
						return fmt.Errorf("session of the token: %w", err)
					}
					return nil
				})),
				statecheck.ExpectKnownValue("echo.it", tfjsonpath.New("data").AtMapKey("roles"), knownvalue.ListExact([]knownvalue.Check{knownvalue.StringExact("ADMIN")})),
				statecheck.ExpectKnownValue("echo.it", tfjsonpath.New("data").AtMapKey("expires_at"), knownvalue.StringFunc(func(text string) error {
					at, err := time.Parse(time.RFC3339Nano, text)
					if left := time.Until(at); err != nil || left > 15*time.Minute || left < 10*time.Minute {
						return fmt.Errorf("expires at %s: %v left, %w", text, left, err)
					}
					return nil
				})),
			},
		}},
	})
	c.noSessions(t)
}

// noSessions wants that every token that was opened was revoked.
func (c *coordinator) noSessions(t *testing.T) {
	t.Helper()
	if keys, err := c.redis.Keys(t.Context(), c.keyPrefix+":session:*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("sessions: %q, %v", keys, err)
	}
}

const longRunConfig = `
variable "ttl" { default = "10s" }
ephemeral "redisstream_token" "it" {
  ttl = var.ttl
}
resource "terraform_data" "long" {
  provisioner "local-exec" {
    command     = "printf %%s \"$TOKEN\" > token.new && mv token.new token && until test -e go; do test ! -e fail || exit 1; sleep 0.1; done"
    environment = { TOKEN = ephemeral.redisstream_token.it.token }
  }
}
provider "redisstream" {
  alias    = "deploy"
  endpoint = %q
  token    = ephemeral.redisstream_token.it.token
}
data "redisstream_coordinator" "it" {
  provider   = redisstream.deploy
  depends_on = [terraform_data.long]
}
output "username" { value = data.redisstream_coordinator.it.username }
`

// An apply that takes longer than the life of the token: it is renewed, works to the end, and is refused
// behind it.
func TestAccTokenOutlivesItsTTL(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	w := newWorkdir(t, c.config(longRunConfig, c.url))
	within := func(what string, cond func() bool) {
		t.Helper()
		for deadline := time.Now().Add(50 * time.Second); !cond(); {
			if time.Now().After(deadline) {
				t.Fatalf("not within 50 s: %s", what)
			}
			time.Sleep(20 * time.Millisecond) // between two looks
		}
	}
	handedOut := func(out *buffer) (token string) {
		t.Helper()
		within("the token is handed out", func() bool {
			text, err := os.ReadFile(filepath.Join(w.dir, "token"))
			token = string(text)
			return err == nil
		})
		return token
	}
	refused := func(token string) {
		t.Helper()
		within("it is refused behind the run", func() bool { // the last request of a process may be on its way
			_, err := c.client.SessionOf(t.Context(), token)
			return errors.Is(err, protocol.NewError(protocol.CodeUnauthenticated, ""))
		})
		c.noSessions(t)
	}

	cmd, out := w.start(nil, "apply", "-auto-approve")
	token := handedOut(out)
	begin := time.Now()
	if _, err := c.client.SessionOf(t.Context(), token); err != nil {
		t.Errorf("during the run: %v\n%s", err, out)
	}
	within("more than its life is over", func() bool { return time.Since(begin) > 10*time.Second })
	if _, err := c.client.SessionOf(t.Context(), token); err != nil {
		t.Errorf("when its first life was over: %v\n%s", err, out)
	}
	w.write("go", "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	if got := w.outputs()["username"]; got != "admin" {
		t.Errorf("a provider with the token was %v to the coordinator", got)
	}
	if text := out.String(); strings.Contains(text, token) || strings.Contains(text, "not revoked") || strings.Contains(text, "enew the token") {
		t.Errorf("the token, or a warning about it, in\n%s", out)
	}
	refused(token)

	// Terraform 1.11 closes nothing when an apply fails or is interrupted. The provider's process does.
	again := func() (*exec.Cmd, string) {
		t.Helper()
		if err := os.Remove(filepath.Join(w.dir, "token")); err != nil {
			t.Fatal(err)
		}
		cmd, out := w.start(nil, "apply", "-auto-approve", "-replace=terraform_data.long", "-var=ttl=10m")
		return cmd, handedOut(out)
	}
	if err := os.Rename(filepath.Join(w.dir, "go"), filepath.Join(w.dir, "fail")); err != nil {
		t.Fatal(err)
	}
	cmd, token = again()
	if err := cmd.Wait(); err == nil {
		t.Error("it did not fail")
	}
	refused(token)

	if err := os.Remove(filepath.Join(w.dir, "fail")); err != nil {
		t.Fatal(err)
	}
	cmd, token = again()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // with an error
	refused(token)

	// One that is killed alone leaves its providers behind. They end by themselves.
	cmd, token = again()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.write("go", "") // for what it ran
	refused(token)
	_ = cmd.Wait()
}

// Whatever stands between the provider and its coordinator: one clear error for each data source,
// and none of them reads anything into it. All in one plan.
func TestAccBadDay(t *testing.T) {
	acceptance(t)
	var config strings.Builder
	var want []string
	requests := map[string]*atomic.Int32{}
	add := func(name string, handler http.HandlerFunc, kind, arguments string, words ...string) {
		n := new(atomic.Int32)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.Add(1); handler(w, r) }))
		t.Cleanup(s.Close)
		requests[name] = n
		fmt.Fprintf(&config, "provider \"redisstream\" {\n  alias = %q\n  endpoint = %q\n  username = \"u\"\n  password = \"S3cr3t-P4ss\"\n  retry_budget = \"1s\"\n}\n", name, s.URL)
		fmt.Fprintf(&config, "data \"redisstream_%s\" %q {\n  provider = redisstream.%s\n%s}\n", kind, name, name, arguments)
		want = append(want, words...)
	}
	const stream = "  stream_prefix = \"orders\"\n"
	answering := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { bad(status, contentType, body)(w, r, nil) }
	}
	add("page", answering(404, "text/html", "<html>"), "stream", stream, `read stream "orders"`, "not a coordinator")
	add("unauthenticated", answering(401, "application/json", `{"errorCode":"UNAUTHENTICATED","message":"wrong"}`), "stream_groups", "", "Authentication failed")
	add("forbidden", answering(403, "application/json", `{"errorCode":"FORBIDDEN","message":"viewer"}`), "audit_events", "", "Permission denied")
	add("limited", answering(429, "application/json", `{"errorCode":"RATE_LIMIT_EXCEEDED","message":"slow"}`), "reshardings", stream, "limits the request rate", "attempts")
	add("failing", answering(500, "application/json", `{"errorCode":"INTERNAL","message":"oops","requestId":"req-9"}`), "resharding", stream+"  id = \"r\"\n", "req-9")
	add("truncated", answering(200, "application/json", `{"status":"UP","coordin`), "coordinator", "", "cut short")
	add("slow", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, b := range []byte(`{"streamPrefix":"orders","shards":[]}`) {
			_, _ = w.Write([]byte{b}) // the client may have closed already
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(10 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	}, "routing", stream)
	config.WriteString("output \"slow\" { value = data.redisstream_routing.slow.stream_prefix }\n")

	w := newWorkdir(t, config.String())
	out := unwrap(w.terraform(1, []string{"TF_LOG=TRACE"}, "plan"))
	for _, words := range want {
		if !strings.Contains(out, words) {
			t.Errorf("output does not say %q", words)
		}
	}
	if n := strings.Count(out, "Error: "); n != 6 {
		t.Errorf("%d errors, want 6", n)
	}
	if strings.Contains(out, "S3cr3t") {
		t.Error("the password is shown")
	}
	for name, n := range requests {
		if n.Load() == 0 {
			t.Errorf("%s was never asked", name)
		}
	}
	if _, err := os.Stat(w.dir + "/terraform.tfstate"); err == nil {
		t.Error("there is a state")
	}
	if t.Failed() {
		t.Log(clipped(out))
	}
}

func clipped(s string) string { return s[max(0, len(s)-8000):] }

// An endpoint and a count that are known only after apply: validate and plan work, and send
// nothing.
func TestAccUnknown(t *testing.T) {
	acceptance(t)
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(s.Close)
	w := newWorkdir(t, fmt.Sprintf(`
resource "terraform_data" "later" {
  input = { endpoint = %q, count = 4 }
}
provider "redisstream" {
  endpoint = terraform_data.later.output.endpoint
}
resource "redisstream_shard_count" "orders" {
  stream_prefix = "orders"
  shard_count   = terraform_data.later.output.count
}
resource "redisstream_stream_group" "billing" {
  stream_prefix  = redisstream_shard_count.orders.stream_prefix
  consumer_group = "billing"
}
data "redisstream_stream" "orders" {
  stream_prefix = "orders"
  depends_on    = [terraform_data.later]
}
`, s.URL))
	w.terraform(0, nil, "validate")
	if out := w.terraform(2, nil, "plan", "-detailed-exitcode"); !strings.Contains(out, "3 to add") {
		t.Errorf("plan:\n%s", out)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// T7: Ctrl-C while the provider waits for a coordinator that asked to be left alone.
func TestAccT7InterruptedBackoff(t *testing.T) {
	acceptance(t)
	asked := make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Retry-After", "25")
		refuse(w, protocol.NewError(protocol.CodeRateLimited, "slow down"))
		select {
		case asked <- struct{}{}:
		default:
		}
	}))
	t.Cleanup(s.Close)
	w := newWorkdir(t, providerBlock(s.URL, password)+"data \"redisstream_stream\" \"x\" {\n  stream_prefix = \"orders\"\n}\n")
	cmd, out := w.start(nil, "plan")
	select {
	case <-asked:
	case <-time.After(60 * time.Second):
		t.Fatalf("never asked:\n%s", out)
	}
	interrupted := time.Now()
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code says it
	if took, code := time.Since(interrupted), cmd.ProcessState.ExitCode(); took > 2*time.Second || code != 1 {
		t.Errorf("exit code %d after %s\n%s", code, took, out)
	}
}

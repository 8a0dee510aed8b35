package provider

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/statecheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	"github.com/redis/go-redis/v9"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

// The acceptance tests run the real Terraform CLI against a real coordinator on a real Redis.
// They need TF_ACC=1, as Terraform's conventions have it, and terraform on the PATH.

const password = "S3cr3t-4dm1n-P4ssw0rd!"

// coordinator is a running one, with direct access to it and to its Redis.
type coordinator struct {
	url    string
	client *client.Client
	redis  *redis.Client
	server *redistest.Server

	keyPrefix string
}

func acceptance(t *testing.T) {
	t.Helper()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("an acceptance test: set TF_ACC=1")
	}
	t.Parallel()
}

func startCoordinator(t *testing.T, r *redistest.Server) *coordinator {
	t.Helper()
	keyPrefix := redistest.KeyPrefix(t)
	s, err := server.New(server.Config{
		Listen: "127.0.0.1:0", RedisURL: r.URL(), KeyPrefix: keyPrefix, AdminUsername: "admin", AdminPassword: password,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Logf("stop the coordinator: %v", err)
		}
	})
	c, err := client.New(client.Config{Endpoints: []string{s.URL()}, Username: "admin", Password: password})
	if err != nil {
		t.Fatal(err)
	}
	return &coordinator{url: s.URL(), client: c, redis: r.Client(t), server: r, keyPrefix: keyPrefix}
}

func factories(retries int) map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"redisstream": providerserver.NewProtocol6WithError(&redisstreamProvider{version: "test", retries: retries}),
	}
}

// providerBlock configures the provider; secret is the password.
func providerBlock(url, secret string) string {
	return fmt.Sprintf("provider \"redisstream\" {\n  endpoint = %q\n  username = \"admin\"\n  password = %q\n}\n", url, secret)
}

func (c *coordinator) config(body string, args ...any) string {
	return providerBlock(c.url, password) + fmt.Sprintf(body, args...)
}

func TestAccLifecycle(t *testing.T) {
	acceptance(t)
	c := startCoordinator(t, redistest.Shared(t))
	prefix := redistest.Prefix(t)
	config := func(count int, more string) string {
		return c.config(`
resource "redisstream_shard_count" "orders" {
  stream_prefix       = %q
  shard_count         = %d
  deletion_protection = false
  %s
}
resource "redisstream_stream_group" "billing" {
  stream_prefix       = redisstream_shard_count.orders.stream_prefix
  consumer_group      = "billing"
  deletion_protection = false
}
`, prefix, count, more)
	}
	const stream, group = "redisstream_shard_count.orders", "redisstream_stream_group.billing"
	updated := resource.ConfigPlanChecks{
		PreApply:             []plancheck.PlanCheck{plancheck.ExpectResourceAction(stream, plancheck.ResourceActionUpdate)},
		PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()},
	}
	shards := func(n int) []statecheck.StateCheck {
		return []statecheck.StateCheck{
			statecheck.ExpectKnownValue(stream, tfjsonpath.New("shard_count"), knownvalue.Int64Exact(int64(n))),
			statecheck.ExpectKnownValue(stream, tfjsonpath.New("shards"), knownvalue.ListSizeExact(n)),
			statecheck.ExpectKnownValue(stream, tfjsonpath.New("shards").AtSliceIndex(0).AtMapKey("key"), knownvalue.StringExact(prefix+":0")),
			statecheck.ExpectKnownValue(stream, tfjsonpath.New("publish_state"), knownvalue.StringExact("OPEN")),
			statecheck.ExpectKnownValue(stream, tfjsonpath.New("last_resharding").AtMapKey("phase"), knownvalue.StringExact("COMPLETED")),
			statecheck.ExpectKnownValue(stream, tfjsonpath.New("last_resharding").AtMapKey("to_shard_count"), knownvalue.Int64Exact(int64(n))),
		}
	}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(retries),
		Steps: []resource.TestStep{
			{
				Config: config(2, ""),
				ConfigStateChecks: append(shards(2),
					statecheck.ExpectKnownValue(stream, tfjsonpath.New("last_resharding").AtMapKey("from_shard_count"), knownvalue.Int64Exact(0)),
					statecheck.ExpectKnownValue(group, tfjsonpath.New("state"), knownvalue.StringExact("EMPTY")),
					statecheck.ExpectKnownValue(group, tfjsonpath.New("member_lease"), knownvalue.StringExact("15s")),
				),
				ConfigPlanChecks: resource.ConfigPlanChecks{PostApplyPostRefresh: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			},
			{Config: config(4, ""), ConfigPlanChecks: updated, ConfigStateChecks: shards(4)},
			{Config: config(3, `retire = "archive"`), ConfigPlanChecks: updated, ConfigStateChecks: shards(3)},
			{Config: config(5, `strategy = "online"`), ConfigPlanChecks: updated, ConfigStateChecks: shards(5)},
			{Config: config(5, `pause_timeout = "30s"`), ConfigPlanChecks: updated},
			{
				ResourceName: stream, ImportState: true, ImportStateId: prefix, ImportStateVerify: true,
				ImportStateVerifyIdentifierAttribute: "stream_prefix", ImportStateVerifyIgnore: []string{"deletion_protection"},
			},
			{
				ResourceName: group, ImportState: true, ImportStateId: prefix + "/billing", ImportStateVerify: true,
				ImportStateVerifyIdentifierAttribute: "consumer_group", ImportStateVerifyIgnore: []string{"deletion_protection"},
			},
			{ResourceName: stream, ImportState: true, ImportStateId: "a/b", ExpectError: regexp.MustCompile(`Invalid import id`)},
		},
		CheckDestroy: func(*terraform.State) error {
			_, err := c.client.Stream(t.Context(), prefix)
			if !errors.Is(err, protocol.ErrStreamNotFound) {
				return fmt.Errorf("stream %q after destroy: %w", prefix, err)
			}
			keys, err := c.redis.Keys(t.Context(), prefix+":*").Result()
			if err != nil || len(keys) > 0 {
				return fmt.Errorf("keys after destroy: %q, %w", keys, err)
			}
			return nil
		},
	})
	// The coordinator's audit log knows who did it.
	events, err := c.client.AuditEvents(t.Context(), client.AuditQuery{StreamPrefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	if len(events.Events) == 0 {
		t.Error("no audit events")
	}
	for _, e := range events.Events {
		if strings.HasPrefix(e.Route, "PUT") && (!strings.HasPrefix(e.RequestedBy, "terraform:") || e.Reason == "" || e.ClientRequest == "") {
			t.Errorf("audit event without its origin: %+v", e)
		}
	}
}

func TestAccRefusedAtPlan(t *testing.T) {
	acceptance(t)
	stream := func(prefix, count, more string) string {
		return providerBlock("http://127.0.0.1:1", "unused") + fmt.Sprintf(
			"resource \"redisstream_shard_count\" \"x\" {\n stream_prefix = %q\n shard_count = %s\n %s\n}\n", prefix, count, more)
	}
	var steps []resource.TestStep
	for _, s := range []struct{ config, want string }{
		{stream("orders", "-1", ""), `(?s)shard_count:\s+is\s+-1.*between\s+1\s+and\s+16384`},
		{stream("orders", "2147483648", ""), `(?s)shard_count:\s+is\s+2147483648`},
		{stream("{orders}", "2", ""), `(?s)stream_prefix:.*braces`},
		{stream("or ders", "2", ""), `(?s)stream_prefix:.*white\s+space`},
		{stream("orders", "2", `strategy = "yolo"`), `(?s)strategy:\s+"yolo".*quiesce,\s+online`},
	} {
		steps = append(steps, resource.TestStep{Config: s.config, PlanOnly: true, ExpectError: regexp.MustCompile(s.want)})
	}
	resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: factories(1), Steps: steps})
}

func TestAccUnreachable(t *testing.T) {
	acceptance(t)
	r := redistest.Start(t)
	c := startCoordinator(t, r)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	prefix := redistest.Prefix(t)
	body := fmt.Sprintf("resource \"redisstream_shard_count\" \"x\" {\n stream_prefix = %q\n shard_count = 2\n}\n", prefix)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories(1),
		Steps: []resource.TestStep{
			{Config: providerBlock(nobody, password) + body, ExpectError: regexp.MustCompile(`(?s)Request to the coordinator failed.*connection\s+refused`)},
			{Config: providerBlock(c.url, "wrong") + body, ExpectError: regexp.MustCompile(`(?s)Authentication failed.*REDISSTREAM_PASSWORD`)},
			{
				PreConfig:   func() { r.Pause(t) },
				Config:      providerBlock(c.url, password) + body,
				ExpectError: regexp.MustCompile(`(?s)cannot reach Redis|Timed out`),
			},
		},
	})
	r.Continue(t)
	eventually(t, "redis is back and has no stream", func() bool {
		_, err := c.client.Stream(t.Context(), prefix)
		return errors.Is(err, protocol.ErrStreamNotFound)
	})
}

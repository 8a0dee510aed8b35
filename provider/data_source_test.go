package provider

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// dataSources are all of them, with arguments that name what setupData has made.
var dataSources = map[string]attrs{
	"redisstream_stream":        {"stream_prefix": "orders"},
	"redisstream_stream_group":  {"stream_prefix": "orders", "consumer_group": "billing"},
	"redisstream_stream_groups": {"stream_prefix": "orders"},
	"redisstream_routing":       {"stream_prefix": "orders"},
	"redisstream_resharding":    {"stream_prefix": "orders", "id": "rs-1"},
	"redisstream_reshardings":   {"stream_prefix": "orders"},
	"redisstream_audit_events":  {"stream_prefix": "orders"},
	"redisstream_coordinator":   {},
}

func setupData(t *testing.T) (*core, *observed) {
	t.Helper()
	f := newFake(t)
	c := newCoreOf(t, &redisstreamProvider{version: "test", retries: 1, timeout: 5 * time.Second})
	c.ok(c.configure(attrs{"endpoint": f.URL, "username": "terraform", "password": "correct-horse-battery"}))
	c.must(c.none(shardCount), orders(2, attrs{"pause_timeout": "90s", "ignore_groups": []string{"b", "a"}}))
	c.must(c.none(streamGroup), billing())
	return c, observe(t, f)
}

func (c *core) data(kind string, config attrs) instance {
	c.t.Helper()
	i, diags := c.readData(kind, config)
	c.ok(diags)
	return i
}

func TestDataSources(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	lag := int64(3)
	o.set(func() {
		s := o.streams["orders"]
		s.Groups = []string{"shipping", "billing"}
		s.Spec.Retention = protocol.Retention{Policy: protocol.RetentionMaxAge, MaxAgeMs: 3600_000}
		s.Status.Conditions = []protocol.Condition{{Type: "Converged", Status: "True", Reason: "AsSpecified", Message: "2 shards", Since: now}}
		g := o.groups["orders/billing"]
		g.State, g.TargetAssignmentSummary, g.CurrentAssignmentSummary = protocol.GroupReconciling, map[string]int{"m1": 1, "m2": 1}, map[string]int{"m1": 2}
		o.groups["others/billing"] = &protocol.Group{StreamPrefix: "others", ConsumerGroup: "billing", State: protocol.GroupStable, Ready: true}
		o.records["rs-1"].Certificate = &protocol.DrainCertificate{TakenAt: now, Barrier: "XSETID", Shards: []protocol.ShardEvidence{{
			ShardIndex: 1, Sealed: true, LastID: "1-0", EntriesAdded: 9, Verdict: "DRAINED", Groups: []protocol.GroupEvidence{{Group: "billing", LastDeliveredID: "1-0", Lag: &lag}},
		}}}
	})

	i := c.data("redisstream_stream", dataSources["redisstream_stream"])
	for name, want := range map[string]string{
		"shard_count": "2", "desired_shard_count": "2", "converged": "true", "publish_state": "OPEN", "pause_timeout": "1m30s", "strategy": "quiesce",
		"paused_until": "null", "active_resharding_id": "null", "last_resharding_id": "rs-1", "retention.policy": "max_age", "retention.max_age": "1h", "retention.max_len": "null",
	} {
		wantField(t, i, name, want)
	}
	wantTexts(t, i, "groups", "billing", "shipping")
	wantTexts(t, i, "ignore_groups", "a", "b")
	if shards := elements(t, i, "shards"); len(shards) != 2 || textOf(t, shards[1], "key") != "orders:1" {
		t.Errorf("shards: %v", shards)
	}
	if cs := elements(t, i, "conditions"); len(cs) != 1 || textOf(t, cs[0], "status") != "true" || textOf(t, cs[0], "since") != "2026-01-31T12:00:00.000Z" {
		t.Errorf("conditions: %v", cs)
	}
	o.set(func() { o.streams["orders"].Status.Conditions[0].Status = "False" })
	wantField(t, c.data("redisstream_stream", attrs{"stream_prefix": "orders"}), "converged", "false")

	i = c.data("redisstream_stream_group", dataSources["redisstream_stream_group"])
	wantField(t, i, "state", "RECONCILING")
	wantField(t, i, "converged", "false")
	wantField(t, i, "member_lease", "15s")
	if ms := elements(t, i, "members"); len(ms) != 2 || textOf(t, ms[0], "current_shards") != "2" || textOf(t, ms[1], "target_shards") != "1" || textOf(t, ms[1], "current_shards") != "0" {
		t.Errorf("members: %v", ms)
	}
	if gs := elements(t, c.data("redisstream_stream_groups", attrs{"stream_prefix": "orders"}), "groups"); len(gs) != 1 || textOf(t, gs[0], "stream_prefix") != "orders" {
		t.Errorf("groups of the stream: %v", gs)
	}
	if gs := elements(t, c.data("redisstream_stream_groups", attrs{}), "groups"); len(gs) != 2 || textOf(t, gs[1], "stream_prefix") != "others" {
		t.Errorf("groups: %v", gs)
	}

	i = c.data("redisstream_routing", dataSources["redisstream_routing"])
	wantField(t, i, "hash", protocol.HashName)
	wantField(t, i, "lease", "30s")
	if shards := elements(t, i, "shards"); len(shards) != 2 || textOf(t, shards[1], "slot") != "9" {
		t.Errorf("shards: %v", shards)
	}
	if o.plain != 0 {
		t.Error("the routing was asked for as a producer that does not fence would")
	}

	for _, config := range []attrs{{"stream_prefix": "orders", "id": "rs-1"}, {"stream_prefix": "orders"}} {
		i = c.data("redisstream_resharding", config)
		for name, want := range map[string]string{"id": "rs-1", "phase": "COMPLETED", "ended": "true", "from_shard_count": "0", "error": "null", "certificate.barrier": "XSETID"} {
			wantField(t, i, name, want)
		}
		evidence := elements(t, i, "certificate.shards")
		if len(evidence) != 1 || textOf(t, evidence[0], "verdict") != "DRAINED" {
			t.Fatalf("evidence: %v", evidence)
		}
		if gs := elements(t, instance{state: evidence[0]}, "groups"); len(gs) != 1 || textOf(t, gs[0], "lag") != "3" || textOf(t, gs[0], "possible_loss") != "null" {
			t.Errorf("groups of the evidence: %v", gs)
		}
	}
	i = c.data("redisstream_reshardings", dataSources["redisstream_reshardings"])
	if rs := elements(t, i, "reshardings"); len(rs) != 1 || textOf(t, rs[0], "id") != "rs-1" {
		t.Errorf("reshardings: %v", rs)
	}

	i = c.data("redisstream_coordinator", attrs{})
	for name, want := range map[string]string{
		"version": "1.2.3", "healthy": "true", "compatible": "true", "supported_coordination_versions.max": "2", "username": "terraform", "coordinator_id": "c-1",
	} {
		wantField(t, i, name, want)
	}
	wantTexts(t, i, "roles", "READ", "WRITE")
}

func TestAuditEventsArePaged(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	for n := range 2500 {
		o.events = append(o.events, protocol.AuditEvent{
			ID: fmt.Sprint(n), Timestamp: time.Unix(int64(5000-n), 0), Action: []string{"PUT_STREAM", "PUT_GROUP"}[n%2], Outcome: "SUCCESS", Method: "PUT", Route: "/x", RequestID: "r",
		})
	}
	i := c.data("redisstream_audit_events", attrs{})
	if n := len(elements(t, i, "events")); n != defaultAuditLimit {
		t.Errorf("%d events by default", n)
	}
	wantField(t, i, "more", "true")
	i = c.data("redisstream_audit_events", attrs{"limit": 1100, "action": "PUT_GROUP", "stream_prefix": "orders", "from": "2026-01-31T12:00:00Z", "outcome": "SUCCESS"})
	events := elements(t, i, "events")
	if len(events) != 1100 || textOf(t, events[1099], "id") != "2199" || textOf(t, events[0], "error_code") != "null" {
		t.Errorf("%d events", len(events))
	}
	i = c.data("redisstream_audit_events", attrs{"limit": 1250, "action": "PUT_GROUP"})
	if n := len(elements(t, i, "events")); n != 1250 {
		t.Errorf("%d events", n)
	}
	wantField(t, i, "more", "false")
	for _, limit := range o.pages {
		if limit < 1 || limit > auditPage {
			t.Errorf("a page of %d was asked for", limit)
		}
	}
	last := o.requests[len(o.requests)-1]
	if last.path != "/coord/v1/audit/events" {
		t.Errorf("last request: %+v", last)
	}
	for name, config := range map[string]attrs{
		"outcome": {"outcome": "success"}, "from": {"from": "yesterday"}, "is after to": {"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:30:00+01:00"}, "limit": {"limit": 0}, "principal": {"principal": ""}, "stream_prefix": {"stream_prefix": "{a}"},
	} {
		_, diags := c.readData("redisstream_audit_events", config)
		oneError(t, diags, name)
	}
}

func TestDataSourceNotFound(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	for kind, tt := range map[string]struct {
		config attrs
		words  []string
	}{
		"redisstream_stream":        {attrs{"stream_prefix": "nope"}, []string{"The stream does not exist", `"nope"`, "STREAM_NOT_FOUND"}},
		"redisstream_stream_group":  {attrs{"stream_prefix": "orders", "consumer_group": "nope"}, []string{"The consumer group does not exist", `"nope"`, "GROUP_NOT_FOUND"}},
		"redisstream_stream_groups": {attrs{"stream_prefix": "nope"}, []string{"The stream does not exist", `"nope"`}},
		"redisstream_routing":       {attrs{"stream_prefix": "nope"}, []string{"The stream does not exist", `"nope"`}},
		"redisstream_resharding":    {attrs{"stream_prefix": "orders", "id": "nope"}, []string{"The resharding does not exist", "nope", "MIGRATION_NOT_FOUND"}},
		"redisstream_reshardings":   {attrs{"stream_prefix": "nope"}, []string{"The stream does not exist", `"nope"`}},
	} {
		_, diags := c.readData(kind, tt.config)
		oneError(t, diags, tt.words...)
	}
	o.set(func() { s := o.streams["orders"]; s.Status.LastReshardingID = "" })
	_, diags := c.readData("redisstream_resharding", attrs{"stream_prefix": "orders"})
	oneError(t, diags, "The resharding does not exist", "no resharding on record")
}

// badAnswers are what stands between a provider and its coordinator on a bad day.
var badAnswers = []struct {
	name        string
	status      int
	contentType string
	body        string
	words       []string
}{
	{"404 of a proxy", 404, "text/html", "<html>404 Not Found</html>", []string{"404", "not a coordinator"}},
	{"404 without a code", 404, "application/json", `{"message":"not found"}`, []string{"404"}},
	{"401", 401, "application/json", `{"status":"UNAUTHORIZED","errorCode":"UNAUTHENTICATED","message":"wrong credentials"}`, []string{"Authentication failed", "REDISSTREAM_PASSWORD"}},
	{"401 of a proxy", 401, "text/plain", `no`, []string{"401", "proxy"}},
	{"403", 403, "application/json", `{"status":"FORBIDDEN","errorCode":"FORBIDDEN","message":"viewer"}`, []string{"Permission denied", "READ"}},
	{"429", 429, "application/json", `{"status":"TOO_MANY_REQUESTS","errorCode":"RATE_LIMIT_EXCEEDED","message":"slow down"}`, []string{"limits the request rate", "2 attempts", "429"}},
	{"500", 500, "application/json", `{"status":"INTERNAL_SERVER_ERROR","errorCode":"INTERNAL","message":"oops","requestId":"req-9"}`, []string{"oops", "req-9"}},
	{"503", 503, "application/json", `{"status":"SERVICE_UNAVAILABLE","errorCode":"REDIS_UNAVAILABLE","message":"redis away"}`, []string{"cannot reach Redis", "2 attempts", "503"}},
	{"truncated", 200, "application/json", `{"streamPrefix":"orders","gener`, []string{"cut short"}},
	{"empty", 200, "application/json", ``, []string{"not a coordinator"}},
	{"a page", 200, "text/html", `<html>log in</html>`, []string{"not a coordinator"}},
}

func bad(status int, contentType, body string) func(http.ResponseWriter, *http.Request, []byte) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may have closed already
		return true
	}
}

// Every data source gives one clear error for every bad answer, and no values.
func TestDataSourcesOfABadDay(t *testing.T) {
	t.Parallel()
	for kind, config := range dataSources {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c, o := setupData(t)
			for _, tt := range badAnswers {
				o.set(func() { o.intercept = bad(tt.status, tt.contentType, tt.body) })
				i, diags := c.readData(kind, config)
				oneError(t, diags, tt.words...)
				for name, v := range fields(t, i.state) {
					if _, given := config[name]; !given && !v.IsNull() {
						t.Errorf("%s: %s has a value in spite of the error", tt.name, name)
					}
				}
			}
		})
	}
}

func TestDataSourceOfASlowCoordinator(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := newCoreOf(t, &redisstreamProvider{version: "test", retries: -1, timeout: 300 * time.Millisecond})
	c.ok(c.configure(attrs{"endpoint": f.URL}))
	f.set(func() {
		f.intercept = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			_, _ = io.WriteString(w, `{"streamPrefix":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		}
	})
	begin := time.Now()
	_, diags := c.readData("redisstream_stream", attrs{"stream_prefix": "orders"})
	oneError(t, diags, "Timed out", "orders", f.URL)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
}

// elements gives the elements of a list in a state.
func elements(t *testing.T, i instance, name string) []tftypes.Value {
	t.Helper()
	v := i.state
	for step := range strings.SplitSeq(name, ".") {
		v = fields(t, v)[step]
	}
	var all []tftypes.Value
	if v.IsNull() {
		t.Errorf("%s is null", name)
		return nil
	}
	if err := v.As(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

func wantTexts(t *testing.T, i instance, name string, want ...string) {
	t.Helper()
	var got []string
	for _, e := range elements(t, i, name) {
		got = append(got, text(t, e))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s is %q, want %q", name, got, want)
	}
}

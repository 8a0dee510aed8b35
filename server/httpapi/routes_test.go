package httpapi

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server/engine"
)

const by = `"requestedBy":"ann","reason":"growth"`

// Every route answers with its status and shape (the harness holds each answer against
// openapi.yaml), and asks the engine for what the request says.
func TestRoutes(t *testing.T) {
	t.Parallel()
	s, g := Base+"/streams/orders", Base+"/streams/orders/groups/billing"
	m := Base + "/monitoring"
	mg := m + "/streams/orders/groups/billing"
	beat := `{"protocolVersion":1,"requestId":"q","memberId":"m1","memberEpoch":0,"metadataVersion":0,"runtimeConsumerCapacity":{"runtimeMaxConcurrency":1,"availableConcurrency":1}}`
	for _, c := range []struct {
		method, path, body string
		status             int
		call               string
	}{
		{"GET", Base + "/streams", "", 200, "Streams"},
		{"GET", s, "", 200, "Stream"},
		{"PUT", s, `{"shardCount":4}`, 200, "PutStream"},
		{"PUT", s, `{"shardCount":0,"resharding":{"strategy":"ONLINE","ignoreGroups":["old"],"pauseTimeoutMs":1000},` + by + `}`, 200, "PutStream"},
		{"POST", s, `{"initialShardCount":3,` + by + `,"surprise":1}`, 201, "CreateStream"},
		{"DELETE", s, ``, 204, "DeleteStream"},
		{"DELETE", s, `{"force":true,"confirm":"orders"}`, 204, "DeleteStream"},
		{"POST", s + "/scale", `{"targetShardCount":4,` + by + `,"deprecatedAfter":null}`, 202, "Scale"},
		{"GET", s + "/routing?version=3&maxWaitMs=5&producerId=p1&fenced=true", "", 200, "Routing"},
		{"POST", s + "/publishing/pause", `{"timeoutMs":5000}`, 200, "Pause"},
		{"POST", s + "/publishing/resume", ``, 200, "Resume"},
		{"POST", s + "/publishing/resume", `{` + by + `}`, 200, "Resume"},
		{"GET", s + "/reshardings", "", 200, "Reshardings"},
		{"GET", s + "/reshardings/r1?seenPhase=DRAINING&maxWaitMs=100000000", "", 200, "Resharding"},
		{"GET", s + "/reshardings/r1?recheck=true", "", 200, "Recheck"},
		{"GET", s + "/reshardings/r1?recheck=false", "", 200, "Resharding"},
		{"POST", s + "/reshardings/r1/rollback", `{` + by + `}`, 202, "Rollback"},
		{"GET", g, "", 200, "Group"},
		{"PUT", g, `{}`, 200, "PutGroup"},
		{"PUT", g, `{"startPosition":"LATEST","memberLeaseMs":5000,"heartbeatIntervalMs":1000,` + by + `}`, 200, "PutGroup"},
		{"POST", g, `{"requestedBy":"ann","reason":null,"initialShardCount":null}`, 201, "CreateGroup"},
		{"DELETE", g, `{` + by + `,"force":true}`, 200, "DeleteGroup"},
		{"POST", g + "/scale", `{"targetShardCount":4,` + by + `}`, 202, "Scale"},
		{"GET", g + "/producer-routing", "", 200, "ProducerRouting"},
		{"GET", g + "/migrations/r1", "", 200, "Resharding"},
		{"POST", g + "/migrations/r1/rollback", `{` + by + `}`, 202, "Rollback"},
		{"POST", g + "/members/m1/heartbeat", beat, 200, ""},
		{"GET", m + "/session", "", 200, ""},
		{"GET", m + "/health", "", 200, ""},
		{"GET", m + "/compatibility", "", 200, ""},
		{"GET", m + "/groups", "", 200, "Groups"},
		{"GET", m + "/streams/orders/retention", "", 200, "Retention"},
		{"PUT", s, `{"shardCount":4,"retention":{"policy":"MAX_AGE","maxAgeMs":60000}}`, 200, "PutStream"},
		{"GET", mg, "", 200, "Group"},
		{"GET", mg + "/members", "", 200, "Members"},
		{"GET", mg + "/assignments", "", 200, "Assignments"},
		{"GET", mg + "/consumption", "", 200, "Members"},
		{"GET", mg + "/migrations", "", 200, "Reshardings"},
		{"GET", Base + "/audit/events?streamPrefix=orders&outcome=FAILED&from=2026-01-01T00:00:00Z&limit=5000", "", 200, "AuditEvents"},
		{"GET", "/livez", "", 200, ""},
		{"HEAD", "/readyz", "", 200, ""},
		{"GET", "/readyz", "", 200, ""},
		{"GET", "/openapi.yaml", "", 200, ""},
		{"GET", "/metrics", "", 200, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			got := b.do(c.method, c.path, c.body)
			if got.Code != c.status {
				t.Fatalf("got %d %s, want %d", got.Code, got.Body, c.status)
			}
			if c.call != "" {
				b.engine.last(t, c.call)
			}
			if len(b.engine.audits) != 0 {
				t.Errorf("a request that the engine carried out was audited here as well: %+v", b.engine.audits)
			}
			if id := got.Header().Get("X-Request-Id"); id == "" && c.path != "/metrics" {
				t.Error("no X-Request-Id")
			}
		})
	}
}

func TestPutStreamStatuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put := func(options ...option) answer {
		return b.do("PUT", Base+"/streams/a%3Ab", `{"shardCount":4}`, options...)
	}

	b.engine.created = true
	got := put()
	if got.Code != 201 || got.Header().Get("ETag") != `"7"` || got.Header().Get("Location") != Base+"/streams/a:b" {
		t.Errorf("created: got %d %v", got.Code, got.Header())
	}
	b.engine.created, b.engine.started = false, "r 1"
	got = put(header("If-Match", `"7"`), header("Idempotency-Key", "k-1"))
	if got.Code != 202 || got.Header().Get("Location") != Base+"/streams/a:b/reshardings/r%201" {
		t.Errorf("resharding: got %d %v", got.Code, got.Header())
	}
	call := b.engine.last(t, "PutStream")
	if call.prefix != "a:b" || call.mutation.IfMatch != 7 || call.mutation.Audit.IdempotencyKey != "k-1" || call.spec.ShardCount != 4 {
		t.Errorf("the engine was told %+v", call)
	}
	put(header("If-Match", "12"))
	if got := b.engine.last(t, "PutStream").mutation.IfMatch; got != 12 {
		t.Errorf("If-Match 12 became %d", got)
	}
	put(header("If-None-Match", "*"))
	if got := b.engine.last(t, "PutStream").mutation.IfMatch; got != engine.MustBeNew {
		t.Errorf("If-None-Match: * became %d", got)
	}
}

func TestScaleListsGroupsWithOneMigrationEach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got protocol.StreamScaleResponse
	b.do("POST", Base+"/streams/orders/scale", `{"targetShardCount":4,`+by+`}`).json(&got)
	if len(got.AffectedConsumerGroups) != 2 || len(got.Migrations) != 2 || got.Migrations[0].State != protocol.MigrationActive {
		t.Errorf("got %+v", got)
	}
}

func TestMigrationsAreOldestFirstWithTheActiveOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got protocol.MigrationList
	b.do("GET", Base+"/monitoring/streams/orders/groups/billing/migrations", "").json(&got)
	if len(got.Migrations) != 2 || got.Migrations[0].ReshardingID != "r0" || got.ActiveReshardingID == nil || *got.ActiveReshardingID != "r1" {
		t.Errorf("got %+v", got)
	}
}

func TestConsumptionIsOrderedByMemberAndShard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got consumption
	b.do("GET", Base+"/monitoring/streams/orders/groups/billing/consumption", "").json(&got)
	var order []string
	for _, row := range got.Progress {
		order = append(order, row.MemberID+row.StreamKey)
	}
	if len(order) != 3 || order[0] != "m1orders:0" || order[1] != "m1orders:2" || order[2] != "m2orders:1" {
		t.Errorf("got %v", order)
	}
}

func TestNoChangeMigrationHasTimes(t *testing.T) {
	t.Parallel()
	m := migration(protocol.Resharding{ReshardingID: "noop", Phase: protocol.PhaseCompleted})
	if m.State != protocol.MigrationDeprecated || m.CreatedAt.IsZero() || m.UpdatedAt.IsZero() {
		t.Errorf("got %+v", m)
	}
}

func TestGroupSpecReachesTheEngineFilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for interval, lease := range map[int64]int64{1000: 5000, 100: 1000} { // five times, but no less than a second
		b.do("PUT", Base+"/streams/orders/groups/billing", fmt.Sprintf(`{"heartbeatIntervalMs":%d}`, interval))
		want := protocol.GroupSpec{StartPosition: protocol.StartEarliest, MemberLeaseMs: lease, HeartbeatIntervalMs: interval, RebalanceTimeoutMs: 60000}
		if got := b.engine.last(t, "PutGroup").group2; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestCreateWithoutCountTakesTheDefault(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.DefaultShardCount = 5 })
	b.do("POST", Base+"/streams/orders", `{"requestedBy":"ann"}`)
	if got := b.engine.last(t, "CreateStream").count; got != 5 {
		t.Errorf("got %d shards, want 5", got)
	}
}

func TestPauseTimeoutIsPassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do("POST", Base+"/streams/orders/publishing/pause", `{"timeoutMs":5000}`)
	if got := b.engine.last(t, "Pause").timeout; got != 5*time.Second {
		t.Errorf("got %v", got)
	}
}

func TestUnmatched(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	for _, c := range []struct {
		method, path, user string
		status             int
		allow              string
		audits             int
	}{
		{"GET", "/nowhere", "root", 404, "", 0},
		{"POST", "/nowhere", "", 404, "", 0},
		{"GET", Base + "/nowhere", "", 401, "", 0},
		{"GET", Base + "/nowhere", "reader", 404, "", 0},
		{"POST", Base + "/nowhere", "reader", 403, "", 0},
		{"GET", Base + "/streams/", "root", 404, "", 0},
		{"PATCH", Base + "/streams/a/groups/b/consumer-concurrency", "root", 404, "", 1},
		{"PATCH", Base + "/streams/a", "root", 405, "DELETE, GET, POST, PUT", 1},
		{"PATCH", Base + "/streams/a", "", 401, "", 1},
		{"GET", Base + "/streams/a/scale", "root", 405, "POST", 0},
		{"POST", "/livez", "", 405, "GET, HEAD", 0},
	} {
		b.engine.audits = nil
		auth := noAuth
		if c.user != "" {
			auth = as(c.user)
		}
		got := b.do(c.method, c.path, "", auth)
		if got.Code != c.status || got.Header().Get("Allow") != c.allow || len(b.engine.audits) != c.audits {
			t.Errorf("%s %s as %q: got %d, Allow %q, %d audits; want %d, %q, %d", c.method, c.path, c.user,
				got.Code, got.Header().Get("Allow"), len(b.engine.audits), c.status, c.allow, c.audits)
		}
	}
}

// A percent-encoded segment is matched as it came and decoded once.
func TestPathSegments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		path, prefix string
		status       int
	}{
		{"a%3Ab", "a:b", 200},
		{"a:b", "a:b", 200},
		{"50%25", "50%", 200},
		{"%2525", "%25", 200},
		{"%252F", "%2F", 200},
		{"caf%C3%A9", "café", 200},
		{"a%2Fb", "", 400},
		{"a%2fb", "", 400},
		{"a%20b", "", 400},
		{"%00", "", 400},
		{"%7Bx%7D", "", 400},
		{"%FF", "", 400},
		{"%20", "", 400},
		{"..%2F..", "", 400},
	} {
		got := b.do("GET", Base+"/streams/"+c.path, "")
		if got.Code != c.status {
			t.Errorf("%s: got %d %s, want %d", c.path, got.Code, got.Body, c.status)
			continue
		}
		if c.status == 200 {
			if prefix := b.engine.last(t, "Stream").prefix; prefix != c.prefix {
				t.Errorf("%s: the engine was asked for %q, want %q", c.path, prefix, c.prefix)
			}
		} else if e := got.refusal(); e.Code != protocol.CodeInvalidRequest || e.Details[0].Field != "streamPrefix" {
			t.Errorf("%s: refused with %+v", c.path, e)
		}
	}
	got := b.do("POST", Base+"/streams/members/groups/heartbeat", `{"requestedBy":"x"}`, noAuth)
	if got.Code != http.StatusUnauthorized {
		t.Errorf("a group called heartbeat could be made without credentials: %d", got.Code)
	}
}

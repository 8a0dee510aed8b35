package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

func entryText(v any) string { return fmt.Sprintf("%v", v) }

// The entry that goes with a commit has everything that is known of the request.
func TestMutationCarriesItsAuditEntry(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	body := `{"targetShardCount":4,"requestedBy":"ann","reason":"growth"}`
	got := b.do("POST", Base+"/streams/orders/groups/billing/scale", body, as("writer"),
		header("X-Request-Id", "client-1"), header("Idempotency-Key", "key-1"), header("User-Agent", strings.Repeat("u", 300)))
	sum := sha256.Sum256([]byte(body))
	want := protocol.AuditEvent{
		CoordinatorID: "c1", Action: "SCALE_GROUP", Method: "POST", Route: Base + G + "/scale", Principal: "writer", Roles: []string{"WRITE"},
		RequestID: got.Header().Get("X-Request-Id"), ClientRequest: "client-1", RequestedBy: "ann", Reason: "growth",
		StreamPrefix: "orders", ConsumerGroup: "billing", ClientAddress: "192.0.2.1", UserAgent: strings.Repeat("u", 256),
		Fingerprint: hex.EncodeToString(sum[:]), IdempotencyKey: "key-1", Summary: "targetShardCount=4",
	}
	ev := b.engine.last(t, "Scale").mutation.Audit
	if ev.Timestamp.IsZero() {
		t.Error("no timestamp")
	}
	ev.Timestamp = want.Timestamp
	if a, b := mustJSON(t, ev), mustJSON(t, want); a != b {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

// Whose groups a drain passed over is in the log; what is no name of a group is not.
func TestAuditNamesIgnoredGroups(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	for body, want := range map[string]string{
		`{"shardCount":4,"resharding":{"ignoreGroups":["old","lost"]}}`: "shardCount=4 ignoreGroups=old,lost",
		`{"shardCount":4,"resharding":{"ignoreGroups":["a b"]}}`:        "shardCount=4",
		`{"shardCount":4}`: "shardCount=4",
	} {
		b.do("PUT", Base+"/streams/orders", body)
		var got string
		if n := len(b.engine.audits); n > 0 {
			got, b.engine.audits = b.engine.audits[n-1].event.Summary, nil
		} else {
			got = b.engine.last(t, "PutStream").mutation.Audit.Summary
		}
		if got != want {
			t.Errorf("%s: summary %q, want %q", body, got, want)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// Refused requests are recorded once each; in the stream's log only where the stream exists, so
// that callers cannot make keys for any name.
func TestRefusedRequestsAreAuditedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, path, body string
		options                  []option
		unknown                  bool
		status                   int
		outcome, log             string
	}{
		{"unauthenticated", "PUT", "/streams/orders", `{"shardCount":4}`, []option{noAuth}, false, 401, outcomeUnauthorized, "orders"},
		{"unauthenticated, no stream", "PUT", "/streams/orders", `{"shardCount":4}`, []option{noAuth}, true, 401, outcomeUnauthorized, ""},
		{"forbidden", "PUT", "/streams/orders", `{"shardCount":4}`, []option{as("reader")}, false, 403, outcomeForbidden, "orders"},
		{"forbidden, no stream", "PUT", "/streams/orders", `{"shardCount":4}`, []option{as("reader")}, true, 403, outcomeForbidden, ""},
		{"not found", "PUT", "/streams/orders", `{"shardCount":4}`, nil, true, 404, outcomeFailed, ""},
		{"bad name", "PUT", "/streams/or%20ders", `{"shardCount":4}`, nil, false, 400, outcomeFailed, ""},
		{"slash", "PUT", "/streams/or%2Fders", `{"shardCount":4}`, nil, false, 400, outcomeFailed, ""},
		{"unauthenticated with a bad name", "PUT", "/streams/or%20ders", `{"shardCount":4}`, []option{noAuth}, false, 401, outcomeUnauthorized, ""},
	} {
		b := setup(t, allUsers)
		if c.unknown {
			b.engine.unknown = map[string]bool{"orders": true}
		}
		got := b.do(c.method, Base+c.path, c.body, c.options...)
		if got.Code != c.status || len(b.engine.audits) != 1 {
			t.Errorf("%s: got %d and %d audits", c.name, got.Code, len(b.engine.audits))
			continue
		}
		rec := b.engine.audits[0]
		if rec.log != c.log || rec.event.Outcome != c.outcome || rec.event.Status != c.status || rec.event.Action != "PUT_STREAM" ||
			rec.event.RequestID != got.Header().Get("X-Request-Id") {
			t.Errorf("%s: audited in %q as %+v", c.name, rec.log, rec.event)
		}
		if wantName := strings.Contains(c.path, "orders"); wantName != (rec.event.StreamPrefix == "orders") {
			t.Errorf("%s: names the stream %q", c.name, rec.event.StreamPrefix)
		}
	}
}

// A call that fails while it waits for what it has committed is not recorded a second time.
func TestCommittedThenFailedIsAuditedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := &call{}
	c.audited.Store(true)
	b.engine.err = protocol.NewError(protocol.CodeRedisUnavailable, "not ready in time")
	rt := routes[3]
	rt.handle = func(h *Handler, ctx contextOf, c *call) (reply, error) {
		m, err := h.mutation(c)
		if err != nil {
			return reply{}, err
		}
		m.Audited.Store(true)
		return reply{}, b.engine.err
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("PUT", Base+"/streams/orders", nil)
	as("root")(r)
	b.h.serve(&rt)(w, r)
	if w.Code != 503 || len(b.engine.audits) != 0 {
		t.Errorf("got %d and audits %+v", w.Code, b.engine.audits)
	}
}

func TestLostAuditIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.engine.auditErr = errors.New("redis is full")
	got := b.do("PUT", Base+"/streams/orders", `{}`)
	if got.Code != 400 {
		t.Errorf("got %d", got.Code)
	}
	if n := testutil.ToFloat64(b.h.metrics.auditLost); n != 1 {
		t.Errorf("counted %v times", n)
	}
	if b.logs.FilterMessage("a refused request could not be audited").Len() != 1 {
		t.Error("not logged")
	}
}

// Nothing of a request but what the audit entry names is kept, in audit or log.
func TestMarkersAreNotKept(t *testing.T) {
	t.Parallel()
	const marker = "S3CR3T-marker"
	b := setup(t)
	for _, body := range []string{
		`{"shardCount":4,"password":"` + marker + `"}`, `{"shardCount":"` + marker + `"}`, `{"` + marker, marker,
		`{"shardCount":4,"resharding":{"` + marker + `":1}}`,
	} {
		b.do("PUT", Base+"/streams/orders?token="+marker, body, header("X-Secret", marker), header("Cookie", marker),
			header("X-Request-Id", marker+" "), header("Idempotency-Key", marker+" "))
	}
	b.do("PUT", Base+"/streams/"+marker+"%20", `{"shardCount":4}`)
	b.do("PUT", Base+"/streams/orders", `{"shardCount":4}`, header("Authorization", "Bearer "+marker))
	if len(b.engine.audits) != 7 {
		t.Fatalf("%d audits, want 7", len(b.engine.audits))
	}
	for _, rec := range b.engine.audits {
		if text := mustJSON(t, rec.event); strings.Contains(text, marker) {
			t.Errorf("audited: %s", text)
		}
	}
	for _, entry := range b.logs.All() {
		if text := entry.Message + entryText(entry.ContextMap()); strings.Contains(text, marker) {
			t.Errorf("logged: %s", text)
		}
	}
}

func TestClientRequestID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"X-Request-Id", "abc-1:2.3_4", "abc-1:2.3_4"},
		{"X-Correlation-Id", "abc", "abc"},
		{"X-Amzn-Trace-Id", "abc", "abc"},
		{"X-Request-Id", "a b", ""},
		{"X-Request-Id", "a\x1b[31m", ""},
		{"X-Request-Id", "a\u2028", ""},
		{"X-Request-Id", strings.Repeat("a", 65536), ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(c.name, c.value)
		if got := clientRequestID(r.Header); got != c.want {
			t.Errorf("%s %q: got %q", c.name, c.value, got)
		}
	}
}

// The server's own id is new for each request, whatever the client sends.
func TestRequestIDIsTheServersOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seen := map[string]bool{}
	for range 3 {
		id := b.do("GET", Base+"/streams", "", header("X-Request-Id", "mine")).Header().Get("X-Request-Id")
		if id == "mine" || seen[id] {
			t.Errorf("got %q", id)
		}
		seen[id] = true
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"direct", "203.0.113.9:1234", nil, "203.0.113.9"},
		{"direct with a forged header", "203.0.113.9:1234", []string{"1.1.1.1"}, "203.0.113.9"},
		{"proxy", "10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"proxy, forged left part", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.7"}, "198.51.100.7"},
		{"two proxies", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.7, 10.2.3.4"}, "198.51.100.7"},
		{"two header lines", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.7, 10.2.3.4"}, "198.51.100.7"},
		{"proxies alone", "10.0.0.1:1", []string{"10.9.9.9"}, "10.9.9.9"},
		{"proxy without header", "10.0.0.1:1", nil, "10.0.0.1"},
		{"blank", "10.0.0.1:1", []string{" , "}, "10.0.0.1"},
		{"garbage", "10.0.0.1:1", []string{"1.1.1.1, <script>"}, "10.0.0.1"},
		{"with ports", "10.0.0.1:1", []string{"198.51.100.7:443"}, "198.51.100.7"},
		{"IPv6", "[2001:db8::1]:1", []string{"[2001:4860::8]:443"}, "2001:4860::8"},
		{"bare IPv6 in brackets", "[2001:db8::1]:1", []string{"[2001:4860::8]"}, "2001:4860::8"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"zone", "[fe80::1%eth0]:1", nil, "fe80::1"},
		{"long header", "10.0.0.1:1", []string{strings.Repeat("1.1.1.1,", 1024) + "198.51.100.7"}, "198.51.100.7"},
		{"no peer", "", []string{"1.1.1.1"}, ""},
	} {
		b := &Handler{cfg: Config{TrustedProxies: proxies}}
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.peer
		r.Header.Set("X-Real-Ip", "6.6.6.6")
		r.Header.Set("True-Client-Ip", "6.6.6.6")
		for _, line := range c.forwarded {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := b.clientAddress(r); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

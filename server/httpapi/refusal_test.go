package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

// Each body is refused with 400, a message that names field and rule, one audit entry, and no
// word to the engine.
func TestRefusedBodies(t *testing.T) {
	t.Parallel()
	s, g := Base+"/streams/orders", Base+"/streams/orders/groups/billing"
	long := strings.Repeat("x", 1025)
	for _, c := range []struct{ method, path, body, field, says string }{
		{"PUT", s, ``, "body", "missing"},
		{"PUT", s, `   `, "body", "missing"},
		{"PUT", s, `{`, "body", "complete"},
		{"PUT", s, `{"shardCount":4}x`, "body", "after"},
		{"PUT", s, `{"shardCount":4}{}`, "body", "after"},
		{"PUT", s, `[]`, "body", "object"},
		{"PUT", s, `null`, "body", "object"},
		{"PUT", s, `"x"`, "body", "object"},
		{"PUT", s, `{'a':1}`, "body", "JSON"},
		{"PUT", s, `{}`, "shardCount", "required"},
		{"PUT", s, `{"shardCount":null}`, "shardCount", "required"},
		{"PUT", s, `{"shardCount":-1}`, "shardCount", "between 0 and 16384"},
		{"PUT", s, `{"shardCount":16385}`, "shardCount", "16385"},
		{"PUT", s, `{"shardCount":2147483648}`, "shardCount", "2147483648"},
		{"PUT", s, `{"shardCount":9223372036854775808}`, "shardCount", "whole number"},
		{"PUT", s, `{"shardCount":1e308}`, "shardCount", "whole number"},
		{"PUT", s, `{"shardCount":4.5}`, "shardCount", "whole number"},
		{"PUT", s, `{"shardCount":"4"}`, "shardCount", "whole number"},
		{"PUT", s, `{"shardCount":true}`, "shardCount", "whole number"},
		{"PUT", s, `{"shardCount":{}}`, "shardCount", "whole number"},
		{"PUT", s, `{"shardCount":4,"shards":4}`, "shards", "not a field"},
		{"PUT", s, `{"shardCount":4,"resharding":{"strategi":"ONLINE"}}`, "strategi", "not a field"},
		{"PUT", s, `{"shardCount":4,"resharding":{"strategy":"FAST"}}`, "resharding.strategy", "QUIESCE, ONLINE"},
		{"PUT", s, `{"shardCount":4,"resharding":{"pauseTimeoutMs":99}}`, "resharding.pauseTimeoutMs", "at least 100"},
		{"PUT", s, `{"shardCount":4,"resharding":{"pauseTimeoutMs":-5}}`, "resharding.pauseTimeoutMs", "at least 100"},
		{"PUT", s, `{"shardCount":4,"resharding":{"drainTimeoutMs":604800001}}`, "resharding.drainTimeoutMs", "at most"},
		{"PUT", s, `{"shardCount":4,"resharding":{"pauseTimeoutMs":"5s"}}`, "resharding.pauseTimeoutMs", "whole number"},
		{"PUT", s, `{"shardCount":4,"resharding":{"ignoreGroups":["a b"]}}`, "resharding.ignoreGroups", "white space"},
		{"PUT", s, `{"shardCount":4,"resharding":{"ignoreGroups":[` + strings.Repeat(`"a",`, 64) + `"a"]}}`, "resharding.ignoreGroups", "64"},
		{"PUT", s, `{"shardCount":4,"resharding":[]}`, "resharding", "object"},
		{"PUT", s, `{"shardCount":4,"reason":"` + long + `"}`, "reason", "1024"},
		{"PUT", s, strings.Repeat(`{"resharding":`, 20000), "body", "JSON"},
		{"DELETE", s, `{"force":true}`, "confirm", "repeat"},
		{"DELETE", s, `{"force":true,"confirm":"other"}`, "confirm", "repeat"},
		{"DELETE", s, `{"force":1}`, "force", "true or false"},
		{"DELETE", s, `{"sure":true}`, "sure", "not a field"},
		{"POST", s, `{"initialShardCount":4}`, "requestedBy", "required"},
		{"POST", s, `{"initialShardCount":0,"requestedBy":"x"}`, "initialShardCount", "between 1"},
		{"POST", s, `{"initialShardCount":4,"requestedBy":"  "}`, "requestedBy", "blank"},
		{"POST", s + "/scale", `{"targetShardCount":4}`, "requestedBy", "required"},
		{"POST", s + "/scale", `{` + by + `}`, "targetShardCount", "required"},
		{"POST", s + "/scale", `{"targetShardCount":-1,` + by + `}`, "targetShardCount", "between 0"},
		{"POST", s + "/scale", `{"targetShardCount":4,"requestedBy":"a","reason":" "}`, "reason", "blank"},
		{"POST", s + "/publishing/pause", `{}`, "timeoutMs", "required"},
		{"POST", s + "/publishing/pause", `{"timeoutMs":1}`, "timeoutMs", "at least 100"},
		{"POST", s + "/publishing/resume", `{"x":1}`, "x", "not a field"},
		{"POST", s + "/reshardings/r1/rollback", `{"reason":"x"}`, "requestedBy", "required"},
		{"PUT", g, ``, "body", "missing"},
		{"PUT", g, `{"memberLease":5}`, "memberLease", "not a field"},
		{"PUT", g, `{"startPosition":"NOW"}`, "startPosition", "EARLIEST, LATEST"},
		{"PUT", g, `{"memberLeaseMs":999}`, "memberLeaseMs", "at least 1000"},
		{"PUT", g, `{"memberLeaseMs":"1s"}`, "memberLeaseMs", "whole number"},
		{"PUT", g, `{"memberLeaseMs":4000,"heartbeatIntervalMs":1000}`, "memberLeaseMs", "heartbeat"},
		{"POST", g, `{}`, "requestedBy", "required"},
		{"DELETE", g, ``, "body", "missing"},
		{"DELETE", g, `{"requestedBy":"a"}`, "reason", "required"},
		{"POST", g + "/scale", `{"targetShardCount":"many",` + by + `}`, "targetShardCount", "whole number"},
		{"POST", g + "/migrations/r1/rollback", `{}`, "requestedBy", "required"},
	} {
		t.Run(c.method+c.path+" "+clip(c.body, 60), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			got := b.do(c.method, c.path, c.body)
			e := got.refusal()
			if got.Code != 400 || e.Code != protocol.CodeInvalidRequest || e.Status != "BAD_REQUEST" || e.RequestID == "" ||
				e.Details[0].Field != c.field || !strings.Contains(e.Message, c.says) {
				t.Fatalf("got %d %+v; want field %s and %q", got.Code, e, c.field, c.says)
			}
			for _, call := range b.engine.calls {
				if call.call != "Group" && call.call != "Stream" { // reads; the second for the audit entry's log
					t.Errorf("the engine was asked for %s", call.call)
				}
			}
			if len(b.engine.audits) != 1 {
				t.Fatalf("%d audit entries, want 1", len(b.engine.audits))
			}
			if ev := b.engine.audits[0]; ev.log != "orders" || ev.event.Outcome != outcomeFailed || ev.event.Status != 400 || ev.event.RequestID != e.RequestID {
				t.Errorf("audited as %+v", ev)
			}
		})
	}
}

func TestRefusedHeadersAndQueries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := Base + "/streams/orders"
	ok := `{"shardCount":4}`
	gone := `{"force":true,"requestedBy":"me","reason":"why"}`
	for _, c := range []struct {
		method, path, body, name, value, field string
	}{
		{"PUT", s, ok, "If-Match", "*", "If-Match"},
		{"PUT", s, ok, "If-Match", `W/"3"`, "If-Match"},
		{"PUT", s, ok, "If-Match", `"3`, "If-Match"},
		{"PUT", s, ok, "If-Match", `-1`, "If-Match"},
		{"PUT", s, ok, "If-Match", `0`, "If-Match"},
		{"PUT", s, ok, "If-Match", `"1", "2"`, "If-Match"},
		{"PUT", s, ok, "If-Match", `99999999999999999999`, "If-Match"},
		{"PUT", s, ok, "If-None-Match", `"1"`, "If-None-Match"},
		{"PUT", s, ok, "Idempotency-Key", "a b", "Idempotency-Key"},
		{"PUT", s, ok, "Idempotency-Key", strings.Repeat("a", 129), "Idempotency-Key"},
		{"PUT", s, ok, "Content-Type", "application/x-www-form-urlencoded", "Content-Type"},
		{"PUT", s, ok, "Content-Encoding", "gzip", "Content-Encoding"},
		{"PUT", s + "?dryRun=maybe", ok, "", "", "dryRun"},
		{"PUT", s + "?dryRun=true&dryRun=false", ok, "", "", "dryRun"},
		{"PUT", s + "?dryRun=", ok, "", "", "dryRun"},
		{"PUT", s + "?dryRun=true;x", ok, "", "", "query"},
		{"PUT", s + "?dryrun=true", ok, "", "", "dryRun"},
		{"PUT", s + "?DRY_RUN=true", ok, "", "", "dryRun"},
		{"PUT", s + "?dry-run=true&dryRun=true", ok, "", "", "dryRun"},
		{"DELETE", s + "?dryrun=true", "", "", "", "dryRun"},
		{"PUT", s + "?dryRun=true", ok, "If-Match", "x", "If-Match"},
		{"PUT", s + "?dryRun=true", ok, "Idempotency-Key", "a b", "Idempotency-Key"},
		{"PUT", s + "?dryRun=true", `{"shardCount":-1}`, "", "", "shardCount"},
		{"PUT", s + "?dryRun=true", `{"shardCount":1,"resharding":{"ignoreGroups":["a b"]}}`, "", "", "resharding.ignoreGroups"},
		{"DELETE", s + "?dryRun=true", "", "", "", "dryRun"},
		{"DELETE", s + "?dryRun=false", "", "", "", "dryRun"},
		{"PUT", s + "?dryRun=true&force=true", ok, "", "", "query"},
		{"PUT", s + "?dry=true", ok, "", "", "query"},
		{"DELETE", s + "/groups/g?dryrun=true", gone, "", "", "dryRun"},
		{"DELETE", s + "/groups/g?dryRun=yes", gone, "", "", "dryRun"},
		{"DELETE", s + "/groups/g?dryRn=true", gone, "", "", "query"},
		{"DELETE", s + "/groups/g?dryRun=true&force=true", "", "", "", "body"}, // not clearly a dry run, so it must be a good removal
		{"DELETE", s + "/groups/g?dryRun=true&force=true", gone, "", "", "query"},
		{"DELETE", s + "/groups/g?dryRun=false", `{"force":true}`, "", "", "requestedBy"},
		{"DELETE", s + "/groups/g?dryRun=true", "", "If-Match", "x", "If-Match"},
		{"DELETE", s + "/groups/g?dryRun=true", "", "Idempotency-Key", "a b", "Idempotency-Key"},
		{"DELETE", s + "/groups/g?dryRun=true", `{"force":"yes"}`, "", "", "force"},
		{"POST", s + "/scale?dryRun=true", `{"targetShardCount":4,` + by + `}`, "", "", "dryRun"},
		{"GET", s + "/routing?version=x", "", "", "", "version"},
		{"GET", s + "/reshardings/r1?recheck=maybe", "", "", "", "recheck"},
		{"GET", s + "/reshardings/r1?recheck=true&seenPhase=DRAINING", "", "", "", "recheck"},
		{"GET", s + "/routing?maxWaitMs=-1", "", "", "", "maxWaitMs"},
		{"GET", s + "/routing?fenced=maybe", "", "", "", "fenced"},
		{"GET", s + "/routing?producerId=a%20b", "", "", "", "producerId"},
		{"GET", s + "/reshardings/r1?seenPhase=SLEEPING", "", "", "", "seenPhase"},
		{"GET", s + "/reshardings/a%20b", "", "", "", "reshardingId"},
		{"GET", Base + "/audit/events?from=yesterday", "", "", "", "from"},
		{"GET", Base + "/audit/events?limit=0", "", "", "", "limit"},
		{"GET", Base + "/audit/events?principal=" + strings.Repeat("a", 300), "", "", "", "principal"},
		{"GET", Base + "/audit/events?streamPrefix=a%7Bb", "", "", "", "streamPrefix"},
	} {
		got := b.do(c.method, c.path, c.body, header(c.name, c.value))
		if e := got.refusal(); got.Code != 400 || e.Details[0].Field != c.field {
			t.Errorf("%s %s %s: %q: got %d %+v", c.method, c.path, c.name, c.value, got.Code, e)
		}
	}
	for _, call := range b.engine.calls {
		if call.call != "Stream" { // whether there is a log to record a refusal in
			t.Errorf("the engine was asked for %s", call.call)
		}
	}
}

// Every code of the engine comes out with its own status, the request id and one audit entry.
func TestEngineRefusals(t *testing.T) {
	t.Parallel()
	for _, code := range protocol.Codes() {
		if code == protocol.CodeMethodNotAllowed {
			continue // never of the engine
		}
		b := setup(t)
		b.engine.err = fmt.Errorf("put: %w", protocol.NewError(code, "because"))
		got := b.do("PUT", Base+"/streams/orders", `{"shardCount":4}`)
		if e := got.refusal(); got.Code != code.HTTPStatus() || e.Code != code || e.RequestID != got.Header().Get("X-Request-Id") {
			t.Errorf("%s: got %d %+v", code, got.Code, e)
		}
		if retry := got.Header().Get("Retry-After"); (retry != "") != (code.Retriable() && (got.Code == 503 || got.Code == 429)) {
			t.Errorf("%s: Retry-After is %q", code, retry)
		}
		if len(b.engine.audits) != 1 || b.engine.audits[0].event.ErrorCode != string(code) || b.engine.audits[0].event.Status != got.Code {
			t.Errorf("%s: audited as %+v", code, b.engine.audits)
		}
	}
	if protocol.ErrStreamNotFound.RequestID != "" {
		t.Error("a shared error was written to")
	}
}

func TestFailuresAreNotToldToClients(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.engine.err = errors.New("dial tcp 10.0.0.7: secret detail")
	got := b.do("PUT", Base+"/streams/orders", `{"shardCount":4}`)
	if got.Code != 500 || strings.Contains(got.Body.String(), "10.0.0.7") {
		t.Errorf("got %d %s", got.Code, got.Body)
	}
	if b.logs.FilterField(zapString("requestId", got.Header().Get("X-Request-Id"))).FilterMessage("request failed").Len() != 1 {
		t.Error("the log does not have the cause under the request id")
	}
	if b.engine.audits[0].event.Outcome != outcomeError {
		t.Errorf("audited as %+v", b.engine.audits[0])
	}
}

func TestPanicIsAnErrorOfOneRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.engine.panics = true
	got := b.do("PUT", Base+"/streams/orders", `{"shardCount":4}`)
	if got.Code != 500 || got.refusal().Code != protocol.CodeInternal || len(b.engine.audits) != 1 {
		t.Errorf("got %d %s, %d audits", got.Code, got.Body, len(b.engine.audits))
	}
}

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.BodyLimit = 1 << 16 })
	big := `{"shardCount":4,"reason":"` + strings.Repeat("x", 1<<17) + `"}`
	for name, chunked := range map[string]bool{"with length": false, "chunked": true} {
		r := httptest.NewRequest("PUT", Base+"/streams/orders", strings.NewReader(big)) // no credentials: the limit comes first
		if chunked {
			r.ContentLength = -1
		}
		w := httptest.NewRecorder()
		b.h.ServeHTTP(w, r)
		if e := (answer{w, t}).refusal(); w.Code != 413 || e.Code != protocol.CodeBodyTooLarge {
			t.Errorf("%s: got %d %+v", name, w.Code, e)
		}
	}
	if len(b.engine.audits) != 2 || b.engine.audits[0].event.Fingerprint != "" {
		t.Errorf("audited as %+v", b.engine.audits)
	}
}

// On a real connection: a body that stops arriving is refused in time, and a held request
// outlives the time that a body may take.
func TestSlowBodyAndHeldRequest(t *testing.T) {
	t.Parallel()
	const bodyTimeout = 100 * time.Millisecond
	b := setup(t, func(c *Config) { c.BodyTimeout = bodyTimeout })
	held := make(chan struct{})
	b.engine.hold = func(ctx contextOf, wait time.Duration) {
		if wait > 0 {
			close(held)
			select {
			case <-ctx.Done():
				t.Error("a held request was cut off by the body's deadline")
			case <-time.After(3 * bodyTimeout):
			}
		}
	}
	srv := httptest.NewServer(b.h)
	defer srv.Close()

	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT %s/streams/orders HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{", Base)
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 400 ") || !strings.Contains(string(text), "not received within") {
		t.Errorf("slow body: %v %s", err, text)
	}

	beat := `{"protocolVersion":1,"requestId":"q","memberId":"m1","memberEpoch":1,"metadataVersion":1,"runtimeConsumerCapacity":{"runtimeMaxConcurrency":1,"availableConcurrency":1},"maxWaitMs":3000}`
	r, err := http.NewRequest("POST", srv.URL+Base+"/streams/orders/groups/g/members/m1/heartbeat", strings.NewReader(beat))
	if err != nil {
		t.Fatal(err)
	}
	as("root")(r)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-held
	if resp.StatusCode != 200 {
		t.Errorf("held heartbeat: %d", resp.StatusCode)
	}
}

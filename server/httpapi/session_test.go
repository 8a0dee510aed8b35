package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const (
	renewPattern  = Base + "/auth/renew"
	revokePattern = Base + "/auth/revoke"
	beat          = `{"protocolVersion":1,"requestId":"q","memberId":"m1","memberEpoch":0,"metadataVersion":0,"runtimeConsumerCapacity":{"runtimeMaxConcurrency":1,"availableConcurrency":1}}`
)

// sessionToken logs in for a session token.
func (b *bundle) sessionToken(user, body string) protocol.LoginResponse {
	b.t.Helper()
	var r protocol.LoginResponse
	got := b.login(body, as(user))
	got.json(&r)
	if got.Code != 200 || r.Session == nil {
		b.t.Fatalf("login for a session token: %d %s", got.Code, got.Body)
	}
	return r
}

// about says whether two durations are the same but for the time that a test takes.
func about(got, want time.Duration) bool { return got <= want && got > want-time.Minute }

func TestSessionLogin(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	for body, want := range map[string]time.Duration{
		`{"ttlMs":600000}`: 10 * time.Minute, `{"ttlSeconds":600}`: 10 * time.Minute, `{"ttlMs":99999999999999}`: DefaultTokenTTL,
		`{"ttlSeconds":9223372036854775807}`: DefaultTokenTTL, `{"username":"reader","password":"reader-password","ttlMs":5}`: 5 * time.Millisecond,
	} {
		r := b.sessionToken("root", body)
		opened := b.engine.last(t, "OpenSession")
		if !about(opened.timeout, want) || r.Session.ExpiresInMs != opened.timeout.Milliseconds() || !r.ExpiresAt.Equal(r.Session.ExpiresAt) {
			t.Errorf("%s: the session got %v, the answer is %+v %+v", body, opened.timeout, r, r.Session)
		}
		if left := time.Until(r.Session.RenewableUntil); !about(left, DefaultTokenTTL) {
			t.Errorf("%s: renewable for %v", body, left)
		}
		if len(opened.id) != 32 || strings.Contains(r.AccessToken, opened.id) || strings.Contains(opened.id, r.AccessToken) {
			t.Errorf("%s: session id %q", body, opened.id)
		}
	}
	for _, body := range []string{`{"ttlMs":-1}`, `{"ttlMs":1,"ttlSeconds":1}`, `{"ttlMs":"1h"}`} {
		if got := b.login(body); got.Code != 400 || !strings.Contains(got.refusal().Message, "ttl") {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
	b.engine.err = protocol.NewError(protocol.CodeRedisUnavailable, "away")
	if got := b.login(`{"ttlMs":1000}`); got.Code != 503 || got.Header().Get("Retry-After") == "" || strings.Contains(got.Body.String(), "accessToken") {
		t.Errorf("a session that could not be stored: %d %s", got.Code, got.Body)
	}
}

// What clients of the reference see does not change: neither the answer nor the token has anything
// new, and none of their requests asks for a session.
func TestLoginWithoutLifeStaysStateless(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	b.engine.err = protocol.NewError(protocol.CodeRedisUnavailable, "away") // a login does not need it
	for _, body := range []string{``, `{}`, `{"username":"member","password":"member-password"}`, `{"ttlMs":0,"ttlSeconds":0}`} {
		got := b.login(body, as("member"))
		var fields map[string]any
		got.json(&fields)
		if keys := slices.Sorted(maps.Keys(fields)); got.Code != 200 || strings.Join(keys, " ") != "accessToken expiresAt expiresInSeconds roles tokenType" {
			t.Fatalf("%s: %d %v", body, got.Code, keys)
		}
		token, _ := fields["accessToken"].(string)
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if err != nil {
			t.Fatal(err)
		}
		var claims map[string]any
		if err := json.Unmarshal(payload, &claims); err != nil {
			t.Fatal(err)
		}
		if keys := slices.Sorted(maps.Keys(claims)); strings.Join(keys, " ") != "exp iat iss mark roles sub" {
			t.Errorf("claims %v", keys)
		}
		if got := b.do("POST", Base+"/streams/a/groups/g/members/m1/heartbeat", beat, bearer(token)); got.Code != 200 {
			t.Errorf("heartbeat: %d %s", got.Code, got.Body)
		}
	}
	if b.engine.asked != 0 || len(b.engine.sessions) != 0 {
		t.Errorf("%d looks for sessions, %d sessions", b.engine.asked, len(b.engine.sessions))
	}
}

func TestSessionTokenHoldsWhileItsSessionLives(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	r := b.sessionToken("root", `{"ttlMs":60000}`)
	other := b.sessionToken("root", `{"ttlMs":60000}`)
	use := func(r protocol.LoginResponse) answer { return b.do("GET", Base+"/streams", "", bearer(r.AccessToken)) }
	if got := use(r); got.Code != 200 || b.engine.asked != 1 {
		t.Errorf("%d %s after %d looks", got.Code, got.Body, b.engine.asked)
	}
	for range 2 {
		if got := b.do("POST", revokePattern, "", bearer(r.AccessToken)); got.Code != 204 || got.Body.Len() != 0 {
			t.Errorf("revoke: %d %s", got.Code, got.Body)
		}
	}
	for _, got := range []answer{use(r), b.do("POST", renewPattern, "", bearer(r.AccessToken)), b.do("PUT", Base+"/streams/a", `{"shardCount":1}`, bearer(r.AccessToken))} {
		if got.Code != 401 || got.Header().Get("WWW-Authenticate") == "" || !strings.Contains(got.refusal().Message, "session") {
			t.Errorf("after the revocation: %d %s", got.Code, got.Body)
		}
	}
	if got := use(other); got.Code != 200 {
		t.Errorf("another session of the user: %d", got.Code)
	}
	// A session of somebody else under the same id is none.
	for id := range b.engine.sessions {
		b.engine.sessions[id] = "reader"
	}
	if got := use(other); got.Code != 401 {
		t.Errorf("somebody else's session: %d", got.Code)
	}
	if n := len(b.engine.audits); n != 1 { // the refused PUT: logins are not audited, and neither is their end
		t.Errorf("%d audit entries: %+v", n, b.engine.audits)
	}
}

func TestRenewSession(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers, func(c *Config) { c.TokenTTL = time.Hour })
	r := b.sessionToken("member", `{"ttlMs":600000}`) // whatever its roles
	for body, want := range map[string]time.Duration{
		"": 10 * time.Minute, `{}`: 10 * time.Minute, `{"ttlMs":0}`: 10 * time.Minute, `{"ttlMs":1800000}`: 30 * time.Minute, `{"ttlMs":60000}`: time.Minute,
		`{"ttlMs":99999999999999}`: time.Hour,
	} {
		var view protocol.TokenSession
		got := b.do("POST", renewPattern, body, bearer(r.AccessToken))
		got.json(&view)
		asked := b.engine.last(t, "RenewSession").timeout
		if got.Code != 200 || !about(asked, want) || view.ExpiresInMs != asked.Milliseconds() || !about(time.Until(view.ExpiresAt), want) {
			t.Errorf("%s: %d, the session got %v, the answer is %+v", body, got.Code, asked, view)
		}
		if !view.RenewableUntil.Equal(r.Session.RenewableUntil) || view.ExpiresAt.After(view.RenewableUntil) {
			t.Errorf("%s: %+v is beyond %v", body, view, r.Session.RenewableUntil)
		}
	}
	for _, body := range []string{`{"ttlMs":-1}`, `{"ttl":1}`, `[]`} {
		if got := b.do("POST", renewPattern, body, bearer(r.AccessToken)); got.Code != 400 {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
	var stateless protocol.LoginResponse
	b.login("", as("root")).json(&stateless)
	for _, path := range []string{renewPattern, revokePattern} {
		for name, credentials := range map[string]option{"stateless": bearer(stateless.AccessToken), "basic": as("root")} {
			got := b.do("POST", path, "", credentials)
			if e := got.refusal(); got.Code != 400 || e.Code != protocol.CodeInvalidRequest || !strings.Contains(e.Message, "ttlMs") || !strings.Contains(e.Message, "password") {
				t.Errorf("%s %s: %d %s", path, name, got.Code, got.Body)
			}
		}
		for name, credentials := range map[string]option{"nobody": noAuth, "rubbish": bearer("x.y.z")} {
			if got := b.do("POST", path, "", credentials); got.Code != 401 {
				t.Errorf("%s %s: %d %s", path, name, got.Code, got.Body)
			}
		}
	}
	anyone := setup(t, func(c *Config) { c.Users = nil; c.AllowAnonymous = true })
	if got := anyone.do("POST", revokePattern, "", noAuth); got.Code != 400 {
		t.Errorf("anonymous: %d", got.Code)
	}
}

// Near the signed end a renewal gives what is left, and nothing at it.
func TestSessionSpan(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newTokenSession(time.Minute, now, time.Hour)
	for after, want := range map[time.Duration]time.Duration{0: time.Minute, 58 * time.Minute: time.Minute} {
		if got := s.span(s.life, now.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	if got := s.span(s.life, now.Add(59*time.Minute+30*time.Second)); got > 30*time.Second || got < 28*time.Second {
		t.Errorf("half a minute before the end: %v", got)
	}
	if got := s.span(s.life, now.Add(time.Hour)); got > 0 {
		t.Errorf("at the end: %v", got)
	}
}

// What came of a session token must end with it.
func TestSessionTokenIsNotExchanged(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	r := b.sessionToken("root", `{"ttlMs":60000}`)
	for _, body := range []string{"", `{"ttlMs":60000}`} {
		if got := b.login(body, bearer(r.AccessToken)); got.Code != 403 || !strings.Contains(got.refusal().Message, "session token") {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
	if got := b.login(`{"username":"reader","password":"reader-password"}`, bearer(r.AccessToken)); got.Code != 200 {
		t.Errorf("with a password besides: %d", got.Code)
	}
	b.do("POST", revokePattern, "", bearer(r.AccessToken))
	if got := b.login("", bearer(r.AccessToken)); got.Code != 401 {
		t.Errorf("after its end: %d %s", got.Code, got.Body)
	}
}

// Where it cannot be known whether the session lives, everything is refused, as what is away and not
// as what is wrong.
func TestSessionTokenFailsClosed(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	r := b.sessionToken("root", `{"ttlMs":60000}`)
	b.engine.err = protocol.NewError(protocol.CodeRedisUnavailable, "away")
	for _, call := range []struct{ method, path, body string }{
		{"GET", Base + "/streams", ""}, {"PUT", Base + "/streams/a", `{"shardCount":1}`}, {"GET", Base + "/streams/a/routing", ""},
		{"POST", Base + "/streams/a/groups/g/members/m1/heartbeat", beat}, {"GET", Base + "/monitoring/session", ""},
		{"GET", Base + "/monitoring/health", ""}, {"GET", Base + "/monitoring/compatibility", ""}, {"GET", Base + "/no/such/path", ""},
		{"POST", loginPattern, ""}, {"POST", renewPattern, ""}, {"POST", revokePattern, ""},
	} {
		got := b.do(call.method, call.path, call.body, bearer(r.AccessToken))
		if got.Code != 503 || got.Header().Get("Retry-After") == "" || got.refusal().Code != protocol.CodeRedisUnavailable {
			t.Errorf("%s %s: %d %v %s", call.method, call.path, got.Code, got.Header(), got.Body)
		}
	}
	if n := len(b.engine.beats); n != 0 {
		t.Errorf("%d heartbeats got through", n)
	}
}

func TestSessionTokenIsNotShown(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	r := b.sessionToken("root", `{"ttlMs":60000}`)
	b.do("POST", renewPattern, "", bearer(r.AccessToken))
	b.do("PUT", Base+"/streams/a", `{"shardCount":-1}`, bearer(r.AccessToken))
	b.do("POST", revokePattern, "", bearer(r.AccessToken))
	refused := b.do("PUT", Base+"/streams/a", `{"shardCount":1}`, bearer(r.AccessToken))
	var shown strings.Builder
	shown.WriteString(refused.Body.String())
	for _, entry := range b.logs.All() {
		shown.WriteString(entry.Message + entryText(entry.ContextMap()))
	}
	audits, err := json.Marshal(b.engine.audits)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range b.engine.audits {
		text, err := json.Marshal(a.event)
		if err != nil {
			t.Fatal(err)
		}
		audits = append(audits, text...)
	}
	shown.Write(audits)
	parts := strings.Split(r.AccessToken, ".")
	for _, secret := range []string{r.AccessToken, parts[1], parts[2], b.engine.last(t, "EndSession").id} {
		if strings.Contains(shown.String(), secret) {
			t.Errorf("%q is shown: %s", secret, shown.String())
		}
	}
	if b.logs.Len() == 0 || len(b.engine.audits) != 2 {
		t.Errorf("%d lines, %d entries: the test looks at nothing", b.logs.Len(), len(b.engine.audits))
	}
}

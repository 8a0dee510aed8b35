package httpapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

type contextOf = context.Context

func zapString(key, value string) zap.Field { return zap.String(key, value) }

func bearer(token string) option { return header("Authorization", "bearer "+token) }

func (b *bundle) login(body string, options ...option) answer {
	return b.do("POST", loginPattern, body, options...)
}

func TestRolesAndRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	beat := `{"protocolVersion":1,"requestId":"q","memberId":"m1","memberEpoch":0,"metadataVersion":0,"runtimeConsumerCapacity":{"runtimeMaxConcurrency":1,"availableConcurrency":1}}`
	for _, c := range []struct {
		method, path, body string
		allowed            string
	}{
		{"GET", "/streams/a", "", "root reader monitor writer"},
		{"PUT", "/streams/a", `{"shardCount":1}`, "root writer"},
		{"GET", "/streams/a/routing", "", "root reader monitor writer member"},
		{"GET", "/streams/a/groups/g/producer-routing", "", "root reader monitor writer"},
		{"POST", "/streams/a/groups/g/members/m1/heartbeat", beat, "root member"},
		{"GET", "/monitoring/health", "", "root reader monitor writer"},
		{"GET", "/audit/events", "", "root reader monitor writer"},
	} {
		for _, u := range testUsers {
			got := b.do(c.method, Base+c.path, c.body, as(u.Name))
			if want := strings.Contains(" "+c.allowed+" ", " "+u.Name+" "); (got.Code == 200) != want || (got.Code != 200 && got.Code != 403) {
				t.Errorf("%s %s as %s: got %d, allowed: %v", c.method, c.path, u.Name, got.Code, want)
			}
		}
		got := b.do(c.method, Base+c.path, c.body, noAuth)
		if got.Code != 401 || got.Header().Get("WWW-Authenticate") != `Basic realm="redis-stream-coordinator"` || got.refusal().Code != protocol.CodeUnauthenticated {
			t.Errorf("%s %s without credentials: %d %v", c.method, c.path, got.Code, got.Header())
		}
	}
}

func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	encode := base64.StdEncoding.EncodeToString
	for _, value := range []string{
		"", "Basic", "Basic !", "Basic " + encode([]byte("root")), "Basic " + encode([]byte("root:")), "Basic " + encode([]byte("root:wrong")),
		"Basic " + encode([]byte("nobody:root-password")), "Basic " + encode([]byte(":")), "Digest x", "Bearer", "Bearer x.y.z",
		"root-password",
	} {
		if got := b.do("GET", Base+"/streams", "", header("Authorization", value)); got.Code != 401 {
			t.Errorf("Authorization %q: got %d", value, got.Code)
		}
	}
	for range 2 { // the second time from the cache
		if got := b.do("GET", Base+"/streams", "", header("Authorization", "bASIC "+encode([]byte("root:root-password")))); got.Code != 200 {
			t.Errorf("right credentials: got %d", got.Code)
		}
	}
	if got := b.do("GET", Base+"/streams", "", header("Authorization", "Basic "+encode([]byte("root:root-passwor")))); got.Code != 401 {
		t.Errorf("a prefix of a cached password: got %d", got.Code)
	}
}

func TestLongAndOddPasswords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é:\x00", 60)
	b := setup(t, func(c *Config) { c.Users = []User{{"u", long, []Role{RoleAdmin}}} })
	basic := func(password string) option { return func(r *http.Request) { r.SetBasicAuth("u", password) } }
	if got := b.do("GET", Base+"/streams", "", basic(long)); got.Code != 200 {
		t.Errorf("got %d", got.Code)
	}
	if got := b.do("GET", Base+"/streams", "", basic(long+"x")); got.Code != 401 {
		t.Errorf("what stands after byte 72 was not looked at: got %d", got.Code)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	b := setup(t, allUsers)
	var token protocol.LoginResponse
	got := b.login(`{"username":"reader","password":"reader-password"}`, noAuth)
	got.json(&token)
	if got.Code != 200 || token.TokenType != "Bearer" || token.ExpiresInSeconds != 604800 || len(token.Roles) != 1 || token.Roles[0] != "READ" {
		t.Fatalf("got %d %+v", got.Code, token)
	}
	if left := time.Until(token.ExpiresAt); left < 167*time.Hour || left > 168*time.Hour {
		t.Errorf("expires in %v", left)
	}
	if got := b.do("GET", Base+"/streams", "", bearer(token.AccessToken)); got.Code != 200 {
		t.Errorf("with the token: %d", got.Code)
	}
	if got := b.do("PUT", Base+"/streams/a", `{"shardCount":1}`, bearer(token.AccessToken)); got.Code != 403 {
		t.Errorf("the token gave a role that its user lacks: %d", got.Code)
	}
	for asked, want := range map[string]int64{`"ttlSeconds":900`: 900, `"ttlSeconds":99999999`: 604800, `"ttlSeconds":0`: 604800} {
		var short protocol.LoginResponse
		b.login("{"+asked+"}", as("reader")).json(&short)
		if left := time.Until(short.ExpiresAt).Seconds(); short.ExpiresInSeconds != want || left > float64(want) || left < float64(want)-60 {
			t.Errorf("%s: expires in %d, %.0f s left", asked, short.ExpiresInSeconds, left)
		}
	}
	if got := b.login(`{"ttlSeconds":-1}`, as("reader")); got.Code != 400 {
		t.Errorf("a negative life: %d", got.Code)
	}
	for _, again := range []answer{b.login("", as("reader")), b.login(`{"username":" "}`, as("reader")), b.login("", bearer(token.AccessToken))} {
		if again.Code != 200 {
			t.Errorf("login by header: %d %s", again.Code, again.Body)
		}
	}
	for _, refused := range []answer{
		b.login("", noAuth), b.login(`{}`, noAuth), b.login(`{"username":"reader","password":"x"}`, as("root")), b.login("", bearer("x")),
	} {
		if refused.Code != 401 || refused.Header().Get("WWW-Authenticate") != "" {
			t.Errorf("got %d %v", refused.Code, refused.Header())
		}
	}
	if got := b.login(`{"username":5}`); got.Code != 400 {
		t.Errorf("got %d", got.Code)
	}
	if len(b.engine.audits) != 1 { // the PUT
		t.Errorf("a login was audited: %+v", b.engine.audits)
	}
	for _, entry := range b.logs.All() {
		if line := entry.Message + entryText(entry.ContextMap()); strings.Contains(line, "reader-password") || strings.Contains(line, token.AccessToken) {
			t.Errorf("a secret was logged: %s", line)
		}
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	secret := []byte("0123456789abcdef0123456789abcdef")
	with := func(users ...User) *bundle {
		return setup(t, func(c *Config) { c.TokenSecret = secret; c.Users = users })
	}
	issuer := with(testUsers...)
	var issued protocol.LoginResponse
	issuer.login(`{"username":"writer","password":"writer-password"}`).json(&issued)
	try := func(b *bundle, token string) int { return b.do("GET", Base+"/streams", "", bearer(token)).Code }

	if got := try(with(testUsers...), issued.AccessToken); got != 200 {
		t.Errorf("another replica with the same secret: %d", got)
	}
	if got := try(setup(t, allUsers), issued.AccessToken); got != 401 {
		t.Errorf("another secret: %d", got)
	}
	if got := try(with(testUsers[0]), issued.AccessToken); got != 401 {
		t.Errorf("the user is gone: %d", got)
	}
	if got := try(with(User{"writer", "other", []Role{RoleWrite}}), issued.AccessToken); got != 401 {
		t.Errorf("the password has changed: %d", got)
	}
	if got := try(with(User{"writer", "writer-password", []Role{RoleMember}}), issued.AccessToken); got != 403 {
		t.Errorf("the role was taken away: %d", got)
	}
	acc := issuer.h.auth.accounts["root"]
	expired, _, err := issuer.h.auth.tokens.issue(acc, acc.roles, time.Now().Add(-8*24*time.Hour), DefaultTokenTTL)
	if err != nil {
		t.Fatal(err)
	}
	if got := try(issuer, expired); got != 401 {
		t.Errorf("expired: %d", got)
	}
	claims := tokenClaims{RegisteredClaims: jwt.RegisteredClaims{Issuer: tokenIssuer, Subject: "root", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}, Roles: []Role{RoleAdmin}, Mark: acc.mark}
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	if got := try(issuer, unsigned); got != 401 {
		t.Errorf("unsigned: %d", got)
	}
	claims.ExpiresAt = nil
	endless, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		t.Fatal(err)
	}
	if got := try(issuer, endless); got != 401 {
		t.Errorf("without an end: %d", got)
	}
}

func TestAnonymous(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Users = nil; c.AllowAnonymous = true })
	if got := b.do("PUT", Base+"/streams/a", `{"shardCount":1}`, noAuth); got.Code != 200 {
		t.Errorf("got %d", got.Code)
	}
	if who := b.engine.last(t, "PutStream").mutation.Audit.Principal; who != anonymous {
		t.Errorf("audited as %q", who)
	}
	if got := b.do("GET", Base+"/streams", ""); got.Code != 401 {
		t.Errorf("wrong credentials were let in as nobody: %d", got.Code)
	}
	if got := b.login("", noAuth); got.Code != 401 {
		t.Errorf("nobody got a token: %d", got.Code)
	}

	beat := `{"protocolVersion":1,"requestId":"q","memberId":"m1","memberEpoch":0,"metadataVersion":0,"runtimeConsumerCapacity":{"runtimeMaxConcurrency":1,"availableConcurrency":1}}`
	b = setup(t, func(c *Config) { c.AnonymousMembers = true })
	if got := b.do("POST", Base+"/streams/a/groups/g/members/m1/heartbeat", beat, noAuth); got.Code != 200 {
		t.Errorf("anonymous member: %d", got.Code)
	}
	if got := b.do("GET", Base+"/streams/a", "", noAuth); got.Code != 401 {
		t.Errorf("anonymous reader: %d", got.Code)
	}
}

func TestCrossOriginRequestsAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	put := func(options ...option) int {
		return b.do("PUT", Base+"/streams/a", `{"shardCount":1}`, options...).Code
	}
	if got := put(header("Sec-Fetch-Site", "cross-site")); got != 403 {
		t.Errorf("cross-site: %d", got)
	}
	if got := put(header("Sec-Fetch-Site", "same-origin")); got != 200 {
		t.Errorf("same-origin: %d", got)
	}
	if got := put(header("Origin", "https://evil.example")); got != 403 {
		t.Errorf("other origin: %d", got)
	}
}

func TestUsersAreChecked(t *testing.T) {
	t.Parallel()
	for name, users := range map[string][]User{
		"none": nil, "blank": {{" ", "p", []Role{RoleRead}}}, "colon": {{"a:b", "p", []Role{RoleRead}}}, "no password": {{"a", "", []Role{RoleRead}}},
		"no role": {{"a", "p", nil}}, "unknown role": {{"a", "p", []Role{"KING"}}}, "twice": {{"a", "p", []Role{RoleRead}}, {"a", "q", []Role{RoleRead}}},
	} {
		b := setup(t)
		cfg := b.h.cfg
		cfg.Users = users
		if _, err := newAuthenticator(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

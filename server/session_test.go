package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/redisstream/terraform-provider-redisstream/internal/redistest"
	"github.com/redisstream/terraform-provider-redisstream/sdk/client"
	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
	"github.com/redisstream/terraform-provider-redisstream/server"
)

// replicas are two coordinators on one Redis, which know each other's tokens.
type replicas struct {
	t         *testing.T
	servers   [2]*server.Server
	clients   [2]*client.Client
	redis     *redis.Client
	keyPrefix string
	logs      *observer.ObservedLogs
}

func startReplicas(t *testing.T, r *redistest.Server) *replicas {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	two := &replicas{t: t, redis: r.Client(t), keyPrefix: redistest.KeyPrefix(t), logs: logs}
	for i := range two.servers {
		two.servers[i] = start(t, func(c *server.Config) {
			c.RedisURL, c.KeyPrefix, c.Logger = r.URL(), two.keyPrefix, zap.New(core)
			c.TokenSecret, c.TokenTTL = strings.Repeat("s3cret-", 5), time.Minute
		})
		var err error
		two.clients[i], err = client.New(client.Config{Endpoints: []string{two.servers[i].URL()}, Username: "admin", Password: "admin-password", Retries: -1})
		if err != nil {
			t.Fatal(err)
		}
	}
	return two
}

func (r *replicas) login(ttl time.Duration) protocol.LoginResponse {
	r.t.Helper()
	login, err := r.clients[0].LoginFor(testContext(r.t), "", "", ttl)
	if err != nil || login.Session == nil {
		r.t.Fatalf("login: %+v, %v", login, err)
	}
	return login
}

// use says how each replica answers the bearer of token.
func (r *replicas) use(token string) (codes [2]protocol.Code) {
	r.t.Helper()
	for i, c := range r.clients {
		_, err := c.SessionOf(testContext(r.t), token)
		codes[i] = codeOf(err)
	}
	return codes
}

// codeOf is "" for nil.
func codeOf(err error) protocol.Code {
	var refused *protocol.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Code
	}
	return protocol.Code(err.Error())
}

func (r *replicas) wantUse(when, token string, want protocol.Code) {
	r.t.Helper()
	if got := r.use(token); got != [2]protocol.Code{want, want} {
		r.t.Errorf("%s: the replicas answer %q, want %q", when, got, want)
	}
}

// left is for how long Redis keeps the only session there is.
func (r *replicas) left() time.Duration {
	r.t.Helper()
	keys := r.keys(":session:*")
	if len(keys) != 1 {
		r.t.Fatalf("sessions: %q", keys)
	}
	ttl, err := r.redis.PTTL(testContext(r.t), keys[0]).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	return ttl
}

func (r *replicas) keys(pattern string) []string {
	r.t.Helper()
	var keys []string
	scan := r.redis.Scan(testContext(r.t), 0, "*"+r.keyPrefix+pattern, 1000).Iterator()
	for scan.Next(testContext(r.t)) {
		keys = append(keys, scan.Val())
	}
	if err := scan.Err(); err != nil {
		r.t.Fatal(err)
	}
	return keys
}

func TestSessionTokenRevokedOnOneReplica(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, redistest.Shared(t))
	ctx := testContext(t)
	token, other := r.login(50*time.Second).AccessToken, r.login(50*time.Second).AccessToken
	r.wantUse("before", token, "")
	for _, c := range []*client.Client{r.clients[1], r.clients[1], r.clients[0]} { // again is no error
		if err := c.RevokeToken(ctx, token, client.Call{}); err != nil {
			t.Errorf("revoke: %v", err)
		}
	}
	r.wantUse("revoked", token, protocol.CodeUnauthenticated)
	for _, c := range r.clients {
		if _, err := c.RenewToken(ctx, token, 0); codeOf(err) != protocol.CodeUnauthenticated {
			t.Errorf("renewed after the revocation: %v", err)
		}
	}
	r.wantUse("revoked, and renewed in vain", token, protocol.CodeUnauthenticated)
	r.wantUse("another session of the same user", other, "")
	if events, err := r.clients[0].AuditEvents(ctx, client.AuditQuery{}); err != nil || len(events.Events) != 0 {
		t.Errorf("audited: %+v, %v", events, err) // as logins are not
	}
}

func TestSessionTokenEndsUnlessRenewed(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, redistest.Shared(t))
	ctx := testContext(t)
	login := r.login(30 * time.Second)
	if left := r.left(); left > 30*time.Second || left < 10*time.Second {
		t.Errorf("the session lives for %v", left)
	}
	renewed, err := r.clients[1].RenewToken(ctx, login.AccessToken, 50*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if left := r.left(); left <= 30*time.Second || left > 50*time.Second || !renewed.ExpiresAt.After(login.ExpiresAt) {
		t.Errorf("renewed: the session lives for %v, %+v", left, renewed)
	}
	// Not beyond the end that is signed into it.
	renewed, err = r.clients[0].RenewToken(ctx, login.AccessToken, time.Hour)
	if err != nil || renewed.ExpiresAt.After(login.Session.RenewableUntil) || !renewed.RenewableUntil.Equal(login.Session.RenewableUntil) {
		t.Errorf("renewed for an hour: %+v, %v; the login said %+v", renewed, err, login.Session)
	}
	if left := r.left(); left > time.Minute {
		t.Errorf("the session lives for %v, the token for a minute", left)
	}
	// By default for what the login asked for.
	if renewed, err = r.clients[0].RenewToken(ctx, login.AccessToken, 0); err != nil || renewed.ExpiresInMs > 30_000 || r.left() > 30*time.Second {
		t.Errorf("renewed: %+v, %v", renewed, err)
	}
	r.wantUse("alive", login.AccessToken, "")

	if _, err = r.clients[0].RenewToken(ctx, login.AccessToken, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the session", func() string {
		if got := r.use(login.AccessToken); got != [2]protocol.Code{protocol.CodeUnauthenticated, protocol.CodeUnauthenticated} {
			return fmt.Sprintf("the replicas answer %q", got)
		}
		return ""
	})
	if _, err := r.clients[0].RenewToken(ctx, login.AccessToken, 0); codeOf(err) != protocol.CodeUnauthenticated {
		t.Errorf("renewed after its end: %v", err)
	}
	r.wantUse("ended, and renewed in vain", login.AccessToken, protocol.CodeUnauthenticated)
	if err := r.clients[0].RevokeToken(ctx, login.AccessToken, client.Call{}); err != nil {
		t.Errorf("revoked after its end: %v", err)
	}
}

// eventually waits until missing says that nothing is.
func eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		last := missing()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in 30 s; %s", what, last)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestTokenWithoutSessionIsNeitherRenewedNorRevoked(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, redistest.Shared(t))
	login, err := r.clients[0].Login(testContext(t), "admin", "admin-password")
	if err != nil || login.Session != nil {
		t.Fatalf("login: %+v, %v", login, err)
	}
	if _, err := r.clients[1].RenewToken(testContext(t), login.AccessToken, 0); codeOf(err) != protocol.CodeInvalidRequest || !strings.Contains(err.Error(), "ttlMs") {
		t.Errorf("renew: %v", err)
	}
	if err := r.clients[1].RevokeToken(testContext(t), login.AccessToken, client.Call{}); codeOf(err) != protocol.CodeInvalidRequest {
		t.Errorf("revoke: %v", err)
	}
	r.wantUse("a token without session", login.AccessToken, "")
	if keys := r.keys(":session:*"); len(keys) != 0 {
		t.Errorf("sessions: %q", keys)
	}
}

// Redis away: a session token is refused as everything is then, and is not told to be wrong. A token
// without session needs no Redis.
func TestSessionTokenWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := startReplicas(t, server)
	ctx := testContext(t)
	token := r.login(55 * time.Second).AccessToken
	stateless, err := r.clients[0].Login(ctx, "admin", "admin-password")
	if err != nil {
		t.Fatal(err)
	}
	server.Pause(t)
	status, retry := r.get(token)
	if status != http.StatusServiceUnavailable || retry == "" {
		t.Errorf("the session token: %d, Retry-After %q", status, retry)
	}
	if status, _ := r.get(stateless.AccessToken); status != http.StatusOK {
		t.Errorf("the token without session: %d", status)
	}
	if err := r.clients[0].RevokeToken(ctx, token, client.Call{}); codeOf(err) != protocol.CodeRedisUnavailable {
		t.Errorf("revoke: %v", err)
	}
	if _, err := r.clients[0].RenewToken(ctx, token, 0); codeOf(err) != protocol.CodeRedisUnavailable {
		t.Errorf("renew: %v", err)
	}
	if _, err := r.clients[0].LoginFor(ctx, "", "", time.Minute); codeOf(err) != protocol.CodeRedisUnavailable {
		t.Errorf("login: %v", err)
	}
	server.Continue(t)
	eventually(t, "the revocation", func() string { // whether the one above came through is not known
		if err := r.clients[1].RevokeToken(ctx, token, client.Call{}); err != nil {
			return err.Error()
		}
		return ""
	})
	r.wantUse("revoked when redis was back", token, protocol.CodeUnauthenticated)
}

// get asks the first replica who the bearer of token is.
func (r *replicas) get(token string) (status int, retryAfter string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(testContext(r.t), http.MethodGet, r.servers[0].URL()+"/coord/v1/monitoring/session", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// Neither the token nor a part of it that would do stands in Redis, in the audit log or in a log.
func TestSessionTokenIsStoredNowhere(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, redistest.Shared(t))
	ctx := testContext(t)
	token := r.login(50 * time.Second).AccessToken
	bearer, err := client.New(client.Config{Endpoints: []string{r.servers[1].URL()}, Token: token, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	one := int64(1)
	prefix := redistest.Prefix(t)
	if _, err := bearer.PutStream(ctx, prefix, protocol.PutStreamRequest{ShardCount: &one, RequestedBy: "a test"}, client.Call{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.RenewToken(ctx, "", 0); err != nil { // its own
		t.Fatal(err)
	}
	left := r.left()
	stored := r.dump(ctx)
	if err := bearer.RevokeToken(ctx, "", client.Call{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bearer.PutStream(ctx, prefix, protocol.PutStreamRequest{ShardCount: &one, RequestedBy: "a test"}, client.Call{}); codeOf(err) != protocol.CodeUnauthenticated {
		t.Errorf("after the revocation: %v", err)
	}
	stored += r.dump(ctx)
	var logged strings.Builder
	for _, e := range r.logs.All() {
		fmt.Fprintln(&logged, e.Message, e.ContextMap())
	}
	for _, want := range []string{":session:", "PUT_STREAM", "UNAUTHORIZED"} {
		if !strings.Contains(stored, want) {
			t.Errorf("the dump of Redis has no %s (the session was to live for %v)", want, left)
		}
	}
	parts := strings.Split(token, ".")
	for name, secret := range map[string]string{"the token": token, "its claims": parts[1], "its signature": parts[2], "the password": "admin-password", "the key": "s3cret-"} {
		if strings.Contains(stored, secret) {
			t.Errorf("%s stands in Redis", name)
		}
		if strings.Contains(logged.String(), secret) {
			t.Errorf("%s stands in the log", name)
		}
	}
	if !strings.Contains(logged.String(), "/auth/revoke") {
		t.Error("the log has no line of the revocation: the test looks at nothing")
	}
}

// dump is all that the coordinators keep: names of keys and what is in them.
func (r *replicas) dump(ctx context.Context) string {
	r.t.Helper()
	var b strings.Builder
	for _, key := range r.keys("*") {
		kind, err := r.redis.Type(ctx, key).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		var content any
		switch kind {
		case "string":
			content, err = r.redis.Get(ctx, key).Result()
		case "hash":
			content, err = r.redis.HGetAll(ctx, key).Result()
		case "set":
			content, err = r.redis.SMembers(ctx, key).Result()
		case "zset":
			content, err = r.redis.ZRangeWithScores(ctx, key, 0, -1).Result()
		case "stream":
			content, err = r.redis.XRange(ctx, key, "-", "+").Result()
		case "none": // it has ended meanwhile
		default:
			r.t.Fatalf("key %s is a %s", key, kind)
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			r.t.Fatal(err)
		}
		fmt.Fprintln(&b, key, content)
	}
	return b.String()
}

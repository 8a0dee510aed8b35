package provider

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/redisstream/terraform-provider-redisstream/sdk/protocol"
)

const token = "redisstream_token"

// mentions counts the requests to a path.
func (o *observed) mentions(path string) int {
	n := 0
	o.set(func() {
		for _, r := range o.requests {
			if r.path == path {
				n++
			}
		}
	})
	return n
}

const (
	renewPath  = "/coord/v1/auth/renew"
	revokePath = "/coord/v1/auth/revoke"
)

func TestToken(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	begin := time.Now()
	at, diags := c.open(token, attrs{"ttl": "15m"})
	c.ok(diags)
	secret := at.field(t, "token")
	if !o.tokens[secret] || o.opened[secret] == nil || o.opened[secret].life != 15*time.Minute {
		t.Errorf("token %q is none of the coordinator's, or has no session: %+v", secret, o.opened[secret])
	}
	wantTexts(t, at.instance, "roles", "READ", "WRITE")
	expires, err := time.Parse(time.RFC3339Nano, at.field(t, "expires_at"))
	if err != nil || expires.Sub(begin) > 16*time.Minute || expires.Sub(begin) < 14*time.Minute {
		t.Errorf("expires at %v, %v", expires, err)
	}
	threeQuarters := func(what string, got, begin time.Time) {
		t.Helper()
		if after := got.Sub(begin); after < 11*time.Minute+14*time.Second || after > 12*time.Minute {
			t.Errorf("%s: to be renewed after %v, want 11m15s", what, after)
		}
	}
	threeQuarters("opened", at.renewAt, begin)

	o.set(func() { o.opened[secret].ends = time.Now().Add(time.Minute) }) // most of it is over
	begin = time.Now()
	renewed, diags := c.renew(at)
	c.ok(diags)
	threeQuarters("renewed", renewed.renewAt, begin)
	if left := time.Until(o.opened[secret].ends); left < 14*time.Minute {
		t.Errorf("renewed for %v", left)
	}
	last := o.requests[len(o.requests)-1]
	if last.path != renewPath || last.header.Get("Authorization") != "Bearer "+secret || last.body != `{"ttlMs":900000}` {
		t.Errorf("renewing asked %s %s as %q", last.path, last.body, last.header.Get("Authorization"))
	}

	// Terraform hands what Open kept to Close, not what Renew has kept.
	c.ok(c.close(at))
	last = o.requests[len(o.requests)-1]
	if last.path != revokePath || last.header.Get("Authorization") != "Bearer "+secret || o.holds(secret) {
		t.Errorf("closing asked %s as %q; the token holds: %v", last.path, last.header.Get("Authorization"), o.holds(secret))
	}
	if diags := c.close(at); len(diags) != 0 { // again, as after a renewal that failed
		t.Errorf("closed twice: %v", diags)
	}
	for _, r := range o.requests {
		if strings.Contains(r.path+r.body, secret) {
			t.Errorf("the token stands in %s %s", r.path, r.body)
		}
	}
}

// A run that takes longer than the life of the token: renewed whenever Terraform is told to, it holds
// throughout.
func TestTokenOutlivesItsTTL(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	o.set(func() { o.life = 2 * time.Second }) // the coordinator's limit for all of it
	at, diags := c.open(token, attrs{"ttl": "10s"})
	c.ok(diags)
	if !at.renewAt.IsZero() {
		t.Errorf("to be renewed at %v, though nothing is left to give", at.renewAt)
	}
	if _, diags := c.renew(at); len(diags) != 0 || o.mentions(renewPath) != 0 {
		t.Errorf("renewed in vain: %v, %d requests", diags, o.mentions(renewPath))
	}

	o.set(func() { o.life = time.Minute })
	at, diags = c.open(token, attrs{"ttl": "10s"})
	c.ok(diags)
	secret := at.field(t, "token")
	for range 3 { // as if ten seconds had passed each time
		o.set(func() { o.opened[secret].ends = time.Now().Add(2500 * time.Millisecond) })
		before := o.opened[secret].ends
		at, diags = c.renew(at)
		c.ok(diags)
		if len(warningsOf(diags)) != 0 || !o.opened[secret].ends.After(before) || at.renewAt.IsZero() {
			t.Errorf("renewed: %q, %v to %v, next at %v", warningsOf(diags), before, o.opened[secret].ends, at.renewAt)
		}
	}
	// The coordinator's limit comes near: the last renewal says so, and none follows.
	o.set(func() { o.opened[secret].until = time.Now().Add(5 * time.Second) })
	at, diags = c.renew(at)
	c.ok(diags)
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "token-ttl") || !at.renewAt.IsZero() {
		t.Errorf("at the limit: %q, next at %v", w, at.renewAt)
	}
}

func TestTokenIsGone(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	open := func() (opened, string) {
		t.Helper()
		at, diags := c.open(token, attrs{"ttl": "15m"})
		c.ok(diags)
		return at, at.field(t, "token")
	}
	hidden := func(secret string, texts []string) {
		t.Helper()
		if strings.Contains(strings.Join(texts, " "), secret) {
			t.Error("the token is shown")
		}
	}
	at, secret := open()
	o.set(func() { o.opened[secret].ends = time.Time{} }) // somebody has revoked it
	_, diags := c.renew(at)
	oneError(t, diags, "no longer holds", "revoked", "password of its user was changed", "token-secret")
	hidden(secret, errorsOf(diags))
	if diags := c.close(at); len(diags) != 0 {
		t.Errorf("closed when it was gone: %v", diags)
	}

	// Not renewed, and not known to be gone: there will be another attempt.
	at, secret = open()
	o.set(func() { o.intercept = bad(http.StatusBadGateway, "text/html", "<html>") })
	begin := time.Now()
	again, diags := c.renew(at)
	c.ok(diags)
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "holds until") || !again.renewAt.After(begin) || again.renewAt.After(begin.Add(15*time.Minute)) {
		t.Errorf("warnings: %q, again at %v", w, again.renewAt)
	}
	// Not revoked: the run has not failed for that, but one should know.
	diags = c.close(again)
	c.ok(diags)
	if w := warningsOf(diags); len(w) != 1 || !strings.Contains(w[0], "not revoked") || !strings.Contains(w[0], "holds until 2") {
		t.Errorf("warnings: %q", w)
	}
	hidden(secret, warningsOf(diags))
	o.set(func() { o.intercept = o.serve })
	o.mu.Lock()
	o.tokens[secret] = false
	o.mu.Unlock()
	if w := warningsOf(c.close(again)); len(w) != 1 || !strings.Contains(w[0], "token-secret") || !strings.Contains(w[0], "holds until 2") {
		t.Errorf("a replica that does not know it: %q", w)
	}
}

// What a run that failed has left open is revoked when the process ends.
func TestTokenLeftOpen(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	o := observe(t, f)
	if err := (*OpenTokens)(nil).Revoke(t.Context()); err != nil {
		t.Errorf("none kept: %v", err)
	}
	tokens := new(OpenTokens)
	c := newCoreOf(t, &redisstreamProvider{version: "test", retries: 1, timeout: 5 * time.Second, tokens: tokens})
	c.ok(c.configure(attrs{"endpoint": f.URL, "username": "terraform", "password": "correct-horse-battery"}))
	var at [3]opened
	for i := range at {
		var diags []*tfprotov6.Diagnostic
		at[i], diags = c.open(token, attrs{})
		c.ok(diags)
	}
	c.ok(c.close(at[0]))
	o.set(func() { o.intercept = bad(http.StatusBadGateway, "text/html", "<html>") })
	err := tokens.Revoke(t.Context())
	if err == nil || strings.Contains(err.Error(), at[1].field(t, "token")) {
		t.Errorf("revoked where nobody is: %v", err)
	}
	o.set(func() { o.intercept = o.serve })
	for range 2 { // the second time there is nothing left
		if err := tokens.Revoke(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i := range at {
		if o.holds(at[i].field(t, "token")) {
			t.Errorf("token %d still holds", i)
		}
	}
	if n := o.mentions(revokePath); n < 3 {
		t.Errorf("%d revocations", n)
	}
}

// What the messages about an end say depends on the time.
func TestTokenTimes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	open := openToken{Life: time.Hour}
	// The clock of the coordinator is a day ahead of this machine's.
	ahead := now.Add(24 * time.Hour)
	open.holds(protocol.TokenSession{ExpiresAt: ahead.Add(time.Hour), ExpiresInMs: 3600_000, RenewableUntil: ahead.Add(10 * time.Hour)}, now)
	if got := open.renewAt(now).Sub(now); got != 45*time.Minute {
		t.Errorf("renewed after %v", got)
	}
	if got := open.renewAt(now.Add(59 * time.Minute)).Sub(now); got != 59*time.Minute+45*time.Second {
		t.Errorf("again after %v", got)
	}
	if got := open.renewAt(now.Add(2 * time.Hour)).Sub(now); got != 2*time.Hour+minRenewal {
		t.Errorf("at the end: after %v", got)
	}
	if got := open.latest(now); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("it holds until %v at the latest", got)
	}
	if got := open.latest(ahead.Add(9*time.Hour + time.Minute)); !got.Equal(open.RenewableUntil) {
		t.Errorf("near its end it holds until %v at the latest", got)
	}
	if text := whyRefused(open, now.Add(time.Minute)); !strings.Contains(text, "revoked") {
		t.Error(text)
	}
	if text := whyRefused(open, now.Add(time.Hour)); !strings.Contains(text, "longer ttl") || strings.Contains(text, "revoked") {
		t.Error(text)
	}
}

func TestTokenOpen(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	at, diags := c.open(token, attrs{"username": "other", "password": "other-password"})
	c.ok(diags)
	if expires, err := time.Parse(time.RFC3339Nano, at.field(t, "expires_at")); err != nil || time.Until(expires) > 15*time.Minute || time.Until(expires) < 14*time.Minute {
		t.Errorf("expires at %v, %v; want 15 minutes", expires, err)
	}
	if last := o.requests[len(o.requests)-1]; last.header.Get("Authorization") != "" || !strings.Contains(last.body, `"other"`) {
		t.Errorf("logged in with %v, %s", last.header, last.body)
	}
	o.mu.Lock()
	o.life = time.Minute
	o.mu.Unlock()
	at, diags = c.open(token, attrs{})
	c.ok(diags)
	if expires, err := time.Parse(time.RFC3339Nano, at.field(t, "expires_at")); err != nil || time.Until(expires) > time.Minute {
		t.Errorf("expires at %v, %v; want the coordinator's limit", expires, err)
	}
	_, diags = c.open(token, attrs{"username": "other", "password": "Wr0ng-P4ssword"})
	oneError(t, diags, "Authentication failed", "wrong")
	if strings.Contains(strings.Join(errorsOf(diags), " "), "Wr0ng") {
		t.Error("the error shows the password")
	}
	nested := newCoreOf(t, &redisstreamProvider{version: "test", retries: 1, timeout: 5 * time.Second})
	c.ok(nested.configure(attrs{"endpoint": o.URL, "token": at.field(t, "token")}))
	_, diags = nested.open(token, attrs{})
	oneError(t, diags, "opens no other token", "username and password")
	_, diags = nested.open(token, attrs{"username": "other", "password": "other-password"})
	c.ok(diags)
	for name, config := range map[string]attrs{
		"password": {"username": "u"}, "username": {"password": "p"}, "ttl": {"ttl": "1s"},
	} {
		if _, diags := c.open(token, config); !strings.Contains(strings.Join(errorsOf(diags), " "), name) {
			t.Errorf("%s: %q", name, errorsOf(diags))
		}
	}
}

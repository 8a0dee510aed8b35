package provider

import (
	"strings"
	"testing"
	"time"
)

const token = "redisstream_token"

func TestToken(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	at, diags := c.open(token, attrs{"ttl": "15m"})
	c.ok(diags)
	secret := at.field(t, "token")
	if !o.tokens[secret] {
		t.Errorf("token %q is none of the coordinator's", secret)
	}
	wantTexts(t, at.instance, "roles", "READ", "WRITE")
	expires, err := time.Parse(time.RFC3339Nano, at.field(t, "expires_at"))
	if err != nil || time.Until(expires) > 15*time.Minute || time.Until(expires) < 14*time.Minute {
		t.Errorf("expires at %v, %v", expires, err)
	}
	if !at.renewAt.After(time.Now()) || !at.renewAt.Before(expires) {
		t.Errorf("renewed at %v, expires at %v", at.renewAt, expires)
	}

	renewed, diags := c.renew(at)
	c.ok(diags)
	if !renewed.renewAt.After(time.Now()) || !renewed.renewAt.Before(expires) {
		t.Errorf("renewed at %v", renewed.renewAt)
	}
	last := o.requests[len(o.requests)-1]
	if last.path != "/coord/v1/monitoring/session" || last.header.Get("Authorization") != "Bearer "+secret {
		t.Errorf("renewing asked %s as %q", last.path, last.header.Get("Authorization"))
	}

	o.mu.Lock()
	o.tokens[secret] = false // its user's password has changed
	o.mu.Unlock()
	_, diags = c.renew(renewed)
	oneError(t, diags, "no longer holds", "password of its user was changed", "ttl")
	if strings.Contains(strings.Join(errorsOf(diags), " "), secret) {
		t.Error("the error shows the token")
	}
	before := len(o.requests)
	c.ok(c.close(renewed))
	if len(o.requests) != before {
		t.Error("closing sent something")
	}

	o.set(func() { o.intercept = bad(502, "text/html", "<html>") })
	_, diags = c.renew(renewed)
	c.ok(diags) // whether it holds is not known
	if len(warningsOf(diags)) != 1 {
		t.Errorf("warnings: %q", warningsOf(diags))
	}
}

func TestTokenOpen(t *testing.T) {
	t.Parallel()
	c, o := setupData(t)
	at, diags := c.open(token, attrs{"username": "other", "password": "other-password"})
	c.ok(diags)
	if expires, err := time.Parse(time.RFC3339Nano, at.field(t, "expires_at")); err != nil || time.Until(expires) > time.Hour || time.Until(expires) < 59*time.Minute {
		t.Errorf("expires at %v, %v; want an hour", expires, err)
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
	for name, config := range map[string]attrs{
		"password": {"username": "u"}, "username": {"password": "p"}, "ttl": {"ttl": "1s"},
	} {
		if _, diags := c.open(token, config); !strings.Contains(strings.Join(errorsOf(diags), " "), name) {
			t.Errorf("%s: %q", name, errorsOf(diags))
		}
	}
}

func TestCheckAt(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for left, want := range map[time.Duration]time.Duration{time.Hour: 45 * time.Minute, 8 * time.Second: 6 * time.Second, 0: 5 * time.Second, -time.Hour: 5 * time.Second} {
		if got := checkAt(now.Add(left), now).Sub(now); got != want {
			t.Errorf("%v left: after %v, want %v", left, got, want)
		}
	}
}

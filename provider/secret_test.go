package provider

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"github.com/hashicorp/terraform-plugin-log/tflogtest"
)

func TestRedact(t *testing.T) {
	secrets := settings{username: "u", password: "p&ss word", token: "t0k+n", clientKey: "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqG\n-----END PRIVATE KEY-----\n"}.secrets()
	text := `Get "http://c/?a=p%26ss+word&b=p&ss%20word": header "Basic dTpwJnNzIHdvcmQ=" t0k+n t0k%2Bn MIGHAgEAMBMGByqG "p\u0026ss word"`
	got := redact(text, secrets)
	for _, s := range []string{"p&ss word", "p%26ss+word", "dTpwJnNzIHdvcmQ", "t0k", "MIGHAgEA", "ss word"} {
		if strings.Contains(got, s) {
			t.Errorf("%q is still in %s", s, got)
		}
	}
}

// A short password is masked as a word, and our own sentences stay readable, so that what is
// missing from them does not tell it.
func TestRedactShortSecrets(t *testing.T) {
	for secret, tt := range map[string][2]string{
		"a":          {"a coordinator, said a", "*** coordinator, said ***"},
		"key":        {"wrong key: keys, monkey, key", "wrong ***: keys, monkey, ***"},
		"hunter2":    {"hunter2 is not hunter22", "*** is not hunter22"},
		"$x":         {"it costs $x", "it costs ***"},
		"longsecret": {"xlongsecretx", "x***x"},
		"  ":         {"nothing  here", "nothing  here"},
	} {
		s := new(secretSet)
		s.add(secret)
		if got := redact(tt[0], s); got != tt[1] {
			t.Errorf("%q: got %q, want %q", secret, got, tt[1])
		}
	}
	c := &connection{secrets: settings{username: "u", password: "password"}.secrets(), endpoint: "http://c"}
	d := c.diagnose("read stream", &problem{"x", "the password is password"})
	if !strings.Contains(d.Detail(), "the *** is ***") || !strings.Contains(d.Detail(), "base URL of a coordinator") {
		t.Errorf("detail: %s", d.Detail())
	}
}

func TestLogMasksSecrets(t *testing.T) {
	const secret = "correct-horse/battery staple"
	var out bytes.Buffer
	c := &connection{secrets: settings{username: "u", password: secret}.secrets()}
	ctx := c.logContext(tflogtest.RootLogger(t.Context(), &out))
	tflog.Info(ctx, "sent "+secret+" and "+url.QueryEscape(secret), map[string]any{
		"header": "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+secret)), "error": "bad " + secret,
	})
	c.secrets.add("renewed-token-1") // a token file has changed since
	ctx = c.logContext(ctx)
	tflog.Info(ctx, "now renewed-token-1")
	for _, s := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte("u:" + secret)), "renewed-token"} {
		if strings.Contains(out.String(), s) {
			t.Errorf("log shows %q: %s", s, out.String())
		}
	}
	if !strings.Contains(out.String(), "sent *** and ***") {
		t.Errorf("log: %s", out.String())
	}
}

package provider

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

func TestResolve(t *testing.T) {
	str := func(s string) types.String {
		if s == "-" {
			return types.StringNull()
		}
		return types.StringValue(s)
	}
	full := map[string]string{envEndpoint: "http://env:1", envUsername: "eve", envPassword: "secret-e"}
	for _, tt := range []struct {
		name                                string
		endpoint, username, password, token string
		env                                 map[string]string
		want                                settings
		field, problem                      string
	}{
		{"all from the environment", "-", "-", "-", "-", full, settings{"http://env:1", "eve", "secret-e", ""}, "", ""},
		{"configuration wins", "https://c", "carl", "secret-c", "-", full, settings{"https://c", "carl", "secret-c", ""}, "", ""},
		{"a half from each", "-", "carl", "-", "-", full, settings{"http://env:1", "carl", "secret-e", ""}, "", ""},
		{"a token beats the environment's user", "-", "-", "-", "tok", full, settings{"http://env:1", "", "", "tok"}, "", ""},
		{"a user beats the environment's token", "http://c", "u", "p", "-", map[string]string{envToken: "tok"}, settings{"http://c", "u", "p", ""}, "", ""},
		{"a token with a newline", "http://c", "-", "-", " tok\n", nil, settings{"http://c", "", "", "tok"}, "", ""},
		{"nothing but an endpoint", "http://c/base", "-", "-", "-", nil, settings{"http://c/base", "", "", ""}, "", ""},
		{"no endpoint", "-", "-", "-", "-", nil, settings{}, "endpoint", "missing"},
		{"no scheme", "coordinator:8080", "-", "-", "-", nil, settings{}, "endpoint", "http"},
		{"credentials in the URL", "http://u:hidden@c", "-", "-", "-", nil, settings{}, "endpoint", "credentials"},
		{"a query", "http://c?x=1", "-", "-", "-", nil, settings{}, "endpoint", "query"},
		{"no host", "http://", "-", "-", "-", nil, settings{}, "endpoint", "host"},
		{"both kinds", "http://c", "u", "p", "t", nil, settings{}, "token", "conflicts"},
		{"both kinds in the environment", "http://c", "-", "-", "-", map[string]string{envUsername: "u", envPassword: "p", envToken: "t"}, settings{}, "token", "conflicts"},
		{"no password", "http://c", "u", "-", "-", nil, settings{}, "password", "missing"},
		{"no user", "http://c", "-", "p", "-", nil, settings{}, "username", "missing"},
		{"a colon", "http://c", "u:v", "p", "-", nil, settings{}, "username", "colon"},
		{"a blank token", "http://c", "-", "-", " ", nil, settings{}, "token", "blank"},
		{"a broken token", "http://c", "-", "-", "hidden\r\nX: y", nil, settings{}, "token", "white space"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, field, problem := resolve(providerModel{str(tt.endpoint), str(tt.username), str(tt.password), str(tt.token)},
				func(name string) string { return tt.env[name] })
			if field != tt.field || !strings.Contains(problem, tt.problem) || strings.Contains(problem, "hidden") {
				t.Errorf("field %q, problem %q; want %q, %q", field, problem, tt.field, tt.problem)
			}
			if tt.field == "" && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestWorkspace(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  map[string]string
		file map[string]string
		want string
	}{
		{"nothing", nil, nil, "unknown"},
		{"TF_WORKSPACE", map[string]string{"TF_WORKSPACE": "prod"}, map[string]string{".terraform/environment": "dev"}, "prod"},
		{"HCP Terraform", map[string]string{"TFC_WORKSPACE_NAME": "orders-prod"}, nil, "orders-prod"},
		{"selected", nil, map[string]string{".terraform/environment": "dev\n"}, "dev"},
		{"another data directory", map[string]string{"TF_DATA_DIR": "/d"}, map[string]string{"/d/environment": "dev"}, "dev"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := workspace(func(name string) string { return tt.env[name] }, func(name string) ([]byte, error) {
				if text, ok := tt.file[name]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			})
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 100 * time.Millisecond: "100ms", 1500 * time.Millisecond: "1.5s", 10 * time.Second: "10s", time.Minute: "1m",
		90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", time.Hour + time.Second: "1h0m1s", 10 * time.Minute: "10m",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
		if back, err := time.ParseDuration(want); err != nil || back != d {
			t.Errorf("%q does not parse back: %v, %v", want, back, err)
		}
	}
}

func TestRedact(t *testing.T) {
	secrets := settings{username: "u", password: "p&ss word", token: "t0k+n"}.secrets()
	err := errors.New(`Get "http://c/?a=p%26ss+word&b=p&ss%20word": header "Basic dTpwJnNzIHdvcmQ=" t0k+n t0k%2Bn`)
	got := redact(err.Error(), secrets)
	for _, s := range []string{"p&ss word", "p%26ss+word", "dTpwJnNzIHdvcmQ", "t0k"} {
		if strings.Contains(got, s) {
			t.Errorf("%q is still in %s", s, got)
		}
	}
}

func TestConfigureRefuses(t *testing.T) {
	c, _ := setup(t)
	oneError(t, c.configure(attrs{}), "endpoint", "missing", envEndpoint)
	oneError(t, c.configure(attrs{"endpoint": "http://c", "username": "u"}), "password", "missing")
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

// load is what serve would read from flags, environment and a file.
func load(t *testing.T, file string, environment map[string]string, args ...string) (settings, error) {
	t.Helper()
	if file != "" {
		args = append(args, "--config", write(t, "config.yaml", file))
	}
	for k, v := range environment {
		t.Setenv(k, v)
	}
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addServeFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return loadSettings(fs)
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	set, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if set.Listen != "127.0.0.1:8080" || set.AdminUsername != "admin" || set.ShutdownDelay != 5*time.Second || set.TokenTTL != 168*time.Hour || set.BodyLimit != 1<<20 {
		t.Errorf("got %+v", set)
	}
	if _, err := set.config(zap.NewNop()); err == nil || !strings.Contains(err.Error(), "RSC_ADMIN_PASSWORD") {
		t.Errorf("without a user: %v", err)
	}
}

func TestPrecedence(t *testing.T) {
	const file = "listen: file:1\nredis-url: redis://file\nkey-prefix: file\ntoken-ttl: 2h\nshutdown-delay: 1s\ninsecure-anonymous-members: true\ntrusted-proxies: [10.0.0.0/8, 192.0.2.1]\nbody-limit: 65536\n"
	set, err := load(t, file,
		map[string]string{"RSC_LISTEN": "env:2", "RSC_REDIS_URL": "redis://env", "RSC_SHUTDOWN_DELAY": "3s", "RSC_ADMIN_PASSWORD": "p", "RSC_SERVICE_HOST": "10.1.1.1"},
		"--listen", "flag:3", "--default-shard-count=4")
	if err != nil {
		t.Fatal(err)
	}
	if set.Listen != "flag:3" || set.RedisURL != "redis://env" || set.KeyPrefix != "file" || set.TokenTTL != 2*time.Hour || set.ShutdownDelay != 3*time.Second ||
		!set.InsecureAnonymousMembers || set.DefaultShardCount != 4 || set.BodyLimit != 65536 || set.AdminPassword != "p" ||
		!slices.Equal(set.TrustedProxies, []string{"10.0.0.0/8", "192.0.2.1"}) {
		t.Errorf("got %+v", set)
	}
}

// A flag that is given wins even when its value is the default.
func TestFlagWithDefaultValueWins(t *testing.T) {
	set, err := load(t, "log-level: debug", map[string]string{"RSC_LISTEN": "env:2"}, "--listen", "127.0.0.1:8080", "--log-level", "info")
	if err != nil {
		t.Fatal(err)
	}
	if set.Listen != "127.0.0.1:8080" || set.LogLevel != "info" {
		t.Errorf("got %+v", set)
	}
}

func TestListsAndConfigPathFromTheEnvironment(t *testing.T) {
	path := write(t, "c.yaml", "key-prefix: from-file")
	set, err := load(t, "", map[string]string{"RSC_CONFIG": path, "RSC_TRUSTED_PROXIES": "10.0.0.0/8,192.0.2.1", "RSC_INSECURE_ALLOW_ANONYMOUS": "true"})
	if err != nil {
		t.Fatal(err)
	}
	if set.KeyPrefix != "from-file" || len(set.TrustedProxies) != 2 || !set.InsecureAllowAnonymous {
		t.Errorf("got %+v", set)
	}
}

func TestUsersAndSecretFiles(t *testing.T) {
	password := write(t, "password", "from a file\n")
	set, err := load(t, "users:\n  - {name: reader, password: r, roles: [READ]}\n  - {name: filed, password-file: "+password+", roles: [WRITE, MEMBER]}\n",
		map[string]string{"RSC_ADMIN_PASSWORD_FILE": password})
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := set.config(zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.AdminPassword != "from a file" || len(cfg.Users) != 2 || cfg.Users[1].Password != "from a file" || len(cfg.Users[1].Roles) != 2 {
		t.Errorf("got %+v", cfg)
	}
}

func TestRefusedSettings(t *testing.T) {
	for name, c := range map[string]struct {
		file, says string
		env        map[string]string
	}{
		"typing error":         {"listn: x", `"listn" is not a setting`, nil},
		"nested":               {"redis: {url: x}", "not a setting", nil},
		"typing error in user": {"users: [{name: a, pasword: b}]", `users[0]: "pasword"`, nil},
		"no YAML":              {"\tx", "config file", nil},
		"no duration":          {"token-ttl: soon", "token-ttl", nil},
		"no number":            {"", "body-limit", map[string]string{"RSC_BODY_LIMIT": "big"}},
		"no file":              {"", "admin-password-file", map[string]string{"RSC_ADMIN_PASSWORD_FILE": "/does/not/exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, c.file, c.env); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want %q", err, c.says)
			}
		})
	}
}

// Every flag is a setting, and every setting but the users has a flag.
func TestFlagsAndSettingsAgree(t *testing.T) {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addServeFlags(fs)
	names := tagNames(reflectSettings)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && !slices.Contains(names, f.Name) {
			t.Errorf("--%s sets nothing", f.Name)
		}
	})
	for _, name := range names {
		if name != "users" && fs.Lookup(name) == nil {
			t.Errorf("%s has no flag", name)
		}
	}
}

func TestQuoting(t *testing.T) {
	if got := shell(`it's`); got != `'it'\''s'` {
		t.Errorf("shell: %s", got)
	}
	if got := hcl(`a"b\${c}%{d}`); got != `"a\"b\\$${c}%%{d}"` {
		t.Errorf("hcl: %s", got)
	}
}

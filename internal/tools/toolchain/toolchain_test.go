package toolchain

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// machine makes a machine whose PATH holds nothing but the scripts given.
func machine(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nPATH=/usr/bin:/bin\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRedisServer(t *testing.T) {
	const creates = `here=$(dirname "$0"); for last; do :; done; [ "$1" = install ] || [ "$1" = add ] || exit 0
`
	t.Run("TakesTheOneOnPath", func(t *testing.T) {
		dir := machine(t, map[string]string{"valkey-server": "", "apt-get": "exit 1"})
		if got, err := RedisServer(t.Context(), io.Discard); err != nil || got != filepath.Join(dir, "valkey-server") {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("InstallsOne", func(t *testing.T) {
		dir := machine(t, map[string]string{"apt-get": creates + `printf '#!/bin/sh\n' > "$here/redis-server"; chmod +x "$here/redis-server"`})
		if got, err := RedisServer(t.Context(), io.Discard); err != nil || got != filepath.Join(dir, "redis-server") {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("TakesValkeyWhereThereIsNoRedis", func(t *testing.T) {
		dir := machine(t, map[string]string{"apk": creates + `[ "$last" = valkey ] || exit 1; printf '#!/bin/sh\n' > "$here/valkey-server"; chmod +x "$here/valkey-server"`})
		if got, err := RedisServer(t.Context(), io.Discard); err != nil || got != filepath.Join(dir, "valkey-server") {
			t.Errorf("got %q, %v", got, err)
		}
	})
	t.Run("SaysWhatToDo", func(t *testing.T) {
		for name, programs := range map[string]map[string]string{"no package manager": nil, "it fails": {"dnf": "exit 1"}} {
			machine(t, programs)
			if _, err := RedisServer(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "by hand") {
				t.Errorf("%s: got %v; want what to do by hand", name, err)
			}
		}
	})
}

func TestTerraformTakesTheOneInTheDirectory(t *testing.T) {
	machine(t, nil)
	dir := t.TempDir()
	want := filepath.Join(dir, "terraform")
	if err := os.WriteFile(want, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Terraform(t.Context(), dir, io.Discard); err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

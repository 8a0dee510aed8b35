// Package toolchain finds the programs that tests and the demo run beside Go, and installs
// them when the machine has none: a Redis server and the Terraform CLI.
package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hc-install/product"
	"github.com/hashicorp/hc-install/releases"
)

// TerraformVersion is installed when no Terraform is on PATH.
const TerraformVersion = "1.11.4"

// servers are the Redis servers that will do, in order of preference.
var servers = []string{"redis-server", "valkey-server"}

// manager is one package manager: the commands that install a package by each of the names
// that a distribution may know it by.
type manager struct {
	program  string
	prepare  []string // run once before, empty for none
	install  []string // the package name is appended
	packages []string
	root     bool // needs root
}

var managers = []manager{
	{"apt-get", []string{"apt-get", "update", "-q"}, []string{"apt-get", "install", "-q", "-y", "--no-install-recommends"}, []string{"redis-server", "valkey-server", "valkey"}, true},
	{"dnf", nil, []string{"dnf", "install", "-y"}, []string{"redis", "valkey"}, true},
	{"apk", []string{"apk", "update"}, []string{"apk", "add"}, []string{"redis", "valkey"}, true},
	{"brew", nil, []string{"brew", "install"}, []string{"redis", "valkey"}, false},
}

// RedisServer returns the path of a Redis (or Valkey) server, installing one with the
// platform's package manager when there is none. What the package manager says goes to log.
// A package may start a server of its own on port 6379: nothing here uses it.
func RedisServer(ctx context.Context, log io.Writer) (string, error) {
	if path, ok := find(servers...); ok {
		return path, nil
	}
	for _, m := range managers {
		if _, ok := find(m.program); !ok {
			continue
		}
		var errs []error
		if len(m.prepare) > 0 {
			errs = append(errs, m.run(ctx, log, m.prepare...))
		}
		for _, name := range m.packages {
			fmt.Fprintf(log, "no redis-server on PATH: installing %s with %s\n", name, m.program)
			errs = append(errs, m.run(ctx, log, append(slices.Clip(m.install), name)...))
			if path, ok := find(servers...); ok {
				return path, nil
			}
		}
		return "", fmt.Errorf("no redis-server on PATH and %s could not install one; install Redis 7 or later, or Valkey, by hand: %w", m.program, errors.Join(errs...))
	}
	return "", errors.New("no redis-server on PATH and no package manager known here (apt-get, dnf, apk, brew); install Redis 7 or later, or Valkey, by hand")
}

func (m manager) run(ctx context.Context, log io.Writer, args ...string) error {
	if _, ok := find("sudo"); ok && m.root && os.Geteuid() != 0 {
		args = append([]string{"sudo", "-n"}, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Terraform returns the path of a Terraform CLI: the one on PATH, else the one in dir, else it
// downloads TerraformVersion into dir.
func Terraform(ctx context.Context, dir string, log io.Writer) (string, error) {
	if path, ok := find("terraform"); ok {
		return path, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolve %q: %w", dir, err)
	}
	if path, err := exec.LookPath(filepath.Join(dir, "terraform")); err == nil {
		return path, nil
	}
	fmt.Fprintf(log, "no terraform on PATH: downloading %s into %s\n", TerraformVersion, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("directory for terraform: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	path, err := (&releases.ExactVersion{
		Product: product.Terraform, Version: version.Must(version.NewVersion(TerraformVersion)), InstallDir: dir,
	}).Install(ctx)
	if err != nil {
		return "", fmt.Errorf("no terraform on PATH and Terraform %s could not be downloaded (that needs internet access; or install Terraform 1.8 or later by hand): %w", TerraformVersion, err)
	}
	return path, nil
}

func find(programs ...string) (string, bool) {
	for _, p := range programs {
		if path, err := exec.LookPath(p); err == nil {
			return path, true
		}
	}
	return "", false
}

// Command snapshot builds a release that is not published, as .goreleaser.yml says, into dist/,
// and proves that what it made can be used: the archives, sums and manifest are those that the
// Terraform registry asks for, Terraform installs the provider from its archive and loads it, and
// the coordinator runs from its own.
//
// The layout of the archives is that of "Publishing providers" in the Terraform registry's
// documentation.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
	"github.com/redisstream/terraform-provider-redisstream/provider"
)

const (
	project     = "terraform-provider-redisstream"
	coordinator = "redis-stream-coordinator"
	manifest    = "terraform-registry-manifest.json"
)

// platforms are those for which the provider is published.
var platforms = []string{
	"darwin_amd64", "darwin_arm64", "freebsd_386", "freebsd_amd64", "freebsd_arm", "freebsd_arm64",
	"linux_386", "linux_amd64", "linux_arm", "linux_arm64", "windows_386", "windows_amd64", "windows_arm64",
}

func main() {
	goreleaser := flag.String("goreleaser", "goreleaser", "`command` that runs GoReleaser; empty: look at what is in dist/")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Fields(*goreleaser)); err != nil {
		fmt.Fprintln(os.Stderr, "snapshot:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, goreleaser []string) error {
	if len(goreleaser) > 0 {
		args := append(goreleaser[1:], "release", "--snapshot", "--clean", "--skip=sign")
		if _, err := command(ctx, ".", nil, goreleaser[0], args...); err != nil {
			return err
		}
	}
	version, err := builtVersion("dist")
	if err != nil {
		return err
	}
	if err := errors.Join(checkProviderArchives("dist", version), checkSums("dist", version)); err != nil {
		return err
	}
	if err := installProvider(ctx, "dist", version); err != nil {
		return err
	}
	if err := runCoordinator(ctx, "dist", version); err != nil {
		return err
	}
	fmt.Printf("%s %s: %d archives for the registry; Terraform installs and loads the provider, the coordinator runs\n", project, version, len(platforms))
	return nil
}

// command runs a program and returns what it printed to standard output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return out.Bytes(), nil
}

func builtVersion(dist string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dist, "metadata.json"))
	if err != nil {
		return "", err
	}
	var m struct {
		ProjectName string `json:"project_name"`
		Version     string `json:"version"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return "", fmt.Errorf("metadata.json: %w", err)
	}
	if m.ProjectName != project || m.Version == "" {
		return "", fmt.Errorf("metadata.json: project %q, version %q; the registry looks for archives of %q", m.ProjectName, m.Version, project)
	}
	return m.Version, nil
}

func archive(version, platform string) string {
	return fmt.Sprintf("%s_%s_%s.zip", project, version, platform)
}

// checkProviderArchives wants one archive for each platform, with the provider in it and nothing
// else, under the name by which Terraform starts it.
func checkProviderArchives(dist, version string) error {
	var faults []error
	for _, platform := range platforms {
		want := project + "_v" + version
		if strings.HasPrefix(platform, "windows_") {
			want += ".exe"
		}
		z, err := zip.OpenReader(filepath.Join(dist, archive(version, platform)))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		if len(z.File) != 1 || z.File[0].Name != want || z.File[0].Mode()&0o111 == 0 {
			faults = append(faults, fmt.Errorf("%s: holds %d files, the first %q (%s); want just %q, executable", archive(version, platform), len(z.File), z.File[0].Name, z.File[0].Mode(), want))
		}
		faults = append(faults, z.Close())
	}
	return errors.Join(faults...)
}

// checkSums wants the sums of just the archives and the manifest, and wants them right.
func checkSums(dist, version string) error {
	text, err := os.ReadFile(filepath.Join(dist, fmt.Sprintf("%s_%s_SHA256SUMS", project, version)))
	if err != nil {
		return err
	}
	published := fmt.Sprintf("%s_%s_manifest.json", project, version)
	files := map[string]string{published: manifest} // name in the release: file here
	for _, platform := range platforms {
		files[archive(version, platform)] = filepath.Join(dist, archive(version, platform))
	}
	var faults []error
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		path, ok := files[name]
		if !ok {
			faults = append(faults, fmt.Errorf("SHA256SUMS: %q is no part of the release", name))
			continue
		}
		delete(files, name)
		content, err := os.ReadFile(path)
		if err != nil {
			faults = append(faults, err)
		} else if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			faults = append(faults, fmt.Errorf("SHA256SUMS: wrong sum of %s", name))
		}
	}
	if len(files) > 0 {
		faults = append(faults, fmt.Errorf("SHA256SUMS: lacks %s", strings.Join(slices.Sorted(maps.Keys(files)), ", ")))
	}
	return errors.Join(faults...)
}

// installProvider lets Terraform install the archive for this platform from a mirror in the file
// system, as from a registry, and asks the provider for its schema.
func installProvider(ctx context.Context, dist, version string) error {
	terraform, err := toolchain.Terraform(ctx, "build", os.Stderr)
	if err != nil {
		return err
	}
	if terraform, err = filepath.Abs(terraform); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "snapshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	platform := runtime.GOOS + "_" + runtime.GOARCH
	content, err := os.ReadFile(filepath.Join(dist, archive(version, platform)))
	if err != nil {
		return err
	}
	mirror := filepath.Join(dir, "mirror")
	files := map[string]string{
		filepath.Join("mirror", filepath.FromSlash(provider.Address), archive(version, platform)): string(content),
		"terraformrc": fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror),
		"main.tf":     fmt.Sprintf("terraform {\n  required_providers {\n    redisstream = {\n      source  = \"redisstream/redisstream\"\n      version = %q\n    }\n  }\n}\n", version),
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	env := []string{"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "terraformrc"), "CHECKPOINT_DISABLE=1", "TF_WORKSPACE=", "TF_DATA_DIR="}
	if _, err := command(ctx, dir, env, terraform, "init", "-input=false", "-no-color"); err != nil {
		return err
	}
	out, err := command(ctx, dir, env, terraform, "providers", "schema", "-json")
	if err != nil {
		return err
	}
	var schemas struct {
		Providers map[string]struct {
			Resources map[string]json.RawMessage `json:"resource_schemas"`
		} `json:"provider_schemas"`
	}
	if err := json.Unmarshal(out, &schemas); err != nil {
		return fmt.Errorf("terraform providers schema: %w", err)
	}
	if _, ok := schemas.Providers[provider.Address].Resources["redisstream_shard_count"]; !ok {
		return fmt.Errorf("the installed provider has no redisstream_shard_count")
	}
	return nil
}

// runCoordinator takes the coordinator out of its archive and asks it for its version.
func runCoordinator(ctx context.Context, dist, version string) error {
	name := fmt.Sprintf("%s_%s_%s_%s.tar.gz", coordinator, version, runtime.GOOS, runtime.GOARCH)
	f, err := os.Open(filepath.Join(dist, name))
	if err != nil {
		return err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	files := tar.NewReader(unzipped)
	for {
		h, err := files.Next()
		if err != nil {
			return fmt.Errorf("%s: no %s in it: %w", name, coordinator, err)
		}
		if h.Name == coordinator {
			break
		}
	}
	dir, err := os.MkdirTemp("", "snapshot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, coordinator)
	out, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, files)
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	text, err := command(ctx, dir, nil, binary, "version")
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), version) {
		return fmt.Errorf("%s version says %q, not %s", coordinator, text, version)
	}
	return nil
}

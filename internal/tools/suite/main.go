// Command suite runs every test of the repository in stages and closes with one line of
// counts:
//
//	1843 passed, 0 failed, 2 skipped
//
// Stages: race (unit, property and integration tests against real Redis servers, under the
// race detector), processes (the whole product in processes that are killed and frozen, which the
// race detector does not see), simulation (without it as well: the seeds are what finds bugs
// there), acceptance (the provider against a real coordinator with the real Terraform CLI). With
// package arguments or -run it runs just those, in one stage.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redisstream/terraform-provider-redisstream/internal/tools/toolchain"
)

// stage is one run of go test.
type stage struct {
	name     string
	race     bool
	packages []string
	env      []string
	args     []string // of go test
	testArgs []string // of the test binaries
}

func main() {
	seeds := flag.Int("seeds", 2000, "`number` of simulation seeds")
	run := flag.String("run", "", "only tests that match this `pattern`")
	race := flag.Bool("race", true, "use the race detector where it is affordable")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := suite(ctx, *seeds, *run, *race, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func suite(ctx context.Context, seeds int, pattern string, race bool, packages []string) (failed bool, err error) {
	if _, err := toolchain.RedisServer(ctx, os.Stderr); err != nil {
		return false, err
	}
	terraform, err := toolchain.Terraform(ctx, "build", os.Stderr)
	if err != nil {
		return false, err
	}
	scratch, err := os.MkdirTemp("", "redisstream-suite-")
	if err != nil {
		return false, fmt.Errorf("scratch directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	cli, err := cliConfig(scratch)
	if err != nil {
		return false, err
	}
	env := []string{
		"TF_ACC=1", "TF_ACC_TERRAFORM_PATH=" + terraform, "TF_CLI_CONFIG_FILE=" + cli, "CHECKPOINT_DISABLE=1",
	}

	stages, err := plan(ctx, seeds, pattern, race, packages)
	if err != nil {
		return false, err
	}
	begin := time.Now()
	var all counts
	var rows []string
	for _, s := range stages {
		fmt.Printf("── %s\n", s.name)
		s.env = append(s.env, env...)
		started := time.Now()
		c, err := s.run(ctx)
		if err != nil {
			return false, fmt.Errorf("%s: %w", s.name, err)
		}
		rows = append(rows, fmt.Sprintf("%-12s %6d passed %4d failed %4d skipped  %6.1f s", s.name, c.passed, c.failed, c.skipped, time.Since(started).Seconds()))
		all.add(c)
	}
	fmt.Println("──")
	for _, r := range rows {
		fmt.Println(r)
	}
	for _, s := range all.skips {
		fmt.Println("skipped:", s)
	}
	for _, s := range all.failures {
		fmt.Println("failed: ", s)
	}
	fmt.Printf("total %.1f s\n%d passed, %d failed, %d skipped\n", time.Since(begin).Seconds(), all.passed, all.failed, all.skipped)
	if all.passed == 0 && all.failed == 0 {
		return false, errors.New("no test ran")
	}
	return all.failed > 0, nil
}

// cliConfig writes an empty Terraform CLI configuration, so that nothing of the machine's own
// (mirrors, overrides, plugin caches) reaches the acceptance tests.
func cliConfig(dir string) (string, error) {
	path := filepath.Join(dir, "terraformrc")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", fmt.Errorf("terraform CLI configuration: %w", err)
	}
	return path, nil
}

// plan lists the stages.
func plan(ctx context.Context, seeds int, pattern string, race bool, packages []string) ([]stage, error) {
	var args []string
	if pattern != "" {
		args = append(args, "-run", pattern)
	}
	if len(packages) > 0 || pattern != "" {
		if len(packages) == 0 {
			packages = []string{"./..."}
		}
		return []stage{{name: "selected", race: race, packages: packages, args: args}}, nil
	}
	list, err := goList(ctx)
	if err != nil {
		return nil, err
	}
	raced := stage{name: "race", race: race}
	// They wait more than they work.
	processes := stage{name: "processes", args: []string{"-parallel", "8"}}
	simulation := stage{name: "simulation", testArgs: []string{"-seeds=" + strconv.Itoa(seeds)}}
	acceptance := stage{name: "acceptance", args: []string{"-parallel", "8"}}
	for _, pkg := range list {
		switch {
		case strings.HasSuffix(pkg, "/internal/e2e"):
			processes.packages = append(processes.packages, pkg)
		case strings.HasSuffix(pkg, "/internal/simulation"):
			simulation.packages = append(simulation.packages, pkg)
		case strings.HasSuffix(pkg, "/provider") || strings.Contains(pkg, "/cmd/"):
			acceptance.packages = append(acceptance.packages, pkg)
		default:
			raced.packages = append(raced.packages, pkg)
		}
	}
	var stages []stage
	for _, s := range []stage{raced, processes, simulation, acceptance} {
		if len(s.packages) > 0 {
			stages = append(stages, s)
		}
	}
	return stages, nil
}

// goList gives the packages of the module that have tests.
func goList(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	return strings.Fields(string(out)), nil
}

func (s stage) run(ctx context.Context) (counts, error) {
	// -count=1: a result that was cached says nothing of this machine's Redis.
	args := []string{"test", "-json", "-count=1", "-timeout", "10m"}
	if s.race {
		args = append(args, "-race")
	}
	args = append(append(args, s.args...), s.packages...)
	if len(s.testArgs) > 0 {
		args = append(append(args, "-args"), s.testArgs...)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return counts{}, err
	}
	if err := cmd.Start(); err != nil {
		return counts{}, err
	}
	c, readErr := collect(out, os.Stdout)
	var exit *exec.ExitError
	switch err := cmd.Wait(); {
	case readErr != nil:
		return c, readErr
	case errors.As(err, &exit):
		if c.failed == 0 { // a failure that no event told of must not pass
			c.failed++
			c.failures = append(c.failures, s.name+": go test "+exit.Error())
		}
	case err != nil:
		return c, err
	}
	return c, nil
}

package simulation_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	bugSeeds = flag.Int("bugseeds", 2000, "seeds within which every seeded bug must be caught")
	onlyBug  = flag.String("bug", "", "run the seeded bugs whose names contain this")
)

// bug is one rule left out: in each edit, Find stands exactly once in File and is replaced.
type bug struct {
	Name  string `json:"name"`
	Rule  string `json:"rule"`
	Edits []edit `json:"edits"`
}

type edit struct {
	File    string `json:"file"` // from the root of the module
	Find    string `json:"find"`
	Replace string `json:"replace"`
}

// moduleRoot is where the files of the bugs are counted from.
const moduleRoot = "../.."

func readBugs(t *testing.T) []bug {
	t.Helper()
	text, err := os.ReadFile("testdata/bugs.json")
	if err != nil {
		t.Fatal(err)
	}
	var bugs []bug
	if err := json.Unmarshal(text, &bugs); err != nil {
		t.Fatalf("testdata/bugs.json: %v", err)
	}
	return bugs
}

// overlay writes the mutated files of a bug and the overlay that puts them in place of the real
// ones; it returns the path of the overlay.
func (b bug) overlay(t *testing.T, dir string) string {
	t.Helper()
	root, err := filepath.Abs(moduleRoot)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, e := range b.Edits {
		path := filepath.Join(root, filepath.FromSlash(e.File))
		text, ok := texts[path]
		if !ok {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		if n := strings.Count(text, e.Find); n != 1 {
			t.Fatalf("the text that this bug replaces stands %d times in %s, not once; the source has changed, so choose another:\n%s", n, e.File, e.Find)
		}
		texts[path] = strings.Replace(text, e.Find, e.Replace, 1)
	}
	replace := map[string]string{}
	for path, text := range texts {
		mutated := filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = mutated
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// build compiles the runner, with the overlay if there is one.
func build(t *testing.T, dir, overlay string) string {
	t.Helper()
	runner := filepath.Join(dir, "simrun")
	args := []string{"build", "-o", runner, "-ldflags=-s -w"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", append(args, "./cmd/simrun")...).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return runner
}

// hunt runs seeds until one finds a violation, and says what it printed.
func hunt(t *testing.T, runner string, seeds int) (caught bool, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, runner, "-to", fmt.Sprint(seeds)).CombinedOutput()
	text = strings.TrimSpace(string(out))
	if err == nil {
		return false, text
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return true, text
	}
	t.Fatalf("the runner ended with %v:\n%s", err, text)
	return false, ""
}

// TestSeededBugs leaves the rules of the protocols out, one at a time; the simulation catches
// each. Without any bug it finds nothing.
func TestSeededBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the runner once for each bug")
	}
	bugs := readBugs(t)
	if len(bugs) < 30 {
		t.Errorf("there are only %d seeded bugs", len(bugs))
	}
	if *onlyBug == "" {
		clean := build(t, t.TempDir(), "")
		if caught, text := hunt(t, clean, 200); caught {
			t.Fatalf("without a bug: %s", text)
		}
	}
	slots := make(chan struct{}, 2)
	seen := map[string]bool{}
	for _, b := range bugs {
		if seen[b.Name] {
			t.Errorf("two bugs are named %s", b.Name)
		}
		seen[b.Name] = true
		if !strings.Contains(b.Name, *onlyBug) {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			dir := t.TempDir()
			caught, text := hunt(t, build(t, dir, b.overlay(t, dir)), *bugSeeds)
			if !caught {
				t.Errorf("rule %s left out, and not caught: %s", b.Rule, text)
				return
			}
			t.Logf("rule %s: %s", b.Rule, text)
		})
	}
}

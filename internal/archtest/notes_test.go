package archtest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readPage(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// allOf is what the first group of a pattern matches in a text.
func allOf(pattern, text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}

// TestPreviewNotesHaveAdvice: the page for operators says of every blocker and risk of a dry run
// what to do, and of nothing that is none. The list in the wire contract is complete as well.
func TestPreviewNotesHaveAdvice(t *testing.T) {
	t.Parallel()
	notes := allOf(`(?m)^\s+Note\w+\s+= "([A-Z_]+)"`, readPage(t, "sdk/protocol/preview.go"))
	if len(notes) < 16 {
		t.Fatalf("sdk/protocol/preview.go has the notes %v: the pattern no longer fits", notes)
	}
	errorCodes := allOf("(?m)^\\| `([A-Z_]+)` \\|", readPage(t, "docs/errors.md"))

	rows := map[string]bool{}
	tables := regexp.MustCompile(`(?m)^\| (?:risk|blocker) \|.*\n((?:\|.*\n)+)`)
	for _, table := range tables.FindAllStringSubmatch(readPage(t, "docs/operating.md"), -1) {
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\| ").FindAllStringSubmatch(table[1], -1) {
			maps.Copy(rows, allOf("`([A-Z_]+)`", row[1]))
		}
	}
	wire := readPage(t, "docs/protocol/wire.md")

	for _, code := range slices.Sorted(maps.Keys(notes)) {
		if !rows[code] {
			t.Errorf("docs/operating.md does not say what to do about %s", code)
		}
		if !strings.Contains(wire, "`"+code+"`") {
			t.Errorf("docs/protocol/wire.md does not list %s", code)
		}
	}
	for _, code := range slices.Sorted(maps.Keys(rows)) {
		if !notes[code] && !errorCodes[code] {
			t.Errorf("docs/operating.md gives advice for %s, which nothing says", code)
		}
	}
}

// TestRunbooksUseTheProvidersNames: what is set for Terraform, or printed by `dev`, serves the
// runbooks as it is.
func TestRunbooksUseTheProvidersNames(t *testing.T) {
	t.Parallel()
	const name = `(REDISSTREAM_[A-Z_]+)`
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no runbooks: %v", err)
	}
	known := allOf(name, readPage(t, "provider/settings.go"))
	printed := allOf(`export `+name, readPage(t, "cmd/redis-stream-coordinator/dev.go"))
	if len(printed) < 3 {
		t.Fatalf("dev prints %v: the pattern no longer fits", printed)
	}
	for _, page := range pages {
		text := readPage(t, strings.TrimPrefix(page, root+"/"))
		for used := range allOf(name, text) {
			if !known[used] || !printed[used] {
				t.Errorf("%s uses %s: known to the provider %t, printed by dev %t", page, used, known[used], printed[used])
			}
		}
		for _, other := range []string{"$COORDINATOR", "RSC_"} {
			if strings.Contains(text, other) {
				t.Errorf("%s has a name of its own: %s", page, other)
			}
		}
	}
}

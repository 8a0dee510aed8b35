package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the repository, seen from this package.
const root = "../.."

// TestScenarios checks that each scenario of the protocol pages is a test of exactly its name:
// the name stands in backticks in the first or second column of a table below "## Scenarios".
func TestScenarios(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "build" || d.Name() == "archtest"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\|(?: *[0-9]+ *\\|)? *`([a-z0-9-]+)` *\\|")
	for _, page := range []struct {
		path string
		min  int
	}{{"docs/protocol/handover.md", 25}, {"docs/protocol/resharding.md", 25}} {
		b, err := os.ReadFile(filepath.Join(root, page.path))
		if err != nil {
			t.Fatal(err)
		}
		_, scenarios, ok := strings.Cut(string(b), "## Scenarios")
		if !ok {
			t.Fatalf("%s has no section Scenarios", page.path)
		}
		found := row.FindAllStringSubmatch(scenarios, -1)
		if len(found) < page.min {
			t.Errorf("%s lists %d scenarios, want at least %d", page.path, len(found), page.min)
		}
		for _, m := range found {
			// As the name of a subtest: the argument of a call, the first field or key of a table row.
			subtest := regexp.MustCompile(`(?:\w\((?:t, )?|\{|name:\s*)"` + m[1] + `["/]|"` + m[1] + `":\s`)
			if !subtest.MatchString(tests.String()) {
				t.Errorf("%s: scenario %s is no test", page.path, m[1])
			}
		}
	}
}

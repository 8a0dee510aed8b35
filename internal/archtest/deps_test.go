package archtest

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

const module = "github.com/redisstream/terraform-provider-redisstream"

// goPackage is the part of go list -json that is read here.
type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Error      *struct{ Err string }
}

func list(t *testing.T, patterns ...string) []goPackage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-json=ImportPath,Imports,Deps,Error"}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", patterns, err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p goPackage
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// within says whether path is pkg or below it.
func within(path, pkg string) bool { return path == pkg || strings.HasPrefix(path, pkg+"/") }

// TestReach checks indirect imports, which a linter of files cannot see.
func TestReach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from   string
		forbid []string
	}{
		{"./sdk/...", []string{module + "/server", module + "/provider", module + "/cmd", "github.com/hashicorp", "go.uber.org/zap", "github.com/go-chi", "testing"}},
		{"./provider/...", []string{module + "/server", module + "/sdk/consumer", module + "/sdk/producer", "github.com/redis/go-redis"}},
		{"./server/...", []string{module + "/sdk/client", module + "/sdk/consumer", module + "/sdk/producer", module + "/provider", module + "/internal/membership", module + "/internal/appendflow", module + "/internal/redistest", module + "/internal/simulation", "github.com/hashicorp", "testing"}},
		{"./cmd/redis-stream-coordinator", []string{module + "/provider", module + "/sdk/consumer", module + "/sdk/producer", "github.com/hashicorp", "testing"}},
		{"./cmd/terraform-provider-redisstream", []string{module + "/server", "github.com/redis/go-redis"}},
	} {
		packages := list(t, c.from)
		if len(packages) == 0 {
			t.Errorf("%s matches no package", c.from)
		}
		for _, p := range packages {
			for _, dep := range p.Deps {
				for _, f := range c.forbid {
					if within(dep, f) {
						t.Errorf("%s reaches %s", strings.TrimPrefix(p.ImportPath, module+"/"), dep)
					}
				}
			}
		}
	}
}

// TestDirections checks that no package of the module imports another one that the table of
// docs/architecture.md does not give it.
func TestDirections(t *testing.T) {
	t.Parallel()
	allowed := map[string][]string{
		// The defaults of its flags are those of the packages that use them.
		"cmd/redis-stream-coordinator":       {"server", "server/httpapi", "server/redisstore", "sdk/client", "sdk/protocol"},
		"cmd/terraform-provider-redisstream": {"provider"},
		"server":                             {"server/...", "sdk/protocol", "internal/faultpoint"},
		"server/assign":                      {},
		"server/group":                       {"sdk/protocol", "server/assign"},
		"server/stream":                      {"sdk/protocol", "sdk/protocol/shardscript"},
		"server/aggregate":                   {"sdk/protocol", "sdk/protocol/shardscript", "server/group", "server/stream"},
		"server/engine":                      {"sdk/protocol", "sdk/protocol/shardscript", "server/assign", "server/group", "server/stream", "server/aggregate", "server/redisstore"},
		"server/redisstore":                  {"sdk/protocol", "sdk/protocol/shardscript", "server/group", "server/stream", "server/aggregate", "internal/faultpoint"},
		"server/httpapi":                     {"sdk/protocol", "server/engine", "server/redisstore"},
		"sdk/protocol":                       {},
		"sdk/protocol/shardscript":           {},
		"sdk/client":                         {"sdk/protocol"},
		"sdk/consumer":                       {"sdk/client", "sdk/protocol", "sdk/protocol/shardscript", "sdk/internal/shard", "internal/membership"},
		"sdk/producer":                       {"sdk/client", "sdk/protocol", "sdk/protocol/shardscript", "sdk/internal/shard", "internal/appendflow"},
		"sdk/internal/shard":                 {"sdk/protocol", "sdk/protocol/shardscript"},
		"internal/membership":                {"sdk/protocol"},
		"internal/appendflow":                {"sdk/protocol", "sdk/protocol/shardscript"},
		"internal/redistest":                 {},
		"internal/balancer":                  {},
		"internal/ledger":                    {},
		"provider":                           {"sdk/client", "sdk/protocol"},
	}
	seen := map[string]bool{}
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		seen[name] = true
		rule, ok := allowed[name]
		if !ok {
			if within(p.ImportPath, module+"/internal") || strings.HasPrefix(name, "examples/") {
				continue // tools, demo, chaos, bench and tests of the repository may import anything
			}
			t.Errorf("%s is not in the table of docs/architecture.md and of this test", name)
			continue
		}
		for _, imp := range p.Imports {
			if !within(imp, module) {
				continue
			}
			imp = strings.TrimPrefix(imp, module+"/")
			if !slices.ContainsFunc(rule, func(r string) bool {
				if below, ok := strings.CutSuffix(r, "/..."); ok {
					return strings.HasPrefix(imp, below+"/")
				}
				return imp == r
			}) {
				t.Errorf("%s imports %s", name, imp)
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("%s is in the table, but there is no such package", name)
		}
	}
}

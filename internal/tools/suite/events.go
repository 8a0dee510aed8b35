package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// event is one line of go test -json (see go doc test2json). Build events carry ImportPath.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// counts of tests, subtests included. A package that fails without a failing test (a panic in
// TestMain, a build error) counts as one failure.
type counts struct {
	passed, failed, skipped int
	failures, skips         []string
}

func (c *counts) add(o counts) {
	c.passed += o.passed
	c.failed += o.failed
	c.skipped += o.skipped
	c.failures = append(c.failures, o.failures...)
	c.skips = append(c.skips, o.skips...)
}

// collect reads events to the end, prints a line for each package and the output of what
// failed, and counts.
func collect(r io.Reader, w io.Writer) (counts, error) {
	var all counts
	type name struct{ pkg, test string }
	output := map[name][]string{} // of running tests; of packages under test ""
	builds := map[string][]string{}
	perPackage := map[string]*counts{}

	in := bufio.NewScanner(r)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			fmt.Fprintln(w, in.Text()) // not an event: go itself speaks
			continue
		}
		if e.Action == "build-output" {
			builds[e.ImportPath] = append(builds[e.ImportPath], e.Output)
			continue
		}
		pkg := perPackage[e.Package]
		if pkg == nil {
			pkg = &counts{}
			perPackage[e.Package] = pkg
		}
		key := name{e.Package, e.Test}
		full := e.Package + " " + e.Test
		switch e.Action {
		case "output":
			output[key] = append(output[key], e.Output)
			continue
		case "pass", "fail", "skip":
		default:
			continue
		}
		if e.Test == "" {
			if e.Action == "fail" {
				fmt.Fprint(w, strings.Join(builds[e.FailedBuild], ""))
				if pkg.failed == 0 {
					fmt.Fprint(w, strings.Join(output[key], ""))
					pkg.failed++
					pkg.failures = append(pkg.failures, e.Package)
				}
			}
			fmt.Fprintf(w, "%-4s %7.1f s  %5d passed %3d failed %3d skipped  %s\n", e.Action, e.Elapsed, pkg.passed, pkg.failed, pkg.skipped, e.Package)
			all.add(*pkg)
			delete(perPackage, e.Package)
			continue
		}
		switch e.Action {
		case "pass":
			pkg.passed++
		case "skip":
			pkg.skipped++
			pkg.skips = append(pkg.skips, full+": "+reason(output[key]))
		case "fail":
			pkg.failed++
			pkg.failures = append(pkg.failures, full)
			fmt.Fprint(w, strings.Join(output[key], ""))
		}
		delete(output, key)
	}
	// A package that never ended was killed with its run.
	for path, pkg := range perPackage {
		if path == "" {
			continue
		}
		pkg.failed++
		pkg.failures = append(pkg.failures, path+": did not end")
		all.add(*pkg)
	}
	return all, in.Err()
}

// reason is the text of t.Skip: the last line of output that is not a frame of go test's own.
func reason(lines []string) string {
	text := "no reason given"
	for _, l := range lines {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "---") && !strings.HasPrefix(l, "===") {
			text = l
		}
	}
	return text
}

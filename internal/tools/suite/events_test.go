package main

import (
	"strings"
	"testing"
)

func TestCollect(t *testing.T) {
	t.Parallel()
	const stream = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestX"}
{"Action":"output","Package":"m/a","Test":"TestX","Output":"    x_test.go:3: got 1\n"}
{"Action":"fail","Package":"m/a","Test":"TestX","Elapsed":0}
{"Action":"output","Package":"m/a","Test":"TestQuiet","Output":"noise\n"}
{"Action":"pass","Package":"m/a","Test":"TestQuiet"}
{"Action":"output","Package":"m/a","Test":"TestS","Output":"    x_test.go:9: only on Fridays\n"}
{"Action":"output","Package":"m/a","Test":"TestS","Output":"--- SKIP: TestS (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestS"}
{"Action":"fail","Package":"m/a","Elapsed":0.1}
{"ImportPath":"m/b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"Action":"start","Package":"m/b"}
{"Action":"fail","Package":"m/b","FailedBuild":"m/b"}
{"Action":"output","Package":"m/c","Output":"panic: in TestMain\n"}
{"Action":"fail","Package":"m/c"}
{"Action":"start","Package":"m/d"}
{"Action":"pass","Package":"m/d","Test":"TestD"}
`
	var out strings.Builder
	got, err := collect(strings.NewReader(stream), &out)
	if err != nil {
		t.Fatal(err)
	}
	if got.passed != 2 || got.failed != 4 || got.skipped != 1 {
		t.Errorf("got %d passed, %d failed, %d skipped; want 2, 4, 1 (%v)", got.passed, got.failed, got.skipped, got.failures)
	}
	if len(got.skips) != 1 || !strings.HasSuffix(got.skips[0], "only on Fridays") {
		t.Errorf("skips = %q; want the reason", got.skips)
	}
	for _, want := range []string{"got 1", "syntax error", "in TestMain"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "noise") {
		t.Errorf("output of a passing test is shown:\n%s", out.String())
	}
}

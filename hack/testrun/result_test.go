// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestReadCountsAndShowsFailures(t *testing.T) {
	t.Parallel()
	const events = `{"Action":"output","Package":"p","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"I1123 18:32:44.185346 server.go:1] log\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"    bad_test.go:1: reason\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"        E1123 18:32:44.185346       1 server.go:1] the log of annex\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"        {\"level\":\"warn\",\"msg\":\"the log of etcd\"}\n"}
{"Action":"fail","Package":"p","Test":"TestBad"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"    later_test.go:1: not today\n"}
{"Action":"output","Package":"p","Test":"TestLater","Output":"--- SKIP: TestLater (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestLater"}
{"Action":"fail","Package":"p","Elapsed":1.5}
{"Action":"skip","Package":"empty"}
{"Action":"output","Package":"q","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"q","Elapsed":2}
{"ImportPath":"broken","Action":"build-output","Output":"broken.go:1: syntax error\n"}
{"ImportPath":"broken","Action":"build-fail"}
`
	var out strings.Builder
	result := newResult("unit")
	if err := result.read(strings.NewReader(events), &out); err != nil {
		t.Fatal(err)
	}
	if result.passed != 1 || result.skipped != 1 || result.packages != 2 {
		t.Errorf("counted %d passed, %d skipped, %d packages", result.passed, result.skipped, result.packages)
	}
	if !result.failed() {
		t.Error("the level did not fail")
	}
	if got, want := result.messages, []string{"--- FAIL: TestBad (p, 0.0s)\n    bad_test.go:1: reason\n"}; !slices.Equal(got, want) {
		t.Errorf("the summary shows %q, not %q", got, want)
	}
	for _, want := range []string{"bad_test.go:1: reason", "skip  TestLater: later_test.go:1: not today\n", "panic: test timed out", "broken.go:1: syntax error", "FAIL  p"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
	for _, noise := range []string{"quiet", "=== RUN"} {
		if strings.Contains(out.String(), noise) {
			t.Errorf("the output has %q:\n%s", noise, out.String())
		}
	}
}

func TestSelectLevels(t *testing.T) {
	t.Parallel()
	if selected, err := selectLevels([]string{"unit", "e2e"}); err != nil || len(selected) != 2 {
		t.Errorf("got %d levels and error %v", len(selected), err)
	}
	for _, names := range [][]string{nil, {"units"}} {
		if _, err := selectLevels(names); err == nil {
			t.Errorf("%q was accepted", names)
		}
	}
}

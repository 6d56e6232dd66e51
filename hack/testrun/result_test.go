// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
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
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":3}
{"Action":"pass","Package":"p","Test":"TestGood/part","Elapsed":9}
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
	if result.Passed != 2 || result.Skipped != 1 || result.Packages != 2 {
		t.Errorf("counted %d passed, %d skipped, %d packages", result.Passed, result.Skipped, result.Packages)
	}
	if !result.failed() {
		t.Error("the level did not fail")
	}
	if got, want := result.Messages, []string{"--- FAIL: TestBad (p, 3.0s)\n    bad_test.go:1: reason\n"}; !slices.Equal(got, want) {
		t.Errorf("the summary shows %q, not %q", got, want)
	}
	if len(result.Tests) != 3 || result.Tests[0] != (timing{"p", "TestBad", 3}) {
		t.Errorf("the slowest tests are %v", result.Tests)
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

func TestSummary(t *testing.T) {
	t.Parallel()
	unit, cluster := newResult("unit"), newResult("cluster")
	for i := range slowest {
		unit.Tests = append(unit.Tests, timing{"p", fmt.Sprintf("TestOf%d", i), float64(slowest - i)})
	}
	unit.Passed = slowest
	cluster.Tests = []timing{{"q", "TestSlow", 50}}
	cluster.fail(errors.New("no cluster"))
	var out strings.Builder
	printSummary(&out, []*result{unit, cluster})
	for _, want := range []string{"cluster  0", "FAILED", "TestSlow", "TestOf0", "TestOf18", "no cluster", "\n20 passed, 1 failed, 0 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "TestOf19") {
		t.Errorf("the summary has more than %d tests:\n%s", slowest, out.String())
	}
}

func TestResultsAreKept(t *testing.T) {
	t.Chdir(t.TempDir())
	saved := newResult("e2e")
	saved.Passed, saved.Elapsed, saved.Tests = 3, time.Minute, []timing{{"p", "TestOne", 2}}
	if err := saveResults([]*result{saved}); err != nil {
		t.Fatal(err)
	}
	loaded, err := loadResults()
	if err != nil || len(loaded) != 1 || !reflect.DeepEqual(loaded[0], saved) {
		t.Errorf("loaded %+v and error %v", loaded, err)
	}
}

func TestFuzzTargets(t *testing.T) {
	t.Parallel()
	targets, err := fuzzTargets(filepath.Join("..", ".."))
	if err != nil || len(targets) < 5 {
		t.Errorf("found %v and error %v", targets, err)
	}
}

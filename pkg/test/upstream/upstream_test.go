// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	exceptions := []exception{
		{needs: "Pods", message: notServed, tests: []string{"Pods "}},
		{needs: "time", skipReason: "it takes an hour", tests: []string{"Slow "}},
		{needs: "luck", tests: []string{"Gone "}},
	}
	got := judge([]attempt{
		{test: "CRDs work", state: passed},
		{test: "CRDs break", state: failed, message: "broken"},
		{test: "CRDs need a cloud", state: skipped, message: "no cloud"},
		{test: "CRDs were left out", state: skipped},
		{test: "Pods run", state: failed, message: "the server " + notServed},
		{test: "Pods fly", state: failed, message: "no wings"},
		{test: "Pods pass", state: passed},
		{test: "Pods were left out", state: skipped},
		{test: "Slow but sure", state: skipped},
		{test: "The Slow one", state: passed},
	}, exceptions)
	want := map[string]state{
		"CRDs work": passed, "CRDs break": failed, "CRDs need a cloud": skipped, "CRDs were left out": failed,
		"Pods run": skipped, "Pods fly": failed, "Pods pass": failed, "Pods were left out": failed,
		"Slow but sure": skipped, "The Slow one": passed, "Gone ": failed,
	}
	states := map[string]state{}
	for _, outcome := range got {
		states[outcome.test] = outcome.state
		if outcome.state != passed && outcome.reason == "" {
			t.Errorf("%s: %s without a reason", outcome.test, outcome.state)
		}
	}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("wrong outcomes (-want +got):\n%s", diff)
	}
}

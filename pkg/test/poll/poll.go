// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poll waits in tests for what comes about by itself, and says what
// it saw last when that does not.
package poll

import (
	"testing"
	"time"
)

// interval is short: tests wait for things that take milliseconds.
const interval = 20 * time.Millisecond

// UntilDone polls until check reports that it is done, and fails the test with what was
// last seen if that takes longer than patience.
func UntilDone(t testing.TB, patience time.Duration, what string, check func() (done bool, saw string)) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		done, saw := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s; last seen: %s", what, patience, saw)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: the test ended; last seen: %s", what, saw)
		case <-time.After(interval):
		}
	}
}

// UntilNoProblem polls until check returns "", and fails the test with the last that it
// returned if that takes longer than patience.
func UntilNoProblem(t testing.TB, patience time.Duration, what string, check func() (problem string)) {
	t.Helper()
	UntilDone(t, patience, what, func() (bool, string) {
		problem := check()
		return problem == "", problem
	})
}

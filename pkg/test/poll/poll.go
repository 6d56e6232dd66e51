// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poll waits for conditions in tests, and reports what it last saw when
// one is not met.
package poll

import (
	"fmt"
	"testing"
	"time"
)

// Timeout bounds every wait. It is long because machines that run tests are busy.
const Timeout = 3 * time.Minute

// The interval doubles: most waits end within milliseconds, and long ones should not
// load the server. A dozen tests wait at a time.
const (
	minInterval = time.Millisecond
	maxInterval = 250 * time.Millisecond
)

// Until polls until check returns no problem, and fails the test with the last problem
// after Timeout.
func Until(t testing.TB, what string, check func() (problem string)) {
	t.Helper()
	UntilDone(t, what, func() (bool, string) {
		problem := check()
		return problem == "", problem
	})
}

// UntilDone polls until check reports that it is done, and fails the test with what was
// last seen after Timeout.
func UntilDone(t testing.TB, what string, check func() (done bool, saw string)) {
	t.Helper()
	deadline := time.Now().Add(Timeout)
	for interval := minInterval; ; interval = min(2*interval, maxInterval) {
		done, saw := check()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s; last seen: %s", what, Timeout, saw)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: the test ended; last seen: %s", what, saw)
		case <-time.After(interval):
		}
	}
}

// UntilNoError polls until check returns no error, and fails the test with the last
// error after Timeout.
func UntilNoError(t testing.TB, what string, check func() error) {
	t.Helper()
	UntilDone(t, what, func() (bool, string) {
		err := check()
		return err == nil, fmt.Sprint(err)
	})
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllertest runs controllers on the clients of a test.
package controllertest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/events"
)

// Factory starts and stops informers.
type Factory interface {
	StartWithContext(ctx context.Context)
	Shutdown()
}

// Run runs a controller and informers until stop is called or the test ends.
func Run(t *testing.T, controller interface {
	Run(ctx context.Context, workers int)
}, workers int, factories ...Factory) (stop func()) {
	t.Helper()
	return Start(t, func(ctx context.Context) { controller.Run(ctx, workers) }, factories...)
}

// Start is Run for a function.
func Start(t *testing.T, run func(ctx context.Context), factories ...Factory) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	for _, factory := range factories {
		factory.StartWithContext(ctx)
	}
	var running sync.WaitGroup
	running.Go(func() { run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
		for _, factory := range factories {
			factory.Shutdown()
		}
	}
	t.Cleanup(stop)
	return stop
}

// Advance advances the clock of a synctest bubble, and waits until its goroutines are
// blocked.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Events returns what was recorded since the last call.
func Events(recorder *events.FakeRecorder) []string {
	var recorded []string
	for len(recorder.Events) > 0 {
		recorded = append(recorded, <-recorder.Events)
	}
	return recorded
}

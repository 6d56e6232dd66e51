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

	"k8s.io/client-go/informers"
)

// Run runs a controller and the informers of a factory until the end of the test.
func Run(t *testing.T, factory informers.SharedInformerFactory, controller interface {
	Run(ctx context.Context, workers int)
}, workers int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { controller.Run(ctx, workers) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	})
}

// Advance advances the clock of a synctest bubble, and waits until its goroutines are
// blocked.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

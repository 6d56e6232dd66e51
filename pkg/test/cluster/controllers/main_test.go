// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// mainCluster is shared by the tests that do not break it. Tests that change the documents or the
// discovery of the cluster, or stop a part of it, are grouped by top-level tests that do not run in
// parallel.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	// The quota controller counts a new kind at its next full sync, by default every five minutes.
	options := maincluster.Options{ControllerManagerFlags: []string{"--resource-quota-sync-period=5s"}}
	os.Exit(maincluster.RunTests(m, options, func(started *maincluster.Cluster) { mainCluster = started }))
}

func kube(t testing.TB, config *restclient.Config) kubernetes.Interface {
	t.Helper()
	return clients.For(t, config).Kube
}

// groupedTest is a test of a group that shares servers.
type groupedTest[T any] struct {
	name string
	run  func(*testing.T, T)
}

// runGroup runs tests one after another, and then the parallel ones together. It returns when all
// have finished.
func runGroup[T any](t *testing.T, shared T, sequential, parallel []groupedTest[T]) {
	t.Helper()
	for _, test := range sequential {
		t.Run(test.name, func(t *testing.T) { test.run(t, shared) })
	}
	t.Run("parallel", func(t *testing.T) {
		for _, test := range parallel {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, shared)
			})
		}
	})
}

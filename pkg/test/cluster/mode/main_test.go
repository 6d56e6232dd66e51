// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package mode

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// noControllers: authentication and authorization need no controller manager.
var noControllers = maincluster.Options{Controllers: []string{maincluster.NoControllers}}

// mainCluster is shared by the tests that do not break it.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(maincluster.RunTests(m, noControllers, func(started *maincluster.Cluster) { mainCluster = started }))
}

// ownCluster starts a main cluster for a test that breaks it.
func ownCluster(t *testing.T) *maincluster.Cluster {
	t.Helper()
	return maincluster.StartForTest(t, noControllers)
}

func kube(t *testing.T, config *restclient.Config) kubernetes.Interface {
	t.Helper()
	return clients.For(t, config).Kube
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package mode

import (
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// patience is how long a wait may take on a busy machine.
const patience = time.Minute

// noControllers: logins and rights need no controller manager.
var noControllers = maincluster.Options{Controllers: []string{maincluster.NoControllers}}

// mainCluster is shared by the tests that leave it as they found it.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(maincluster.RunTests(m, noControllers, func(started *maincluster.Cluster) { mainCluster = started }))
}

// ownCluster is for tests that break it.
func ownCluster(t *testing.T) *maincluster.Cluster {
	t.Helper()
	cluster, err := maincluster.Start(t.Context(), noControllers)
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func kube(t *testing.T, config *restclient.Config) kubernetes.Interface {
	t.Helper()
	made, err := kubernetes.NewForConfig(config)
	expect.NoError(t, err)
	return made
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
)

// noControllers: no test here needs kube-controller-manager.
var noControllers = maincluster.Options{Controllers: []string{maincluster.NoControllers}}

// mainCluster is shared by the tests that do not break it. Those that install annex in it run
// sequentially, because each has the same names there.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(maincluster.RunTests(m, noControllers, func(started *maincluster.Cluster) { mainCluster = started }))
}

func kube(t testing.TB, config *restclient.Config) kubernetes.Interface {
	t.Helper()
	return clients.For(t, config).Kube
}

// metrics returns the metrics of a replica.
func metrics(t testing.TB, annex *annextest.Annex) string {
	t.Helper()
	text, err := kube(t, annex.AnnexConfig).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	return string(text)
}

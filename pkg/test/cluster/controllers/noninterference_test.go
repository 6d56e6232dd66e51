// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/faultproxy"
)

// TestNoninterference proves that annex does not disturb a main cluster.
func TestNoninterference(t *testing.T) {
	runGroup(t, startSharedAnnex(t), []groupedTest[*sharedAnnex]{
		{"Store down", testStoreDown},
		{"annex down", testAnnexDown},
		{"main cluster restarts", testMainClusterRestarts},
		{"large object", testLargeObjectThroughTheMainCluster},
	}, []groupedTest[*sharedAnnex]{
		{"new kinds are discovered", testNewKindsAreDiscovered},
		{"OpenAPI", testOpenAPI},
		{"OpenAPI of an unpublished group", testOpenAPIOfUnpublishedGroup},
		{"synced CRD", testSyncedCRD},
		{"namespace deletion", testNamespaceDeletion},
		{"garbage collection", testGarbageCollection},
		{"resource quota", testResourceQuota},
		{"retention", testRetention},
		{"kubectl", testKubectlThroughTheMainCluster},
		{"webhooks", testWebhooksOfTheMainCluster},
		{"policies", testPoliciesOfTheMainCluster},
		{"mutating policies", testMutatingPoliciesOfTheMainCluster},
		{"rights", testRightsOfTheMainCluster},
		{"FlowSchemas", testFlowSchemasOfTheMainCluster},
		{"WatchList", testWatchListThroughTheMainCluster},
		{"reflectors", testReflectorsThroughTheMainCluster},
	})
}

// sharedAnnex is one annex for all these tests, behind a proxy to its etcd. Only tests that do not
// run in parallel may stop it or freeze the proxy, and must undo that.
type sharedAnnex struct {
	dataDir      string
	proxy        *faultproxy.Proxy
	installation *annextest.Installation
	annex        *annextest.Annex

	// before are the main cluster's documents before annex was added.
	before documents
	// known is a group of Widgets that kube-controller-manager has had time to discover.
	known string
}

// startSharedAnnex installs annex until the test ends.
func startSharedAnnex(t *testing.T) *sharedAnnex {
	t.Helper()
	s := &sharedAnnex{dataDir: filepath.Join(t.TempDir(), "data")}
	s.before = readDocuments(t, mainCluster.Config)
	// Another annex would have no data of the definitions that this one has taken over.
	t.Cleanup(func() {
		expect.Succeeds(t, annextest.DeleteDefinitions(context.Background(), mainCluster))
	})
	var err error
	s.proxy, err = faultproxy.New(t.Context(), strings.TrimPrefix(etcdtest.Start(t, nil).Endpoint(), "unix://"))
	expect.NoError(t, err)
	t.Cleanup(s.proxy.Close)
	s.installation = annextest.InstallForTest(t, mainCluster)
	expect.NoError(t, s.launch())
	t.Cleanup(func() {
		s.annex.Stop(t)
		expect.Succeeds(t, s.installation.Uninstall(context.Background()))
	})
	expect.NoError(t, s.installation.WaitHosting(t.Context()))
	s.known = s.newWidgets(t).group
	return s
}

// launch starts or restarts annex.
func (s *sharedAnnex) launch() error {
	var err error
	s.annex, err = s.installation.Launch(s.dataDir, "--etcd-servers=http://"+s.proxy.Address(), "--max-object-bytes=4Mi")
	return err
}

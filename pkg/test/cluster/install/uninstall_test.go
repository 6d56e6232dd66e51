// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestStopped: the doctor reports a stopped annex and its deleted APIService, and releases CRDs
// that wait for annex. After a restart no fault remains, and after a removal in the documented
// order every CRD can be deleted.
func TestStopped(t *testing.T) {
	t.Parallel()
	const group, left, deleted = "stopped.example.com", "lefts.stopped.example.com", "widgets.stopped.example.com"
	cluster := ownCluster(t)
	annex := annextest.Start(t, cluster)
	expect.NoError(t, annex.AllowGroup(t.Context(), group))
	for _, name := range []string{left, deleted} {
		expect.Create(t, definitions(t, cluster.Config), labelled(crd(name)))
	}
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	waitForOK(t, cluster)
	annex.Stop(t)
	waitForFinding(t, cluster, "leader", "FAIL", "no replica runs the controllers")
	// The main cluster detects it within half a minute.
	waitForFinding(t, cluster, "through-main", "FAIL", "cannot be read through the main cluster")
	expect.Delete(t, clients.For(t, cluster.Config).APIServices, hosting)
	waitForFinding(t, cluster, "apiservice", "FAIL", "there is no APIService")

	waitForFinding(t, cluster, "deletions", "warn", left, "Start annex")
	fix(t, cluster, "kubectl delete crd "+deleted+" --wait=false")
	fix(t, cluster, waitForFinding(t, cluster, "deletions", "FAIL", deleted, "Start annex").Mend)
	fix(t, cluster, "kubectl wait --for=delete --timeout=50s crd/"+deleted)

	again, err := annex.Launch(annex.DataDir)
	expect.NoError(t, err)
	defer again.Stop(t)
	waitForFinding(t, cluster, "resources", "FAIL", deleted, "MainDefinitionDeleted", "all objects")
	expect.Delete(t, definitions(t, again.AnnexConfig), deleted)
	waitForOK(t, cluster)

	fix(t, cluster, "kubectl label crds -l annex.dev/hosted=true annex.dev/hosted-")
	poll.UntilDone(t, "annex removes its finalizers", func() (bool, string) {
		output, err := shell(t, cluster, "kubectl get crds -o jsonpath='{.items[*].metadata.finalizers}'")
		return err == nil && !strings.Contains(output, "annex.dev"), output
	})
	again.Stop(t)
	fix(t, cluster, "kubectl delete apiservices -l annex.dev/published-by=annex-system.annex")
	fix(t, cluster, "kubectl delete crd "+left+" --timeout=50s")
}

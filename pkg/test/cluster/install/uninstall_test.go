// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package install

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestStopped: with annex stopped and its APIService deleted by hand the doctor says
// so, and lets definitions go that wait for annex. All is well when annex is back, and
// after it was removed in the documented order every definition can be deleted.
func TestStopped(t *testing.T) {
	t.Parallel()
	const group, left, deleted = "stopped.example.com", "lefts.stopped.example.com", "widgets.stopped.example.com"
	cluster := ownCluster(t)
	annex := annextest.Start(t, cluster)
	expect.NoError(t, annex.AllowGroup(t.Context(), group))
	for _, name := range []string{left, deleted} {
		installCRD(t, cluster.Config, labelled(crd(name)))
	}
	expect.NoError(t, annex.WaitPublished(t.Context(), group, "v1"))
	healthy(t, cluster)
	annex.Stop(t)
	finds(t, cluster, "leader", "FAIL", "no replica runs the controllers")
	// The main cluster itself notices within half a minute.
	finds(t, cluster, "through-main", "FAIL", "cannot be read through the main cluster")
	expect.NoError(t, aggregator(t, cluster.Config).ApiregistrationV1().APIServices().Delete(t.Context(), hosting, metav1.DeleteOptions{}))
	finds(t, cluster, "apiservice", "FAIL", "there is no APIService")

	finds(t, cluster, "deletions", "warn", left, "Start annex")
	mend(t, cluster, "kubectl delete crd "+deleted+" --wait=false")
	mend(t, cluster, finds(t, cluster, "deletions", "FAIL", deleted, "Start annex").Mend)
	mend(t, cluster, "kubectl wait --for=delete --timeout=50s crd/"+deleted)

	again, err := annex.Launch(annex.DataDir)
	expect.NoError(t, err)
	defer again.Stop(t)
	finds(t, cluster, "resources", "FAIL", deleted, "MainDefinitionDeleted", "all objects")
	deleteCRD(t, again.AnnexConfig, deleted)
	healthy(t, cluster)

	mend(t, cluster, "kubectl label crds -l annex.dev/hosted=true annex.dev/hosted-")
	poll.UntilDone(t, "annex lets its definitions go", func() (bool, string) {
		output, err := shell(t, cluster, "kubectl get crds -o jsonpath='{.items[*].metadata.finalizers}'")
		return err == nil && !strings.Contains(output, "annex.dev"), output
	})
	again.Stop(t)
	mend(t, cluster, "kubectl delete apiservices -l annex.dev/published-by=annex-system.annex")
	mend(t, cluster, "kubectl delete crd "+left+" --timeout=50s")
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// A CRD is deleted after its objects. While their Store is down the CRD waits, has
// conditions with the reason, and does not delay others.
func TestCRDDeletionWhileStoreIsDown(t *testing.T) {
	t.Parallel()
	a := startAnnex(t)
	etcd := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	a.addStore(t, "fragile", etcd)
	var stuck []*resource
	for range 6 { // more than the workers
		r := a.installOn(t, "fragile")
		r.create(t, "v1", "there", "spec: {}")
		stuck = append(stuck, r)
	}
	other := a.installOn(t, "default")
	other.create(t, "v1", "there", "spec: {}")
	etcd.Members[0].Kill(t)
	a.waitForStore(t, "fragile", metav1.ConditionFalse, "")
	for _, r := range stuck {
		r.deleteCRD(t)
	}
	for _, r := range stuck {
		r.waitForCRDCondition(t, apiextensionsv1.Terminating, apiextensionsv1.ConditionTrue, "InstanceDeletionFailed", `store "fragile" is not available`)
		r.waitForCRDCondition(t, "StoreReady", apiextensionsv1.ConditionFalse, "StoreNotReady", `Store "fragile" is not ready`)
	}
	other.deleteCRD(t)
	other.waitForCRDDeleted(t)

	etcd.Members[0].Start(t)
	for _, r := range stuck {
		r.waitForCRDDeleted(t)
		r.waitForHostedResource(t, "has no CRD", isPending) // the test created it
		if left := r.keysOf(t, etcd.Client(t)); left > 0 {
			t.Errorf("%s left %d objects behind", r.name, left)
		}
	}
}

// waitForCRDCondition waits for a condition of the CRD.
func (r *resource) waitForCRDCondition(t *testing.T, kind apiextensionsv1.CustomResourceDefinitionConditionType, status apiextensionsv1.ConditionStatus, reason, words string) {
	t.Helper()
	expect.Eventually(t, r.annex.CRDs(), r.name, fmt.Sprintf("%s has %s=%s %s", r.name, kind, status, reason), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		condition := apiextensionshelpers.FindCRDCondition(crd, kind)
		return condition != nil && condition.Status == status && condition.Reason == reason && strings.Contains(condition.Message, words)
	})
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func TestDeletions(t *testing.T) {
	t.Parallel()
	const ours = "annex.dev/annex-system.annex"
	held := func(name string, deleted bool, finalizers ...string) *apiextensionsv1.CustomResourceDefinition {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
		if deleted {
			crd.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
			crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Message: "1 left"}}
		}
		return crd
	}
	running := []runtime.Object{&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: manifestNamespace, Name: manifestLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("annex-0"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(noon.Add(-time.Second))),
		},
	}}
	for name, tc := range map[string]struct {
		fixture fixture
		want    []want
	}{
		"none":       {fixture{}, []want{{statusOK, "0 definitions", ""}}},
		"another's":  {fixture{definitions: []runtime.Object{held("a.example.com", true, "annex.dev/other.annex")}}, []want{{statusOK, "0 definitions", ""}}},
		"held":       {fixture{kube: running, definitions: []runtime.Object{held("a.example.com", false, ours)}}, []want{{statusOK, "1 definitions have annex's finalizer", ""}}},
		"waits":      {fixture{kube: running, definitions: []runtime.Object{held("a.example.com", true, ours)}}, []want{{statusWarn, "a.example.com is being deleted: 1 left", "kubectl describe crd a.example.com"}}},
		"held, down": {fixture{definitions: []runtime.Object{held("a.example.com", false, ours)}}, []want{{statusWarn, "if a.example.com is deleted, it waits", `"path":"/metadata/finalizers/0"`}}},
		"waits, down": {fixture{definitions: []runtime.Object{held("a.example.com", true, "theirs", ours)}}, []want{{statusFail, "a.example.com is being deleted and waits for annex",
			`kubectl patch crd a.example.com --type=json -p='[{"op":"test","path":"/metadata/finalizers/1","value":"annex.dev/annex-system.annex"},{"op":"remove","path":"/metadata/finalizers/1"}]'`}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, checkDeletions(t.Context(), tc.fixture.environment()), tc.want)
		})
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
)

func TestLeftovers(t *testing.T) {
	t.Parallel()
	policy := func(prefix string) runtime.Object {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: prefix + "a.example.com"}}
	}
	definition := func(label string, finalizers ...string) runtime.Object {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: "widgets.a.example.com", Labels: map[string]string{hostingv1alpha1.HostedLabel: label}, Finalizers: finalizers,
		}}
	}
	inAnnex := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: "widgets.a.example.com"}}
	routed := published("v1.a.example.com")
	labelled := definition("true", "annex.dev/annex-system.annex")
	const back = "kubectl label crd widgets.a.example.com annex.dev/hosted=true && " +
		"kubectl wait --for=condition=Published --timeout=60s hostedresource/widgets.a.example.com && annex rollback a.example.com"
	for name, test := range map[string]struct {
		fixture fixture
		gone    bool
		want    want
	}{
		"nothing":                   {fixture{}, true, want{LevelOK, "no group", ""}},
		"served":                    {fixture{kube: []runtime.Object{clusterIP, policy("annex-freeze.")}, apiServices: []runtime.Object{routed}, definitions: []runtime.Object{labelled}}, false, want{LevelOK, "1 groups", ""}},
		"served, annex is down":     {fixture{kube: []runtime.Object{clusterIP, policy("annex-freeze.")}, apiServices: []runtime.Object{routed}}, true, want{LevelOK, "1 groups", ""}},
		"labelled":                  {fixture{definitions: []runtime.Object{labelled}}, false, want{LevelOK, "1 groups", ""}},
		"the Service is missing":    {fixture{apiServices: []runtime.Object{routed}}, true, want{LevelFail, "requests for a.example.com/v1 go to Service annex-system/annex, which is missing. Its objects", applyManifests}},
		"frozen, annex is gone":     {fixture{kube: []runtime.Object{policy("annex-freeze.")}}, true, want{LevelFail, "writes are denied. Its objects, with everything written since", applyManifests}},
		"frozen, annex is down":     {fixture{kube: []runtime.Object{clusterIP, policy("annex-freeze.")}}, true, want{LevelFail, "writes are denied. Its objects", "get pods"}},
		"frozen, annex has it":      {fixture{kube: []runtime.Object{clusterIP, policy("annex-freeze.")}, annexObjects: []runtime.Object{inAnnex}}, false, want{LevelFail, "annex has the objects of a.example.com", back}},
		"frozen, other data":        {fixture{kube: []runtime.Object{clusterIP, policy("annex-freeze.")}}, false, want{LevelFail, "for an annex with other data", "kubectl get hostedresources"}},
		"the copy is open":          {fixture{apiServices: []runtime.Object{published("zz-annex-main-copy.a.example.com", by(""), local)}}, true, want{LevelFail, "the main cluster keeps a copy of a.example.com", applyManifests}},
		"held":                      {fixture{kube: []runtime.Object{policy("annex-hold-garbage-collector.")}}, false, want{LevelOK, "1 groups", ""}},
		"held, annex is gone":       {fixture{kube: []runtime.Object{policy("annex-hold-garbage-collector.")}}, true, want{LevelFail, "the garbage collector may not delete dependants of a.example.com", applyManifests}},
		"a finalizer, annex's gone": {fixture{definitions: []runtime.Object{labelled}}, true, want{LevelWarn, "widgets.a.example.com has the label or finalizer of an annex that does not run", applyManifests}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := test.fixture.environment()
			if test.gone {
				annex := annexfake.NewClientset()
				annex.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewServiceUnavailable("no endpoints")
				})
				e.Annex = annex
			}
			compare(t, checkLeftovers(t.Context(), e), []want{test.want})
		})
	}
}

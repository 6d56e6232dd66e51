// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	fakeextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	fakeaggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// definitionOf serves v1 and not v2.
func definitionOf(plural string, established apiextensionsv1.ConditionStatus) *apiextensionsv1.CustomResourceDefinition {
	return grouptest.CRD(plural+"."+grouptest.Group, grouptest.Versions("v1", "-v2"), grouptest.Annotated("large", "value"),
		grouptest.Condition(apiextensionsv1.Established, established, ""), func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
		})
}

func TestAPIs(t *testing.T) {
	t.Parallel()
	cluster := &Cluster{
		APIExtensions: fakeextensions.NewClientset(
			definitionOf("widgets", apiextensionsv1.ConditionTrue), definitionOf("gadgets", apiextensionsv1.ConditionTrue), definitionOf("new", apiextensionsv1.ConditionFalse)),
		APIRegistration: fakeaggregator.NewClientset(
			grouptest.Local(grouptest.Group, "v1"), grouptest.Published(grouptest.Group, "v2", ""), grouptest.Elsewhere(grouptest.Group, "v3", "elsewhere", "annex")),
	}
	apis, err := cluster.APIs(DefaultService())
	expect.NoError(t, err)
	if apis.HasSynced() {
		t.Error("everything is known before anything was asked")
	}
	go apis.Run(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), apis.HasSynced) {
		t.Fatal("the informers did not sync")
	}

	v1, v2 := schema.GroupVersion{Group: "example.com", Version: "v1"}, schema.GroupVersion{Group: "example.com", Version: "v2"}
	expect.Equal(t, []string{"gadgets", "widgets"}, sets.List(apis.Defines(v1)), "defined in %s", v1)
	if defined := apis.Defines(v2); defined.Len() > 0 {
		t.Errorf("%v are defined in %s, which is not served", sets.List(defined), v2)
	}
	for version, want := range map[string]bool{"v1": true, "v2": false, "v3": true, "v4": false} {
		if got := apis.PublishedElsewhere(schema.GroupVersion{Group: "example.com", Version: version}); got != want {
			t.Errorf("%s is published elsewhere: %v, want %v", version, got, want)
		}
	}
	for _, obj := range apis.definitionInformer().GetStore().List() {
		definition := obj.(*apiextensionsv1.CustomResourceDefinition)
		if definition.Annotations != nil || definition.Spec.Versions[0].Schema != nil {
			t.Errorf("more of %s is kept than needed: %v", definition.Name, definition)
		}
	}
	for _, obj := range apis.apiServiceInformer().GetStore().List() {
		if apiService := obj.(*apiregistrationv1.APIService); apiService.Spec.CABundle != nil {
			t.Errorf("more of %s is kept than needed: %v", apiService.Name, apiService)
		}
	}
}

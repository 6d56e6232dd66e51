// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// widgets is the definition of a namespaced resource that is served.
func widgets(change func(*definition)) *definition {
	crd := &definition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: "v1beta1", Served: true}, {Name: "v1", Served: true, Storage: true},
			},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
			},
		},
	}
	if change != nil {
		change(crd)
	}
	return crd
}

func TestResourcesToDelete(t *testing.T) {
	t.Parallel()
	all := resource{list: true, delete: true, deleteCollection: true}
	with := func(base resource, group, version, name string) resource {
		base.gvr = schema.GroupVersionResource{Group: group, Version: version, Resource: name}
		return base
	}
	entry := func(name string, namespaced bool, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: name, Namespaced: namespaced, Verbs: verbs}
	}

	for name, tc := range map[string]struct {
		lists       []*metav1.APIResourceList
		definitions []*definition
		want        []resource
		wantErrors  int
	}{
		"nothing": {},
		"sorted, whatever the order of discovery": {
			lists: []*metav1.APIResourceList{apiResources("example.com/v1", "b", "a"), apiResources("v1", "secrets", "configmaps")},
			want: []resource{with(all, "", "v1", "configmaps"), with(all, "", "v1", "secrets"),
				with(all, "example.com", "v1", "a"), with(all, "example.com", "v1", "b")},
		},
		"what cannot be deleted, or is no namespaced resource": {
			lists: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
				entry("bindings", true, "create"),
				entry("nodes", false, "list", "delete", "deletecollection"),
				entry("things/status", true, "list", "delete"),
			}}},
		},
		"each with the verbs it has": {
			lists: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
				entry("collected", true, "deletecollection"),
				entry("single", true, "list", "delete"),
			}}},
			want: []resource{
				with(resource{deleteCollection: true}, "", "v1", "collected"),
				with(resource{list: true, delete: true}, "", "v1", "single"),
			},
		},
		"a group version that cannot be parsed spoils nothing else": {
			lists:      []*metav1.APIResourceList{apiResources("a/b/c", "x"), apiResources("v1", "secrets")},
			want:       []resource{with(all, "", "v1", "secrets")},
			wantErrors: 1,
		},
		"a custom resource that discovery does not list yet": {
			lists:       []*metav1.APIResourceList{apiResources("v1", "secrets")},
			definitions: []*definition{widgets(nil)},
			want:        []resource{with(all, "", "v1", "secrets"), with(all, "example.com", "v1", "widgets")},
		},
		"a custom resource that discovery lists is taken as listed": {
			lists:       []*metav1.APIResourceList{apiResources("example.com/v2", "widgets")},
			definitions: []*definition{widgets(nil)},
			want:        []resource{with(all, "example.com", "v2", "widgets")},
		},
		"the version that is stored need not be served": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Spec.Versions[1].Served = false })},
			want:        []resource{with(all, "example.com", "v1beta1", "widgets")},
		},
		"a custom resource without served versions has no objects to reach": {
			definitions: []*definition{widgets(func(crd *definition) {
				crd.Spec.Versions[0].Served, crd.Spec.Versions[1].Served = false, false
			})},
		},
		"a custom resource that was never served": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Status.Conditions = nil })},
		},
		"a custom resource served before it is established": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Status.Conditions[0].Type = apiextensionsv1.NamesAccepted })},
			want:        []resource{with(all, "example.com", "v1", "widgets")},
		},
		"a custom resource outside namespaces": {
			definitions: []*definition{widgets(func(crd *definition) { crd.Spec.Scope = apiextensionsv1.ClusterScoped })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := resourcesToDelete(tc.lists, tc.definitions)
			if len(errs) != tc.wantErrors {
				t.Errorf("errors %v, want %d", errs, tc.wantErrors)
			}
			if len(tc.want) == 0 && len(got) == 0 {
				return
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(resource{})); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package front

import (
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestNewRequest has requests for a namespaced resource with the versions v1, which is served, and v2. change changes the
// definition.
func TestNewRequest(t *testing.T) {
	t.Parallel()
	clusterScoped := func(d *apiextensionsv1.CustomResourceDefinition) { d.Spec.Scope = apiextensionsv1.ClusterScoped }
	for name, test := range map[string]struct {
		verb, namespace, version, resource string
		change                             func(*apiextensionsv1.CustomResourceDefinition)
		want                               bool
	}{
		"update":                           {verb: "update", namespace: "ns", version: "v1", want: true},
		"patch":                            {verb: "patch", namespace: "ns", version: "v1", want: true},
		"get":                              {verb: "get", namespace: "ns", version: "v1", want: true},
		"list of a namespace":              {verb: "list", namespace: "ns", version: "v1", want: true},
		"list of all namespaces":           {verb: "list", version: "v1", want: true},
		"watch of all namespaces":          {verb: "watch", version: "v1", want: true},
		"update without a namespace":       {verb: "update", version: "v1"},
		"patch without a namespace":        {verb: "patch", version: "v1"},
		"get without a namespace":          {verb: "get", version: "v1"},
		"cluster-scoped":                   {verb: "update", version: "v1", change: clusterScoped, want: true},
		"cluster-scoped, with a namespace": {verb: "patch", namespace: "ns", version: "v1", change: clusterScoped},
		"version that is not served":       {verb: "update", namespace: "ns", version: "v2"},
		"unknown version":                  {verb: "patch", namespace: "ns", version: "v3"},
		"unknown resource":                 {verb: "update", namespace: "ns", version: "v1", resource: "gadgets"},
		"names not accepted": {verb: "update", namespace: "ns", version: "v1", change: func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Status.Conditions = nil
		}},
		"established with other names": {verb: "update", namespace: "ns", version: "v1", change: func(d *apiextensionsv1.CustomResourceDefinition) {
			d.Status.Conditions[0].Type = apiextensionsv1.Established
		}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			definition := newDefinition()
			definition.Spec.Scope = apiextensionsv1.NamespaceScoped
			definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v2"}, {Name: "v1", Served: true}}
			definition.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue}}
			if test.change != nil {
				test.change(definition)
			}
			if test.resource == "" {
				test.resource = "widgets"
			}
			info := &request.RequestInfo{
				IsResourceRequest: true, Verb: test.verb, APIGroup: "example.com", APIVersion: test.version, Resource: test.resource, Namespace: test.namespace, Name: "a",
			}
			for _, resource := range []bool{true, false} {
				info.IsResourceRequest = resource
				req := httptest.NewRequestWithContext(request.WithRequestInfo(t.Context(), info), http.MethodPut, "/", nil)
				r, ok := NewRequest(req, listerOf(t, definition))
				if want := test.want && resource; ok != want {
					t.Fatalf("served from storage: %v, want %v; for a resource: %v", ok, want, resource)
				}
				if ok && (r.Info != info || r.Definition != definition || r.Version.Name != "v1") {
					t.Errorf("the request is %+v", r)
				}
			}
		})
	}
	if _, ok := NewRequest(httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil), listerOf(t)); ok {
		t.Error("a request without a RequestInfo is served from storage")
	}
}

func listerOf(t *testing.T, definitions ...*apiextensionsv1.CustomResourceDefinition) definitionlisters.CustomResourceDefinitionLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, definition := range definitions {
		expect.NoError(t, indexer.Add(definition))
	}
	return definitionlisters.NewCustomResourceDefinitionLister(indexer)
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationhelper "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// compiledIn are groups that every annex serves, in the order of discovery.
var compiledIn = []string{"apiregistration.k8s.io", "events.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io", "hosting.annex.dev"}

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover reads the aggregated discovery of /api or /apis.
func (a *annex) discover(t *testing.T, path string) map[string]apidiscoveryv2.APIGroupDiscovery {
	t.Helper()
	groups := map[string]apidiscoveryv2.APIGroupDiscovery{}
	for _, group := range a.discoverList(t, path).Items {
		groups[group.Name] = group
	}
	return groups
}

func (a *annex) discoverList(t *testing.T, path string) apidiscoveryv2.APIGroupDiscoveryList {
	t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	got := a.get(t, path, "Accept", aggregatedDiscovery)
	if got.Into(t, &list); list.Kind != "APIGroupDiscoveryList" {
		t.Fatalf("aggregated discovery of %s: %s", path, got)
	}
	return list
}

func TestAggregatedDiscovery(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	crd := newCRD(t, anySchema)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2beta1", anySchema), newVersion(t, "v3", anySchema))
	crd.Spec.Versions[2].Served = false
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	crd.Spec.Names.ShortNames, crd.Spec.Names.Categories = []string{"wi"}, []string{"all"}
	widgets := a.installCRD(t, crd)

	poll.UntilDone(t, "discovery has the CRD's group", func() (bool, string) {
		group, ok := a.discover(t, "/apis")[widgets.group]
		if !ok {
			return false, "no such group"
		}
		return len(group.Versions) == 2 && group.Versions[0].Version == "v1" && group.Versions[1].Version == "v2beta1", fmt.Sprintf("versions %+v", group.Versions)
	})
	version := a.discover(t, "/apis")[widgets.group].Versions[0]
	if len(version.Resources) != 1 {
		t.Fatalf("resources: %+v", version.Resources)
	}
	found := version.Resources[0]
	if found.Resource != "widgets" || found.SingularResource != "widget" || found.ResponseKind.Kind != "Widget" || found.Scope != apidiscoveryv2.ScopeNamespace ||
		!slices.Equal(found.ShortNames, []string{"wi"}) || !slices.Equal(found.Categories, []string{"all"}) ||
		!slices.Contains(found.Verbs, "watch") || len(found.Subresources) != 1 || found.Subresources[0].Subresource != "status" {
		t.Errorf("discovery has widgets as %+v", found)
	}

	var order []string
	for _, group := range a.discoverList(t, "/apis").Items {
		if slices.Contains(compiledIn, group.Name) {
			order = append(order, group.Name)
		}
		for _, version := range group.Versions {
			if version.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent {
				t.Errorf("%s/%s is %s", group.Name, version.Version, version.Freshness)
			}
		}
	}
	if !slices.Equal(order, compiledIn) {
		t.Errorf("compiled-in groups in discovery: %v, want %v", order, compiledIn)
	}
	core := a.discover(t, "/api")[""]
	if len(core.Versions) != 1 || core.Versions[0].Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent {
		t.Fatalf("discovery of /api: %+v", core)
	}
	var kinds []string
	for _, found := range core.Versions[0].Resources {
		kinds = append(kinds, found.Resource)
	}
	slices.Sort(kinds)
	if want := []string{"configmaps", "events", "namespaces", "resourcequotas", "secrets", "serviceaccounts"}; !slices.Equal(kinds, want) {
		t.Errorf("the core group has %v, want %v", kinds, want)
	}
}

// Old clients read discovery group by group.
func TestUnaggregatedDiscovery(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, anySchema))
	poll.Until(t, "the legacy client discovers all", func() string {
		_, lists, err := a.Kube.Discovery().ServerGroupsAndResources()
		if err != nil {
			return err.Error()
		}
		var have []string
		for _, list := range lists {
			have = append(have, list.GroupVersion)
		}
		for _, want := range []string{"v1", "events.k8s.io/v1", "coordination.k8s.io/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1", "hosting.annex.dev/v1alpha1", widgets.group + "/v1"} {
			if !slices.Contains(have, want) {
				return fmt.Sprintf("%s is missing in %v", want, have)
			}
		}
		return ""
	})
	var list metav1.APIResourceList
	a.get(t, "/apis/hosting.annex.dev/v1alpha1").Into(t, &list)
	for _, found := range list.APIResources {
		switch found.Name {
		case "stores":
			if found.Namespaced || found.Kind != "Store" || found.StorageVersionHash == "" {
				t.Errorf("stores: %+v", found)
			}
		case "hostedresources":
			if len(found.ShortNames) == 0 || found.SingularName != "hostedresource" {
				t.Errorf("hostedresources: %+v", found)
			}
		}
	}
	a.get(t, "/apis/nothing.example.com/v1").Expect(t, http.StatusNotFound, "an unknown group")
	var paths metav1.RootPaths
	a.get(t, "/").Into(t, &paths)
	for _, want := range []string{"/api", "/apis/" + widgets.group + "/v1", "/metrics", "/openapi/v3"} {
		if !slices.Contains(paths.Paths, want) {
			t.Errorf("/ does not list %s", want)
		}
	}
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	widgets := a.installCRD(t, newCRD(t, strictSchema))
	kind := reverse(widgets.group) + ".v1.Widget"

	poll.UntilDone(t, "OpenAPI v2 has the CRD", func() (bool, string) {
		var document struct {
			Info        struct{ Title string }
			Definitions map[string]struct {
				Properties map[string]any
				Kinds      []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			}
			Paths map[string]any
		}
		a.get(t, "/openapi/v2").Into(t, &document)
		if document.Info.Title != "annex" {
			return false, "the title is " + document.Info.Title
		}
		for _, want := range []string{
			kind, "io.k8s.api.core.v1.ConfigMap", "io.k8s.api.core.v1.Namespace", "io.k8s.api.events.v1.Event", "io.k8s.api.coordination.v1.Lease",
			"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition", "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
		} {
			if definition := document.Definitions[want]; definition.Properties["metadata"] == nil || len(definition.Kinds) == 0 {
				return false, fmt.Sprintf("%s is %+v", want, definition)
			}
		}
		stores := 0
		for name, definition := range document.Definitions {
			if strings.HasSuffix(name, ".v1alpha1.Store") && len(definition.Kinds) == 1 {
				stores++
			}
		}
		if stores != 1 {
			return false, fmt.Sprintf("%d definitions of Store", stores)
		}
		return document.Paths["/apis/"+widgets.group+"/v1/namespaces/{namespace}/widgets"] != nil, "the CRD's path is missing"
	})

	poll.Until(t, "OpenAPI v3 has the CRD", func() string {
		var root struct {
			Paths map[string]struct {
				URL string `json:"serverRelativeURL"`
			}
		}
		a.get(t, "/openapi/v3").Into(t, &root)
		for path, schema := range map[string]string{
			"api/v1": "io.k8s.api.core.v1.Secret", "apis/events.k8s.io/v1": "io.k8s.api.events.v1.Event",
			"apis/apiextensions.k8s.io/v1":    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
			"apis/apiregistration.k8s.io/v1":  "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.APIService",
			"apis/" + widgets.group + "/v1":   kind,
			"apis/hosting.annex.dev/v1alpha1": "",
			"apis/coordination.k8s.io/v1":     "io.k8s.api.coordination.v1.LeaseSpec",
		} {
			if root.Paths[path].URL == "" {
				return path + " is missing"
			}
			var document struct {
				Components struct{ Schemas map[string]any }
			}
			a.get(t, root.Paths[path].URL).Into(t, &document)
			if schema != "" && document.Components.Schemas[schema] == nil {
				return fmt.Sprintf("%s has no schema of %s", path, schema)
			}
		}
		return ""
	})
}

func reverse(group string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

func TestAPIServicesAreAvailable(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	list, err := a.APIServices.List(t.Context(), metav1.ListOptions{})
	expect.NoError(t, err)
	have := map[string]*apiregistrationv1.APIService{}
	for i := range list.Items {
		have[list.Items[i].Name] = &list.Items[i]
	}
	for _, name := range []string{"v1.", "v1.events.k8s.io", "v1.coordination.k8s.io", "v1.apiextensions.k8s.io", "v1alpha1.hosting.annex.dev"} {
		switch apiService := have[name]; {
		case apiService == nil:
			t.Errorf("there is no APIService %s", name)
		case apiService.Spec.Service != nil || !apiregistrationhelper.IsAPIServiceConditionTrue(apiService, apiregistrationv1.Available):
			t.Errorf("APIService %s: %+v", name, apiService)
		}
	}
}

func TestCRDsHaveAPIServices(t *testing.T) {
	t.Parallel()
	crd := newCRD(t, anySchema)
	crd.Spec.Versions = append(crd.Spec.Versions, newVersion(t, "v2", anySchema))
	widgets := sharedAnnex(t).installCRD(t, crd)
	apiServices := widgets.annex.APIServices
	wait := func(version string, there bool) {
		t.Helper()
		poll.Until(t, fmt.Sprintf("an APIService of %s is there: %t", version, there), func() string {
			apiService, err := apiServices.Get(t.Context(), version+"."+widgets.group, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err) && !there:
				return ""
			case err != nil:
				return err.Error()
			case there && apiregistrationhelper.IsAPIServiceConditionTrue(apiService, apiregistrationv1.Available):
				return ""
			}
			return fmt.Sprintf("%+v", apiService)
		})
	}
	wait("v1", true)
	wait("v2", true)
	widgets.updateCRD(t, func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions[1].Served = false })
	wait("v2", false)
	wait("v1", true)
	widgets.deleteCRD(t)
	wait("v1", false)
	poll.UntilDone(t, "the group is removed from discovery", func() (bool, string) {
		group, there := widgets.annex.discover(t, "/apis")[widgets.group]
		return !there, fmt.Sprintf("%+v", group)
	})
}

func TestCompiledInAPIServiceIsRecreated(t *testing.T) {
	t.Parallel()
	apiServices := startAnnex(t).APIServices
	const name = "v1.coordination.k8s.io"
	expect.Delete(t, apiServices, name)
	expect.Eventually(t, apiServices, name, name+" is available again", func(apiService *apiregistrationv1.APIService) bool {
		return apiregistrationhelper.IsAPIServiceConditionTrue(apiService, apiregistrationv1.Available)
	})
}

func TestRemoteAPIServiceIsRefused(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	apiServices := a.APIServices
	remote := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.remote.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "remote.example.com", Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 10, InsecureSkipTLSVerify: true,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "remote"},
		},
	}
	_, err := apiServices.Create(t.Context(), remote, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("got %v, want Invalid", err)
	}
	expect.Error(t, err, "spec.service: Forbidden: annex does not proxy requests to other servers; only local APIServices (without spec.service) are allowed")

	// A local one cannot become remote.
	local := expect.Get(t, apiServices, "v1.events.k8s.io")
	local.Spec.Service = remote.Spec.Service
	local.Spec.InsecureSkipTLSVerify = true
	_, err = apiServices.Update(t.Context(), local, metav1.UpdateOptions{})
	expect.Error(t, err, "annex does not proxy")
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func established(group, plural string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := crds.New(group, plural, versions...)
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	return crd
}

// get returns the status, and the names in a document: versions or resources.
func get(t *testing.T, handler http.Handler, path string) string {
	ctx := request.WithRequestInfo(t.Context(), &request.RequestInfo{Path: path})
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil))
	var document struct {
		Versions  []struct{ Version string }
		Resources []struct{ Name string }
	}
	if response.Code == http.StatusOK {
		expect.NoError(t, json.Unmarshal(response.Body.Bytes(), &document))
	}
	return fmt.Sprint(response.Code, document.Versions, document.Resources)
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	first, second := established("example.com", "widgets", "v1", "v1beta1"), established("example.com", "gadgets", "v1")
	client := fake.NewClientset(first, second)
	factory := crdinformers.NewSharedInformerFactory(client, 0)
	informer := factory.Apiextensions().V1().CustomResourceDefinitions().Informer()
	expect.NoError(t, informer.AddIndexers(Indexers()))
	all := aggregated.NewResourceManager("apis")
	c, err := NewDiscovery(informer, all)
	expect.NoError(t, err)
	handler := c.Handler(http.NotFoundHandler(), http.NotFoundHandler())
	ctx, cancel := context.WithCancel(t.Context())
	stopped, built := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { cancel(); <-stopped })
	factory.Start(ctx.Done())
	go func() { defer close(stopped); c.Run(ctx, built) }()
	<-built

	api := client.ApiextensionsV1().CustomResourceDefinitions()
	update := func(crd *apiextensionsv1.CustomResourceDefinition) error {
		_, err := api.Update(ctx, crd, metav1.UpdateOptions{})
		return err
	}
	const missing = "404 [] []"
	for _, step := range []struct {
		name               string
		do                 func() error
		group, v1, v1beta1 string
		aggregated         string
	}{
		{"as built", func() error { return nil }, "200 [{v1} {v1beta1}] []", "200 [] [{gadgets} {widgets}]", "200 [] [{widgets}]",
			"[v1 gadgets,widgets] [v1beta1 widgets]"},
		{"one is not established", func() error {
			second.Status.Conditions = nil
			return update(second)
		}, "200 [{v1} {v1beta1}] []", "200 [] [{widgets}]", "200 [] [{widgets}]", "[v1 widgets] [v1beta1 widgets]"},
		{"a version is not served", func() error {
			first.Spec.Versions[1].Served = false
			first.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{}, Scale: &apiextensionsv1.CustomResourceSubresourceScale{},
			}
			return update(first)
		}, "200 [{v1}] []", "200 [] [{widgets} {widgets/status} {widgets/scale}]", missing, "[v1 widgets status scale]"},
		{"the last is deleted", func() error { return api.Delete(ctx, first.Name, metav1.DeleteOptions{}) }, missing, missing, missing, ""},
		{"it is created again", func() error {
			_, err := api.Create(ctx, established("example.com", "widgets", "v1beta1"), metav1.CreateOptions{})
			return err
		}, "200 [{v1beta1}] []", missing, "200 [] [{widgets}]", "[v1beta1 widgets]"},
	} {
		expect.NoError(t, step.do())
		poll.Until(t, step.name, func() string {
			got := []string{get(t, handler, "/apis/example.com"), get(t, handler, "/apis/example.com/v1"), get(t, handler, "/apis/example.com/v1beta1"), names(t, all)}
			want := []string{step.group, step.v1, step.v1beta1, step.aggregated}
			if fmt.Sprint(got) == fmt.Sprint(want) {
				return ""
			}
			return fmt.Sprintf("got %q, want %q", got, want)
		})
	}
	for _, path := range []string{"/apis", "/apis/other.example.com", "/apis/other.example.com/v1", "/apis/example.com/v1beta1/widgets"} {
		expect.Equal(t, missing, get(t, handler, path), path)
	}
}

// names returns the names in the aggregated document.
func names(t *testing.T, from http.Handler) (all string) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apis", nil)
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	response := httptest.NewRecorder()
	from.ServeHTTP(response, r)
	var list apidiscoveryv2.APIGroupDiscoveryList
	expect.NoError(t, json.Unmarshal(response.Body.Bytes(), &list))
	for _, group := range list.Items {
		for i, version := range group.Versions {
			if i > 0 {
				all += " "
			}
			all += "[" + version.Version
			for j, resource := range version.Resources {
				all += map[bool]string{true: " ", false: ","}[j == 0] + resource.Resource
				for _, subresource := range resource.Subresources {
					all += " " + subresource.Subresource
				}
			}
			all += "]"
		}
	}
	return all
}

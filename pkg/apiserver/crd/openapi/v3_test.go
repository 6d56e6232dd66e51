// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"encoding/json"
	"net/http"
	"testing"

	upstream "k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func startV3(t *testing.T, definitions ...*crd) *servers {
	s, factory := newClient(t, definitions...)
	static := func() (*handler3.OpenAPIService, *mux.PathRecorderMux) {
		service, served := handler3.NewOpenAPIService(), mux.NewPathRecorderMux(t.Name())
		expect.NoError(t, service.RegisterOpenAPIV3VersionedService(v3Root, served))
		service.UpdateGroupVersion("apis/static.example.com/v1", &spec3.OpenAPI{Version: "3.0.0"})
		return service, served
	}
	service, theirs := static()
	_, next := static()
	informer := factory.Apiextensions().V1().CustomResourceDefinitions()
	ours, err := V3Handler(next, definitionsOf(factory), informer.Informer())
	expect.NoError(t, err)
	s.upstream, s.ours = theirs, ours
	controller := upstream.NewController(informer)
	start(t, factory, func(stop <-chan struct{}) { controller.Run(service, stop) })
	return s
}

func listOf(t *testing.T, handler http.Handler) map[string]string {
	var list handler3.OpenAPIV3Discovery
	expect.NoError(t, json.Unmarshal(get(t, handler, v3Root, nil).Body.Bytes(), &list))
	links := map[string]string{}
	for path, document := range list.Paths {
		links[path] = document.ServerRelativeURL
	}
	return links
}

// TestV3Links follows the links of the list, as clients that keep documents do.
func TestV3Links(t *testing.T) {
	t.Parallel()
	s := startV3(t, newDefinition("example.com", "widgets"))
	before := listOf(t, s.ours)
	if len(before) != 3 {
		t.Fatalf("listed %v, want a static document and two versions", before)
	}
	link := before["apis/example.com/v1"]
	response := get(t, s.ours, link, nil)
	if response.Code != http.StatusOK || response.Header().Get("Cache-Control") != "public, immutable" {
		t.Fatalf("%s: status %d, headers %v", link, response.Code, response.Header())
	}
	s.create(t, newDefinition("example.com", "gadgets"))
	poll.Until(t, "a new link", func() string {
		if now := listOf(t, s.ours)["apis/example.com/v1"]; now == link {
			return now
		}
		return ""
	})
	after := listOf(t, s.ours)
	if after["apis/static.example.com/v1"] != before["apis/static.example.com/v1"] {
		t.Errorf("the static document has the link %s, before %s", after["apis/static.example.com/v1"], before["apis/static.example.com/v1"])
	}
	outdated := get(t, s.ours, link, nil)
	if location := outdated.Header().Get("Location"); outdated.Code != http.StatusMovedPermanently || location != after["apis/example.com/v1"] {
		t.Errorf("an outdated link: status %d, location %q", outdated.Code, location)
	}
	if other := listOf(t, startV3(t, newDefinition("example.com", "widgets")).ours)["apis/example.com/v1"]; other != link {
		t.Errorf("another replica has the link %s, want %s", other, link)
	}
}

// TestV3NotServed is not compared: upstream's controller keeps the document until it restarts.
func TestV3NotServed(t *testing.T) {
	t.Parallel()
	s := startV3(t, newDefinition("example.com", "widgets"))
	changed := newDefinition("example.com", "widgets")
	changed.Generation++
	changed.Spec.Versions[0].Served = false
	_, err := s.client.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), changed, metav1.UpdateOptions{})
	expect.NoError(t, err)
	poll.Until(t, "the list without the version", func() string {
		return listOf(t, s.ours)["apis/example.com/v1"]
	})
	if body := get(t, s.ours, v3DocumentPath, nil).Body; body.Len() > 0 {
		t.Errorf("the version is still served: %d bytes", body.Len())
	}
}

func TestV3Unknown(t *testing.T) {
	t.Parallel()
	s := startV3(t, newDefinition("example.com", "widgets"))
	for _, url := range []string{"/openapi/v3/apis/static.example.com/v1", "/openapi/v3/apis/example.com/v3", "/apis"} {
		if different := compare(get(t, s.upstream, url, nil), get(t, s.ours, url, nil)); different != "" {
			t.Errorf("%s: %s", url, different)
		}
	}
	if response := get(t, s.ours, v3DocumentPath, map[string]string{"Accept": "text/html"}); response.Code != http.StatusNotAcceptable {
		t.Errorf("an unknown format: status %d", response.Code)
	}
}

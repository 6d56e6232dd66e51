// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapiv3

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	upstream "k8s.io/apiextensions-apiserver/pkg/controller/openapiv3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	listPath     = "/openapi/v3"
	documentPath = "/openapi/v3/apis/example.com/v1"
	protobuf     = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
)

func newDefinition(plural string) *apiextensionsv1.CustomResourceDefinition {
	definition := crds.New("example.com", plural, "v1", "v2")
	definition.UID, definition.Generation = types.UID(plural), 1
	definition.Spec.Versions[1].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object", Description: "A second version.", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "string"}},
	}
	definition.Spec.Names.ListKind = definition.Spec.Names.Kind + "List"
	definition.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
	}
	return definition
}

// servers serve the same definitions, with upstream's controller and with this package.
type servers struct {
	upstream, ours http.Handler
	client         *fake.Clientset
}

func newServers(t *testing.T, definitions ...*apiextensionsv1.CustomResourceDefinition) *servers {
	s := &servers{client: fake.NewClientset()}
	for _, definition := range definitions {
		s.create(t, definition)
	}
	factory := crdinformers.NewSharedInformerFactory(s.client, 0)
	informer := factory.Apiextensions().V1().CustomResourceDefinitions()
	static := func() (*handler3.OpenAPIService, *mux.PathRecorderMux) {
		service, served := handler3.NewOpenAPIService(), mux.NewPathRecorderMux(t.Name())
		expect.NoError(t, service.RegisterOpenAPIV3VersionedService(listPath, served))
		service.UpdateGroupVersion("apis/static.example.com/v1", &spec3.OpenAPI{Version: "3.0.0"})
		return service, served
	}
	service, theirs := static()
	s.upstream = theirs
	controller := upstream.NewController(informer)
	_, next := static()
	var err error
	s.ours, err = Handler(next, informer, whole)
	expect.NoError(t, err)

	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	go controller.Run(service, t.Context().Done())
	return s
}

func (s *servers) create(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) {
	_, err := s.client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{})
	expect.NoError(t, err)
}

// whole is a WithSchemasFunc for definitions that have their schemas.
func whole(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	return crd, nil
}

func get(t *testing.T, handler http.Handler, url, accept string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	request.Header.Set("Accept", accept)
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

func listOf(t *testing.T, handler http.Handler) map[string]string {
	var list handler3.OpenAPIV3Discovery
	expect.NoError(t, json.Unmarshal(get(t, handler, listPath, "").Body.Bytes(), &list))
	links := map[string]string{}
	for path, document := range list.Paths {
		links[path] = document.ServerRelativeURL
	}
	return links
}

// TestLikeUpstream compares the documents with those of upstream's controller, while definitions
// change.
func TestLikeUpstream(t *testing.T) {
	t.Parallel()
	pending := newDefinition("gizmos")
	pending.Status.Conditions = nil
	s := newServers(t, newDefinition("widgets"), newDefinition("gadgets"), pending)
	client := s.client.ApiextensionsV1().CustomResourceDefinitions()

	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"as started", func() error { return nil }},
		{"a new definition", func() error {
			_, err := client.Create(t.Context(), newDefinition("things"), metav1.CreateOptions{})
			return err
		}},
		{"a deleted definition", func() error { return client.Delete(t.Context(), "gadgets.example.com", metav1.DeleteOptions{}) }},
		{"the last definition of a version", func() error { return client.Delete(t.Context(), "things.example.com", metav1.DeleteOptions{}) }},
	} {
		expect.NoError(t, step.change(), step.name)
		for _, accept := range []string{"", "application/json", protobuf} {
			for _, version := range []string{"v1", "v2"} {
				path := "/openapi/v3/apis/example.com/" + version
				poll.Until(t, step.name+": "+path, func() string {
					want, got := get(t, s.upstream, path, accept), get(t, s.ours, path, accept)
					if want.Code != got.Code || want.Body.String() != got.Body.String() || want.Header().Get("Content-Type") != got.Header().Get("Content-Type") {
						return fmt.Sprintf("status %d, %v, %d bytes; want %d, %v, %d bytes", got.Code, got.Header(), got.Body.Len(), want.Code, want.Header(), want.Body.Len())
					}
					return ""
				})
			}
		}
	}
}

// TestLinks follows the links of the list, as clients that keep documents do.
func TestLinks(t *testing.T) {
	t.Parallel()
	s := newServers(t, newDefinition("widgets"))
	before := listOf(t, s.ours)
	if len(before) != 3 {
		t.Fatalf("listed %v, want a static document and two versions", before)
	}
	link := before["apis/example.com/v1"]
	response := get(t, s.ours, link, "")
	if response.Code != http.StatusOK || response.Header().Get("Cache-Control") != "public, immutable" {
		t.Fatalf("%s: status %d, headers %v", link, response.Code, response.Header())
	}
	s.create(t, newDefinition("gadgets"))
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
	outdated := get(t, s.ours, link, "")
	if location := outdated.Header().Get("Location"); outdated.Code != http.StatusMovedPermanently || location != after["apis/example.com/v1"] {
		t.Errorf("an outdated link: status %d, location %q", outdated.Code, location)
	}
	if other := listOf(t, newServers(t, newDefinition("widgets")).ours)["apis/example.com/v1"]; other != link {
		t.Errorf("another replica has the link %s, want %s", other, link)
	}
}

// TestNotServed is not compared: upstream's controller keeps the document until it restarts.
func TestNotServed(t *testing.T) {
	t.Parallel()
	s := newServers(t, newDefinition("widgets"))
	changed := newDefinition("widgets")
	changed.Generation++
	changed.Spec.Versions[0].Served = false
	_, err := s.client.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), changed, metav1.UpdateOptions{})
	expect.NoError(t, err)
	poll.Until(t, "the list without the version", func() string {
		return listOf(t, s.ours)["apis/example.com/v1"]
	})
	if body := get(t, s.ours, documentPath, "").Body; body.Len() > 0 {
		t.Errorf("the version is still served: %d bytes", body.Len())
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	s := newServers(t, newDefinition("widgets"))
	for _, url := range []string{"/openapi/v3/apis/static.example.com/v1", "/openapi/v3/apis/example.com/v3", "/apis"} {
		want, got := get(t, s.upstream, url, ""), get(t, s.ours, url, "")
		if want.Code != got.Code || want.Body.String() != got.Body.String() {
			t.Errorf("%s: got %d %s, want %d %s", url, got.Code, got.Body, want.Code, want.Body)
		}
	}
	if response := get(t, s.ours, documentPath, "text/html"); response.Code != http.StatusNotAcceptable {
		t.Errorf("an unknown format: status %d", response.Code)
	}
}

// TestCanceled checks that a request that has ended neither waits for the document of another nor
// builds one.
func TestCanceled(t *testing.T) {
	t.Parallel()
	h := newServers(t, newDefinition("widgets")).ours.(*handler)
	built := 0
	h.withSchemas = func(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
		built++
		return crd, nil
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	ended := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.WithContext(canceled)) })
	h.building <- struct{}{}
	expect.Equal(t, http.StatusInternalServerError, get(t, ended, documentPath, "").Code, "while another document is built")
	<-h.building
	expect.Equal(t, http.StatusInternalServerError, get(t, ended, documentPath, "").Code, "without another document")
	expect.Equal(t, 0, built, "definitions that were built")
	expect.Equal(t, http.StatusOK, get(t, h, documentPath, "").Code, "afterwards")
}

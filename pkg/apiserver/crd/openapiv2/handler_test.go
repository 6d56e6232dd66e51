// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapiv2

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/klauspost/compress/gzip"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	upstream "k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/mux"
	openapihandler "k8s.io/kube-openapi/pkg/handler"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	protobuf           = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	deprecatedProtobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
)

func newDefinition(group, plural string) *apiextensionsv1.CustomResourceDefinition {
	crd := crds.New(group, plural, "v1", "v2")
	crd.UID, crd.Generation = types.UID(plural), 1
	crd.Spec.Versions[1].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object", Description: `A second "version" <&>.`, Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "string"}},
	}
	crd.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{
		Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
	}
	crd.Spec.Names.ListKind = crd.Spec.Names.Kind + "List"
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
	}
	return crd
}

// servers serve the same definitions, with upstream's controller and with this package.
type servers struct {
	upstream, ours http.Handler
	client         *fake.Clientset
}

func newServers(t *testing.T, all ...*apiextensionsv1.CustomResourceDefinition) *servers {
	s := &servers{client: fake.NewClientset()}
	for _, crd := range all {
		s.create(t, crd)
	}
	factory := crdinformers.NewSharedInformerFactory(s.client, 0)
	informer := factory.Apiextensions().V1().CustomResourceDefinitions()
	// The compiled-in resources have the schemas that definitions refer to, except Scale's.
	compiledIn := newDefinition("static.example.com", "statics")
	compiledIn.Spec.Versions[0].Subresources = nil
	static, err := builder.BuildOpenAPIV2(compiledIn, "v1", builder.Options{V2: true})
	expect.NoError(t, err)
	static.Definitions = openapihandler.PruneDefaults(static.Definitions)
	serve := func() (*openapihandler.OpenAPIService, *mux.PathRecorderMux) {
		service, served := openapihandler.NewOpenAPIService(static), mux.NewPathRecorderMux(t.Name())
		service.RegisterOpenAPIVersionedService(path, served)
		return service, served
	}
	service, theirs := serve()
	s.upstream = theirs
	controller := upstream.NewController(informer)
	_, next := serve()
	s.ours = Handler(next, informer.Lister(), whole)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	go controller.Run(static, service, t.Context().Done())
	return s
}

func (s *servers) create(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) {
	_, err := s.client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
	expect.NoError(t, err)
}

// whole is a WithSchemasFunc for definitions that have their schemas.
func whole(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	return crd, nil
}

func get(t *testing.T, handler http.Handler, header map[string]string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

// TestLikeUpstream compares the document with that of upstream's controller, byte for byte, while
// definitions change.
func TestLikeUpstream(t *testing.T) {
	t.Parallel()
	pending := newDefinition("example.com", "gizmos")
	pending.Status.Conditions = nil
	s := newServers(t, newDefinition("example.com", "widgets"), newDefinition("another.example.com", "gadgets"), pending)
	client := s.client.ApiextensionsV1().CustomResourceDefinitions()
	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"as started", func() error { return nil }},
		{"a new definition", func() error {
			_, err := client.Create(t.Context(), newDefinition("example.com", "things"), metav1.CreateOptions{})
			return err
		}},
		{"a version that is no longer served", func() error {
			changed := newDefinition("example.com", "things")
			changed.Generation++
			changed.Spec.Versions[0].Served = false
			_, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
			return err
		}},
		{"no version that is served", func() error {
			changed := newDefinition("example.com", "things")
			changed.Generation += 2
			changed.Spec.Versions[0].Served, changed.Spec.Versions[1].Served = false, false
			_, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
			return err
		}},
		{"a deleted definition", func() error { return client.Delete(t.Context(), "gadgets.another.example.com", metav1.DeleteOptions{}) }},
		{"no definitions", func() error {
			return client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
	} {
		expect.NoError(t, step.change(), step.name)
		for _, accept := range []string{"", "*/*", "application/json", protobuf, deprecatedProtobuf, "text/html"} {
			poll.Until(t, step.name+": "+accept, func() string {
				header := map[string]string{"Accept": accept}
				want, got := get(t, s.upstream, header), get(t, s.ours, header)
				if want.Code != got.Code || want.Body.String() != got.Body.String() || want.Header().Get("Content-Type") != got.Header().Get("Content-Type") {
					return fmt.Sprintf("status %d, %v, %d bytes; want %d, %v, %d bytes", got.Code, got.Header(), got.Body.Len(), want.Code, want.Header(), want.Body.Len())
				}
				return ""
			})
		}
	}
}

func TestConditional(t *testing.T) {
	t.Parallel()
	s := newServers(t, newDefinition("example.com", "widgets"))
	plain := get(t, s.ours, nil)
	tag := plain.Header().Get("Etag")
	for _, encoding := range []string{"", "gzip"} {
		unchanged := get(t, s.ours, map[string]string{"If-None-Match": tag, "Accept-Encoding": encoding})
		if unchanged.Code != http.StatusNotModified || unchanged.Body.Len() > 0 {
			t.Errorf("encoding %q: status %d and %d bytes for the current ETag", encoding, unchanged.Code, unchanged.Body.Len())
		}
	}
	zipped := get(t, s.ours, map[string]string{"Accept-Encoding": "gzip", "If-None-Match": `"other"`})
	reader, err := gzip.NewReader(zipped.Body)
	expect.NoError(t, err)
	unzipped, err := io.ReadAll(reader)
	expect.NoError(t, err)
	expect.Equal(t, plain.Body.String(), string(unzipped), "the document that was compressed")

	s.create(t, newDefinition("example.com", "gadgets"))
	poll.Until(t, "another ETag", func() string {
		if now := get(t, s.ours, map[string]string{"If-None-Match": tag}); now.Code != http.StatusOK {
			return now.Result().Status
		}
		return ""
	})
	replica := newServers(t, newDefinition("example.com", "gadgets"), newDefinition("example.com", "widgets"))
	if got, want := get(t, replica.ours, nil).Header().Get("Etag"), get(t, s.ours, nil).Header().Get("Etag"); got != want {
		t.Errorf("another replica has the ETag %s, want %s", got, want)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	unavailable := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	informer := crdinformers.NewSharedInformerFactory(fake.NewClientset(), 0).Apiextensions().V1().CustomResourceDefinitions()
	if response := get(t, Handler(unavailable, informer.Lister(), whole), nil); response.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d while the compiled-in resources have no document", response.Code)
	}
}

// TestCanceled checks that a request that has ended neither waits for the document of another nor
// builds one.
func TestCanceled(t *testing.T) {
	t.Parallel()
	h := newServers(t, newDefinition("example.com", "widgets")).ours.(*handler)
	built := 0
	h.withSchemas = func(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
		built++
		return crd, nil
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	ended := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r.WithContext(canceled)) })
	h.building <- struct{}{}
	expect.Equal(t, http.StatusServiceUnavailable, get(t, ended, nil).Code, "while another document is built")
	<-h.building
	expect.Equal(t, http.StatusServiceUnavailable, get(t, ended, nil).Code, "without another document")
	expect.Equal(t, 0, built, "definitions that were built")
	expect.Equal(t, http.StatusOK, get(t, h, nil).Code, "afterwards")
}

// Not parallel: it counts allocations.
func TestBuildIsLinear(t *testing.T) {
	for name, grow := range map[string]func(crd *apiextensionsv1.CustomResourceDefinition, i int){
		"versions": func(crd *apiextensionsv1.CustomResourceDefinition, i int) {
			crd.Spec.Versions = append(crd.Spec.Versions, crds.NewVersion(fmt.Sprintf("v%d", i+10), false, crd.Spec.Versions[1].Schema.OpenAPIV3Schema))
		},
		"properties": func(crd *apiextensionsv1.CustomResourceDefinition, i int) {
			crd.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties[fmt.Sprintf("p%d", i)] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Linear(t, 5, func(size int) func() {
				crd := newDefinition("example.com", "widgets")
				for i := range size {
					grow(crd, i)
				}
				return func() {
					_, err := build(crd, &parts{})
					expect.NoError(t, err)
				}
			})
		})
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/klauspost/compress/gzip"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	upstream "k8s.io/apiextensions-apiserver/pkg/controller/openapi"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apiserver/pkg/server/mux"
	openapihandler "k8s.io/kube-openapi/pkg/handler"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func startV2(t *testing.T, definitions ...*crd) *servers {
	s, factory := newClient(t, definitions...)
	// The compiled-in resources have the schemas that definitions refer to, except Scale's.
	compiledIn := newDefinition("static.example.com", "statics")
	compiledIn.Spec.Versions[0].Subresources = nil
	static, err := builder.BuildOpenAPIV2(compiledIn, "v1", builder.Options{V2: true})
	expect.NoError(t, err)
	static.Definitions = openapihandler.PruneDefaults(static.Definitions)
	serve := func() (*openapihandler.OpenAPIService, *mux.PathRecorderMux) {
		service, served := openapihandler.NewOpenAPIService(static), mux.NewPathRecorderMux(t.Name())
		service.RegisterOpenAPIVersionedService(v2Path, served)
		return service, served
	}
	service, theirs := serve()
	_, next := serve()
	s.upstream, s.ours = theirs, V2Handler(next, definitionsOf(factory))
	controller := upstream.NewController(factory.Apiextensions().V1().CustomResourceDefinitions())
	start(t, factory, func(stop <-chan struct{}) { controller.Run(static, service, stop) })
	return s
}

func TestConditionalV2(t *testing.T) {
	t.Parallel()
	s := startV2(t, newDefinition("example.com", "widgets"))
	plain := get(t, s.ours, v2Path, nil)
	tag := plain.Header().Get("Etag")
	for _, encoding := range []string{"", "gzip"} {
		unchanged := get(t, s.ours, v2Path, map[string]string{"If-None-Match": tag, "Accept-Encoding": encoding})
		if unchanged.Code != http.StatusNotModified || unchanged.Body.Len() > 0 {
			t.Errorf("encoding %q: status %d and %d bytes for the current ETag", encoding, unchanged.Code, unchanged.Body.Len())
		}
	}
	zipped := get(t, s.ours, v2Path, map[string]string{"Accept-Encoding": "gzip", "If-None-Match": `"other"`})
	reader, err := gzip.NewReader(zipped.Body)
	expect.NoError(t, err)
	unzipped, err := io.ReadAll(reader)
	expect.NoError(t, err)
	expect.Equal(t, plain.Body.String(), string(unzipped), "the document that was compressed")

	s.create(t, newDefinition("example.com", "gadgets"))
	poll.Until(t, "another ETag", func() string {
		if now := get(t, s.ours, v2Path, map[string]string{"If-None-Match": tag}); now.Code != http.StatusOK {
			return now.Result().Status
		}
		return ""
	})
	replica := startV2(t, newDefinition("example.com", "gadgets"), newDefinition("example.com", "widgets"))
	if got, want := get(t, replica.ours, v2Path, nil).Header().Get("Etag"), get(t, s.ours, v2Path, nil).Header().Get("Etag"); got != want {
		t.Errorf("another replica has the ETag %s, want %s", got, want)
	}
}

func TestUnavailableV2(t *testing.T) {
	t.Parallel()
	unavailable := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	_, factory := newClient(t)
	if response := get(t, V2Handler(unavailable, definitionsOf(factory)), v2Path, nil); response.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d while the compiled-in resources have no document", response.Code)
	}
}

// Not parallel: it counts allocations.
func TestBuildV2IsLinear(t *testing.T) {
	for name, grow := range map[string]func(definition *crd, i int){
		"versions": func(definition *crd, i int) {
			definition.Spec.Versions = append(definition.Spec.Versions, crds.NewVersion(fmt.Sprintf("v%d", i+10), false, definition.Spec.Versions[1].Schema.OpenAPIV3Schema))
		},
		"properties": func(definition *crd, i int) {
			definition.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties[fmt.Sprintf("p%d", i)] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			expect.Linear(t, 5, func(size int) func() {
				definition := newDefinition("example.com", "widgets")
				for i := range size {
					grow(definition, i)
				}
				return func() {
					_, err := build(definition, &parts{})
					expect.NoError(t, err)
				}
			})
		})
	}
}

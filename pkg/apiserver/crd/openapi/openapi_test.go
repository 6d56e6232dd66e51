// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	v2Protobuf           = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	deprecatedV2Protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	deprecatedV3Protobuf = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	v3DocumentPath       = "/openapi/v3/apis/example.com/v1"
)

func newDefinition(group, plural string) *crd {
	definition := crds.New(group, plural, "v1", "v2")
	definition.UID, definition.Generation = types.UID(plural), 1
	definition.Spec.Versions[1].Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{
		Type: "object", Description: `A second "version" <&>.`, Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "string"}},
	}
	definition.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{
		Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
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

// newClient returns a client of definitions, and their informers.
func newClient(t *testing.T, definitions ...*crd) (*servers, crdinformers.SharedInformerFactory) {
	s := &servers{client: fake.NewClientset()}
	for _, definition := range definitions {
		s.create(t, definition)
	}
	return s, crdinformers.NewSharedInformerFactory(s.client, 0)
}

func start(t *testing.T, factory crdinformers.SharedInformerFactory, runUpstream func(stop <-chan struct{})) {
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	go runUpstream(t.Context().Done())
}

// definitionsOf returns the definitions of an informer that does not omit schemas.
func definitionsOf(factory crdinformers.SharedInformerFactory) Definitions {
	return Definitions{
		Lister:      factory.Apiextensions().V1().CustomResourceDefinitions().Lister(),
		WithSchemas: func(definition *crd) (*crd, error) { return definition, nil },
	}
}

func (s *servers) create(t *testing.T, definition *crd) {
	_, err := s.client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{})
	expect.NoError(t, err)
}

func get(t *testing.T, handler http.Handler, url string, header map[string]string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	for name, value := range header {
		request.Header.Set(name, value)
	}
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, request)
	return response
}

// compare returns how a response differs from the wanted one.
func compare(want, got *httptest.ResponseRecorder) string {
	if want.Code != got.Code || want.Body.String() != got.Body.String() || want.Header().Get("Content-Type") != got.Header().Get("Content-Type") {
		return fmt.Sprintf("status %d, %v, %d bytes; want %d, %v, %d bytes", got.Code, got.Header(), got.Body.Len(), want.Code, want.Header(), want.Body.Len())
	}
	return ""
}

// TestLikeUpstream compares the documents with upstream's, byte for byte, while definitions change.
func TestLikeUpstream(t *testing.T) {
	t.Parallel()
	for version, tc := range map[string]struct {
		start   func(*testing.T, ...*crd) *servers
		paths   []string
		accepts []string
		// keepsUnserved is set if upstream keeps the documents of versions that are no longer served.
		keepsUnserved bool
	}{
		"v2": {startV2, []string{v2Path}, []string{"", "*/*", "application/json", v2Protobuf, deprecatedV2Protobuf, "text/html"}, false},
		"v3": {startV3, []string{v3DocumentPath, "/openapi/v3/apis/example.com/v2"}, []string{"", "application/json", deprecatedV3Protobuf}, true},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pending := newDefinition("example.com", "gizmos")
			pending.Status.Conditions = nil
			s := tc.start(t, newDefinition("example.com", "widgets"), newDefinition("another.example.com", "gadgets"), pending)
			client := s.client.ApiextensionsV1().CustomResourceDefinitions()
			unserve := func(versions int) func() error {
				changed := newDefinition("example.com", "things")
				changed.Generation += int64(versions)
				for i := range versions {
					changed.Spec.Versions[i].Served = false
				}
				return func() error {
					_, err := client.Update(t.Context(), changed, metav1.UpdateOptions{})
					return err
				}
			}
			for _, step := range []struct {
				name    string
				change  func() error
				unserve bool
			}{
				{name: "as started", change: func() error { return nil }},
				{name: "a new definition", change: func() error {
					_, err := client.Create(t.Context(), newDefinition("example.com", "things"), metav1.CreateOptions{})
					return err
				}},
				{name: "a version that is no longer served", change: unserve(1), unserve: true},
				{name: "no version that is served", change: unserve(2), unserve: true},
				{name: "a deleted definition", change: func() error { return client.Delete(t.Context(), "gadgets.another.example.com", metav1.DeleteOptions{}) }},
				{name: "no definitions", change: func() error {
					return client.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
				}},
			} {
				if step.unserve && tc.keepsUnserved {
					continue
				}
				expect.NoError(t, step.change(), step.name)
				for _, accept := range tc.accepts {
					for _, path := range tc.paths {
						poll.Until(t, step.name+": "+path+" as "+accept, func() string {
							header := map[string]string{"Accept": accept}
							return compare(get(t, s.upstream, path, header), get(t, s.ours, path, header))
						})
					}
				}
			}
		})
	}
}

// TestCanceled checks that a request that has ended neither waits for the document of another nor
// builds one.
func TestCanceled(t *testing.T) {
	t.Parallel()
	v2, v3 := startV2(t, newDefinition("example.com", "widgets")).ours.(*v2Handler), startV3(t, newDefinition("example.com", "widgets")).ours.(*v3Handler)
	for version, tc := range map[string]struct {
		http.Handler
		building
		definitions *Definitions
		path        string
		canceled    int
	}{
		"v2": {v2, v2.building, &v2.definitions, v2Path, http.StatusServiceUnavailable},
		"v3": {v3, v3.building, &v3.definitions, v3DocumentPath, http.StatusInternalServerError},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			built := 0
			tc.definitions.WithSchemas = func(definition *crd) (*crd, error) {
				built++
				return definition, nil
			}
			canceled, cancel := context.WithCancel(t.Context())
			cancel()
			ended := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tc.ServeHTTP(w, r.WithContext(canceled)) })
			tc.building <- struct{}{}
			expect.Equal(t, tc.canceled, get(t, ended, tc.path, nil).Code, "while another document is built")
			<-tc.building
			expect.Equal(t, tc.canceled, get(t, ended, tc.path, nil).Code, "without another document")
			expect.Equal(t, 0, built, "definitions that were built")
			expect.Equal(t, http.StatusOK, get(t, tc, tc.path, nil).Code, "afterwards")
		})
	}
}

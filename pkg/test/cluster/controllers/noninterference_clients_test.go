// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// endpoint is the main cluster or annex's own endpoint, with clients of one login.
type endpoint struct{ *clients.Clients }

func newEndpoint(t *testing.T, config *restclient.Config) *endpoint {
	t.Helper()
	return &endpoint{clients.For(t, config)}
}

// main returns clients of the main cluster's administrator.
func main(t *testing.T) *endpoint {
	t.Helper()
	return newEndpoint(t, mainCluster.Config)
}

// own returns clients of annex's administrator, at annex's own endpoint.
func (s *sharedAnnex) own(t *testing.T) *endpoint {
	t.Helper()
	return newEndpoint(t, s.annex.AnnexConfig)
}

// get reads a path. Headers come in pairs.
func (c *endpoint) get(t *testing.T, path string, headers ...string) clients.Response {
	t.Helper()
	got, err := clients.Send(t.Context(), c.HTTP, http.MethodGet, c.Config.Host+path, "", headers...)
	expect.NoError(t, err)
	return got
}

var last atomic.Int64

// newGroup returns an unused API group.
func newGroup() string { return fmt.Sprintf("g%d.noninterference.example.com", last.Add(1)) }

// newNamespace creates a namespace in the main cluster.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("noninterference-%d", last.Add(1))}}
	expect.Create(t, main(t).Kube.CoreV1().Namespaces(), namespace)
	return namespace.Name
}

const widgetSchema = `
type: object
properties:
  spec:
    type: object
    properties:
      color: {type: string, enum: [red, green, blue], description: The color of the paint.}
      size: {type: integer, maximum: 100}
  status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// newCRD returns a CRD of namespaced objects with one version.
func newCRD(t *testing.T, group, plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	schema := &apiextensionsv1.JSONSchemaProps{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(widgetSchema), schema))
	crd := crds.New(group, plural)
	crd.Spec.Names.Kind = kind
	version := crds.NewVersion("v1", true, schema)
	version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
	return crd
}

// define creates a CRD and waits until it is established.
func (c *endpoint) define(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	expect.Create(t, c.CRDs(), definition)
	expect.Eventually(t, c.CRDs(), definition.Name, definition.Name+" is established", func(found *apiextensionsv1.CustomResourceDefinition) bool {
		return apiextensionshelpers.IsCRDConditionTrue(found, apiextensionsv1.Established)
	})
}

// widgets are Widgets of one namespace, hosted by annex.
type widgets struct {
	group, namespace string
}

// newWidgets creates the CRD in annex and waits until the main cluster proxies requests for
// Widgets to annex.
func (s *sharedAnnex) newWidgets(t *testing.T) widgets {
	t.Helper()
	w := widgets{group: newGroup(), namespace: newNamespace(t)}
	s.own(t).define(t, newCRD(t, w.group, "widgets", "Widget"))
	expect.NoError(t, s.installation.WaitPublished(t.Context(), w.group, "v1"))
	return w
}

func (w widgets) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: w.group, Version: "v1", Resource: "widgets"}
}

// by returns a client of the Widgets.
func (w widgets) by(c *endpoint) dynamic.ResourceInterface {
	return c.Dynamic.Resource(w.resource()).Namespace(w.namespace)
}

func (w widgets) path() string {
	return fmt.Sprintf("/apis/%s/v1/namespaces/%s/widgets", w.group, w.namespace)
}

func (w widgets) object(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": w.group + "/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": w.namespace},
		"spec":     map[string]any{"color": "red"},
	}}
}

// create creates a Widget through the main cluster.
func (w widgets) create(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	created, err := w.by(main(t)).Create(t.Context(), w.object(name), metav1.CreateOptions{})
	expect.NoError(t, err, "create widget %s through the main cluster", name)
	return created
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	group           = "differential.example.com"
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
)

// future is a resource version that is not reached.
const future = "99999999"

// definition returns a CRD of two versions, of which v1 prunes and has a default.
func definition(plural, kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	pruned := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"color": {Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"<red> & blue"`)}},
			"size":  {Type: "integer"},
			"ratio": {Type: "number"},
			"text":  {Type: "string"},
			"free":  anything,
		}},
		"status": anything,
	}}
	var columns []apiextensionsv1.CustomResourceColumnDefinition
	if scope == apiextensionsv1.ClusterScoped {
		for path, kind := range map[string]string{
			".spec.color": "string", ".spec.size": "integer", ".spec.ratio": "number", ".status.ready": "boolean", ".metadata.creationTimestamp": "date",
			".metadata.labels.part": "string", ".spec.free.list[0]": "string", ".metadata.annotations": "string", ".spec": "string", ".missing.field": "string",
		} {
			columns = append(columns, apiextensionsv1.CustomResourceColumnDefinition{Name: path, Type: kind, JSONPath: path})
		}
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Names: names, Scope: scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{
					Name: "v1", Served: true, Storage: true, AdditionalPrinterColumns: columns, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &pruned},
					SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}},
					Subresources:     &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				},
				{
					Name: "v1beta1", Served: true, Deprecated: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &anything},
				},
				{Name: "v2", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &anything}},
			},
		},
	}
}

func newObject(kind, namespace string, i int) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": kind,
		"metadata": map[string]any{
			"name":            fmt.Sprintf("object-%03d", i),
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}},
			"labels":          map[string]any{"part": fmt.Sprint(i % 4), "tenth": fmt.Sprint(i % 10), "resourceVersion": "label"},
			"annotations":     map[string]any{"resourceVersion": "7", "metadata": `{"resourceVersion":"8"} <html> ü`},
		},
		"spec": map[string]any{"size": int64(i), "ratio": 1.5e21, "unknown": "pruned", "free": map[string]any{"null": nil, "list": []any{int64(1), "two"}}},
	}}
	if namespace != "" {
		object.SetNamespace(namespace)
	}
	if i%3 == 0 {
		expectSet(object, "green", "spec", "color")
	}
	if i%5 == 0 {
		object.SetFinalizers([]string{"example.com/keep"})
		expectSet(object, strings.Repeat("long ", 2000), "spec", "text")
	}
	return object
}

func expectSet(object *unstructured.Unstructured, value string, path ...string) {
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		panic(err)
	}
}

// TestReads sends writes to annex and reads of all kinds to both servers.
func TestReads(t *testing.T) {
	p := startPair(t)
	versions := fill(t, p)
	t.Run("writes", func(t *testing.T) { compareWrites(t, p) })
	t.Run("dry runs", func(t *testing.T) { compareDryRuns(t, p) })
	t.Run("discovery", func(t *testing.T) { compareDiscovery(t, p) })
	t.Run("gets and lists", func(t *testing.T) { p.compareAll(t, reads(versions), 10) })
	t.Run("pages", func(t *testing.T) { comparePages(t, p) })
	p.expectIndex(t)
	t.Run("an empty resource", func(t *testing.T) { p.compareAll(t, emptyReads(t, p, versions), 10) })
	p.setCache(t, "Compressed")
	t.Run("compressed in memory", func(t *testing.T) { p.compareAll(t, every(4, reads(versions)), 10) })
	t.Run("watches", func(t *testing.T) { p.compareAll(t, watches(versions), 50) })
}

// emptyReads returns reads of a resource without objects, which annex reads from etcd.
func emptyReads(t *testing.T, p *pair, versions []string) (empty []request) {
	t.Helper()
	create(t, p.annex, definitionsPath, definition("voids", "Void", apiextensionsv1.NamespaceScoped))
	for _, r := range reads(versions) {
		if path := strings.ReplaceAll(r.path, "widgets", "voids"); path != r.path && !strings.Contains(path, future) {
			r.path = path
			empty = append(empty, r)
		}
	}
	return empty
}

// every returns each nth request.
func every(n int, all []request) (some []request) {
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// fill creates objects of a namespaced and a cluster-scoped resource, changes and deletes some,
// and returns the resource versions before, between and after.
func fill(t *testing.T, p *pair) []string {
	t.Helper()
	create(t, p.annex, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": "other"}})
	for plural, kind := range map[string]string{"widgets": "Widget", "planets": "Planet"} {
		scope := apiextensionsv1.NamespaceScoped
		if plural == "planets" {
			scope = apiextensionsv1.ClusterScoped
		}
		crd := definition(plural, kind, scope)
		if plural == "planets" {
			crd.Spec.Conversion = p.conversion
		}
		create(t, p.annex, definitionsPath, crd)
		for _, s := range []*server{p.annex, p.upstream} {
			poll.UntilNoError(t, plural+" are served", func() error {
				_, err := s.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).List(t.Context(), metav1.ListOptions{})
				return err
			})
		}
	}
	widgets := p.annex.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"})
	var versions []string
	mark := func() {
		list, err := widgets.List(t.Context(), metav1.ListOptions{})
		expect.NoError(t, err)
		versions = append(versions, list.GetResourceVersion())
	}
	mark()
	for i := range 40 {
		namespace := []string{"default", "other"}[i%2]
		create(t, p.annex, "/apis/"+group+"/v1/namespaces/"+namespace+"/widgets", newObject("Widget", namespace, i))
		planet := newObject("Planet", "", i)
		if i == 5 {
			expectSet(planet, strings.Repeat("large ", 25<<10), "spec", "text") // so large that it is sent compressed
		}
		create(t, p.annex, "/apis/"+group+"/v1/planets", planet)
	}
	mark()
	for _, path := range []string{"v1/planets", "v1beta1/planets", "v1beta1/widgets", "v2/planets", "v2/widgets"} {
		// annex creates a watch cache at the first read, upstream all at once.
		_, err := p.annex.read(t.Context(), request{path: "/apis/" + group + "/" + path + "?resourceVersion=0"})
		expect.NoError(t, err)
	}
	for i := range 20 {
		namespace := []string{"default", "other"}[i%2]
		patch := fmt.Sprintf(`{"spec":{"size":%d,"color":null},"metadata":{"labels":{"part":%q}}}`, 100+i, fmt.Sprint(i%3))
		_, err := widgets.Namespace(namespace).Patch(t.Context(), fmt.Sprintf("object-%03d", i), "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		expect.NoError(t, err)
		_, err = widgets.Namespace(namespace).Patch(t.Context(), fmt.Sprintf("object-%03d", i), "application/merge-patch+json",
			[]byte(`{"status":{"ready":true}}`), metav1.PatchOptions{}, "status")
		expect.NoError(t, err)
		if i%4 == 0 {
			expect.NoError(t, widgets.Namespace(namespace).Delete(t.Context(), fmt.Sprintf("object-%03d", i), metav1.DeleteOptions{}))
		}
	}
	mark()
	return versions
}

// reads returns the requests that are compared.
func reads(versions []string) []request {
	plain := request{accept: "application/json", userAgent: "test"}
	formats := []request{
		plain,
		{accept: "", userAgent: "test"},
		{accept: "*/*", userAgent: "curl/8"},
		{accept: "application/yaml", userAgent: "test"},
		{accept: "application/vnd.kubernetes.protobuf", userAgent: "test"},
		{accept: "application/vnd.kubernetes.protobuf, application/json", userAgent: "test"},
		{accept: "application/cbor, application/json", userAgent: "test"},
		{accept: "application/json", userAgent: "test", encoding: "gzip"},
		{accept: "text/html", userAgent: "test"},
	}
	for _, format := range []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"} {
		for _, kind := range []string{"PartialObjectMetadata", "PartialObjectMetadataList", "Nothing"} {
			for _, v := range []string{"v1", "v1beta1", "v7"} {
				formats = append(formats, request{accept: fmt.Sprintf("%s;as=%s;v=%s;g=meta.k8s.io", format, kind, v), userAgent: "test"})
			}
		}
	}
	for _, accept := range []string{
		"application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml;as=Table;v=v1beta1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
		"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
	} {
		formats = append(formats, request{accept: accept, userAgent: "test"})
	}
	table := request{accept: "application/json;as=Table;v=v1;g=meta.k8s.io", userAgent: "test"}

	v1, v2 := "/apis/"+group+"/v1", "/apis/"+group+"/v2"
	var all []request
	add := func(formats []request, paths ...string) {
		for _, path := range paths {
			for _, r := range formats {
				r.path = path
				all = append(all, r)
			}
		}
	}
	one := v1 + "/namespaces/default/widgets"
	add(formats, one, one+"/object-002", one+"/missing", v1+"/widgets", v2+"/widgets", v1+"/planets/object-005", v1+"/planets")
	add([]request{table}, one+"/missing", v1+"/planets?limit=3", v1+"/planets?includeObject=None", v1+"/planets?includeObject=Object", v1+"/planets?includeObject=x",
		v1+"/planets/object-005?includeObject=Metadata")
	latest := versions[2]
	add([]request{plain},
		"/apis/"+group+"/v1beta1/widgets", "/apis/"+group+"/v1beta1/namespaces/default/widgets/object-002", "/apis/"+group+"/v1beta1/namespaces/default/widgets/missing", "/apis/"+group+"/v3/widgets", v1+"/planets/missing", v1+"/widgets/object-001", v1+"/namespaces/none/widgets",
		v1+"/namespaces/default/planets", one+"/object-002?pretty=true", v1+"/widgets?pretty=1", one+"/object-002?resourceVersion=0",
		one+"/object-002?resourceVersion="+latest, one+"/object-002?resourceVersion=x", one+"/object-002?export=true", one+"/object-002/status",
		one+"/object-000", one+"/object-004", one+"/object-002?resourceVersion="+future,
	)
	for _, path := range []string{v1 + "/widgets", one, v2 + "/widgets", "/apis/" + group + "/v1beta1/planets", v1 + "/planets", v2 + "/planets", one + "/object-002"} {
		for _, query := range []string{
			"resourceVersion=0", "resourceVersion=" + latest, "resourceVersion=" + versions[1] + "&resourceVersionMatch=Exact",
			"resourceVersion=" + latest + "&resourceVersionMatch=Exact", "resourceVersion=" + versions[0] + "&resourceVersionMatch=NotOlderThan",
			"resourceVersion=1&resourceVersionMatch=Exact", "resourceVersion=" + future, "resourceVersion=-1", "resourceVersionMatch=Exact", "resourceVersion=0&resourceVersionMatch=Exact",
			"limit=7", "limit=7&resourceVersion=0", "limit=500", "limit=5&resourceVersion=" + versions[1] + "&resourceVersionMatch=Exact", "limit=-1", "limit=x", "continue=x",
			"labelSelector=part%3D1", "labelSelector=part+in+(1,2)", "labelSelector=part%3D1&limit=3", "labelSelector=!part", "labelSelector=%3D%3D",
			"labelSelector=tenth%3D3", "labelSelector=tenth%3D2&limit=2", "labelSelector=tenth%3D2,part%3D1", "labelSelector=tenth%3D2,part!%3D1&resourceVersion=0", "labelSelector=converted%3Dwords",
			"labelSelector=part%3D1&resourceVersion=0", "fieldSelector=metadata.name%3Dobject-002", "fieldSelector=metadata.namespace%3Ddefault",
			"fieldSelector=metadata.namespace%3Dother&resourceVersion=0", "fieldSelector=spec.color%3Dgreen", "fieldSelector=spec.color!%3Dgreen&labelSelector=part%3D1",
			"fieldSelector=spec.color%3D", "fieldSelector=spec.size%3D1", "fieldSelector=metadata.name!%3Dobject-002", "fieldSelector=metadata.name!%3Dobject-002&limit=3",
			"fieldSelector=metadata.name%3Dobject-002,metadata.namespace%3Ddefault&resourceVersion=0", "fieldSelector=metadata.name%3Dobject-002,spec.color%3D%3Cred%3E+%26+blue", "timeoutSeconds=1", "timeoutSeconds=x",
			"sendInitialEvents=true", "allowWatchBookmarks=true", "unknown=1",
		} {
			add([]request{plain}, path+"?"+query)
		}
	}
	return all
}

func create(t testing.TB, s *server, path string, object any) {
	t.Helper()
	expect.NoError(t, post(t.Context(), s, path, object))
}

// post creates an object.
func post(ctx context.Context, s *server, path string, object any) error {
	_, err := send(ctx, s.http, http.MethodPost, s.url+path, "application/json", object)
	return err
}

// send sends the object as it is, and returns the answer as it is: clients take an object with a
// field items for a list. An answer that is an error is one.
func send(ctx context.Context, client *http.Client, method, url, contentType string, object any) ([]byte, error) {
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json")
	response, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && (response.StatusCode >= http.StatusBadRequest || method == http.MethodPost && response.StatusCode != http.StatusCreated) {
		err = fmt.Errorf("%s %s: %s %s", method, url, response.Status, answer)
	}
	return answer, err
}

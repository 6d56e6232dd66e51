// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package errorlimit

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/test/expect"
)

const boxSchema = `{
	"type": "object",
	"properties": {
		"spec": {"type": "object", "properties": {
			"names": {"type": "array", "items": {"type": "string", "minLength": 1}},
			"sets": {"type": "array", "items": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}},
			"ports": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}},
			"parts": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "parent": {"type": "string", "nullable": true}}}},
			"sizes": {"type": "object", "additionalProperties": {"type": "integer", "maximum": 10}},
			"ruled": {"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 10", "message": "too large"}]}},
			"any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
		}},
		"status": {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}}}}
	}
}`

func newDefinition(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "boxes.example.com"}}
	validation := &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{}}
	expect.NoError(t, json.Unmarshal([]byte(boxSchema), validation.OpenAPIV3Schema))
	definition.Spec.Scope = apiextensionsv1.NamespaceScoped
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: "v1", Schema: validation, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}}
	return definition
}

func newPlugin(t *testing.T) *Plugin {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	expect.NoError(t, indexer.Add(newDefinition(t)))
	definitions, plugin := &Definitions{}, New()
	definitions.Set(crdlisters.NewCustomResourceDefinitionLister(indexer))
	definitions.Initialize(plugin)
	expect.NoError(t, plugin.ValidateInitialization())
	return plugin
}

func box(field string, value any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Box", "metadata": map[string]any{"name": "a", "namespace": "b"}, "spec": map[string]any{},
	}}
	path := strings.Split(field, ".")
	object.Object[path[0]] = map[string]any{path[1]: value}
	return object
}

func repeat(count int, value any) []any {
	list := make([]any, count)
	for i := range list {
		list[i] = value
	}
	return list
}

func keys(count int, value any) map[string]any {
	fields := map[string]any{}
	for i := range count {
		fields[fmt.Sprintf("!%d", i)] = value
	}
	return fields
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	const many, enough = 2500, 900
	plugin := newPlugin(t)
	duplicates := repeat(many, []any{int64(1), int64(1)})
	for name, test := range map[string]struct {
		object, old *unstructured.Unstructured
		subresource string
		want        string
	}{
		"valid":                        {object: box("spec.names", repeat(many, "a"))},
		"few errors of many values":    {object: box("spec.names", append(repeat(many, "a"), repeat(enough, "")...))},
		"few values":                   {object: box("spec.names", repeat(fewValues-10, ""))},
		"short strings":                {object: box("spec.names", repeat(many, "")), want: `spec.names[0]: Invalid value: "":  in body should be at least 1 chars long`},
		"wrong types":                  {object: box("spec.names", repeat(many, int64(1))), want: "spec.names[99]: Invalid value"},
		"lists for strings":            {object: box("spec.names", repeat(many, []any{})), want: "must be of type string"},
		"missing fields":               {object: box("spec.parts", repeat(many, map[string]any{})), want: "spec.parts[0].name: Required value"},
		"null":                         {object: box("spec.parts", repeat(many, map[string]any{"name": "a", "parent": nil}))},
		"large numbers":                {object: box("spec.sizes", keys(many, int64(11))), want: "should be less than or equal to 10"},
		"duplicates":                   {object: box("spec.sets", duplicates), want: "spec.sets[0][1]: Duplicate value: 1"},
		"ints and strings":             {object: box("spec.ports", append(repeat(many, int64(1)), "a"))},
		"neither":                      {object: box("spec.ports", repeat(many, true)), want: "spec.ports[0]"},
		"broken rules":                 {object: box("spec.ruled", repeat(manyValues, int64(11))), want: "spec.ruled[0]: Invalid value: 11: too large"},
		"broken rules, left alone":     {object: box("spec.ruled", repeat(many, int64(11)))},
		"bad labels":                   {object: box("metadata.labels", keys(many, "a")), want: "metadata.labels: Invalid value"},
		"what has no schema":           {object: box("spec.any", keys(many, nil))},
		"unknown version":              {object: box("spec.names", repeat(many, "")), subresource: "v2"},
		"another subresource":          {object: box("spec.names", repeat(many, "")), subresource: "scale"},
		"status that is dropped":       {object: box("status.names", repeat(many, int64(1)))},
		"status":                       {object: box("status.names", repeat(many, int64(1))), subresource: "status", want: "status.names[0]"},
		"spec that is dropped":         {object: box("spec.names", repeat(many, "")), subresource: "status"},
		"what was wrong before":        {object: box("spec.names", repeat(many, "")), old: box("spec.names", repeat(many, ""))},
		"more than what was wrong":     {object: box("spec.names", repeat(many+1, "")), old: box("spec.names", repeat(many, "")), want: "spec.names[0]"},
		"rules that were broken first": {object: box("spec.ruled", repeat(manyValues, int64(11))), old: box("spec.names", repeat(many, "")), want: "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := "v1"
			if test.subresource == "v2" {
				version, test.subresource = "v2", ""
			}
			kind := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Box"}
			var old runtime.Object
			if test.old != nil {
				old = test.old
			}
			attributes := admission.NewAttributesRecord(test.object, old, kind, "b", "a", kind.GroupVersion().WithResource("boxes"), test.subresource, admission.Update, nil, false, nil)
			err := plugin.Admit(t.Context(), attributes, nil)
			expect.ErrorOrNone(t, err, test.want)
			if err != nil {
				expect.Error(t, err, "there are more than 1000 errors")
			}
		})
	}
}

func TestWithoutDefinition(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Crate"}
	attributes := admission.NewAttributesRecord(box("spec.names", repeat(fewValues, "")), nil, kind, "b", "a", kind.GroupVersion().WithResource("crates"), "", admission.Create, nil, false, nil)
	expect.NoError(t, newPlugin(t).Admit(t.Context(), attributes, nil))
	expect.Error(t, New().ValidateInitialization(), "the definitions are missing")
	unset := New()
	(&Definitions{}).Initialize(unset)
	expect.Error(t, unset.Admit(t.Context(), attributes, nil), "not yet ready")
}

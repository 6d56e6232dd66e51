// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// gadgetSchema has a field for each kind of values that managed fields tell apart.
const gadgetSchema = `
type: object
properties:
  spec:
    type: object
    x-kubernetes-validations: [{rule: "!has(self.size) || self.size != 13"}]
    properties:
      class: {type: string, x-kubernetes-validations: [{rule: "self == oldSelf"}]}
      size: {type: integer}
      name: {type: string}
      "is \"on\"": {type: boolean}
      é: {type: string}
      deep: {type: object, properties: {a: {type: object, properties: {x: {type: string}, z: {type: string}}}}}
      solid: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}}
      flags: {type: object, additionalProperties: {type: boolean}}
      args: {type: array, items: {type: string}}
      tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, name]
        items: {type: object, required: [name, port], properties: {name: {type: string}, port: {type: integer}, mode: {type: string}}}
      either: {x-kubernetes-int-or-string: true}
      open: {type: object, x-kubernetes-preserve-unknown-fields: true}
      raw: {x-kubernetes-preserve-unknown-fields: true}
  other: {type: string}
  items: {type: array, items: {type: string}}
  status: {type: object, properties: {phase: {type: string}}}
`

// gadgets returns a definition of Gadgets, with the subresource status.
func gadgets(t testing.TB, schema string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	props := &apiextensionsv1.JSONSchemaProps{}
	expect.NoError(t, yaml.UnmarshalStrict([]byte(schema), props))
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: "gadgets", Singular: "gadget", Kind: "Gadget", ListKind: "GadgetList"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names},
	}
}

func newSchema(t testing.TB, definition *apiextensionsv1.CustomResourceDefinition) *Schema {
	t.Helper()
	schema, err := NewSchema(definition, "v1")
	expect.NoError(t, err)
	if schema == nil {
		t.Fatal("no write can be planned")
	}
	return schema
}

// upstreamTypes returns the types of Gadgets for structured-merge-diff, as upstream's handler makes them.
func upstreamTypes(t *testing.T) managedfields.TypeConverter {
	t.Helper()
	spec, err := builder.BuildOpenAPIV3(gadgets(t, gadgetSchema), "v1", builder.Options{})
	expect.NoError(t, err)
	types, err := managedfields.NewTypeConverter(spec.Components.Schemas, false)
	expect.NoError(t, err)
	return types
}

// typedGadget returns a Gadget with a spec.
func typedGadget(t *testing.T, types managedfields.TypeConverter, spec string) *typed.TypedValue {
	t.Helper()
	object := &unstructured.Unstructured{}
	expect.NoError(t, object.UnmarshalJSON([]byte(`{"apiVersion":"example.com/v1","kind":"Gadget","spec":`+spec+`}`)))
	value, err := types.ObjectToTyped(object)
	expect.NoError(t, err)
	return value
}

// fieldsOf returns fields of the spec, which are separated by spaces, and their elements by slashes.
func fieldsOf(t *testing.T, texts string) string {
	t.Helper()
	var paths []path
	for _, text := range strings.Fields(texts) {
		paths = append(paths, strings.Split("f:spec/"+text, "/"))
	}
	return setOf(t, paths)
}

func setOf(t *testing.T, paths []path) string {
	t.Helper()
	set, err := newFieldSet(paths)
	expect.NoError(t, err)
	return set.String()
}

// TestDiff compares specs, also with structured-merge-diff.
func TestDiff(t *testing.T) {
	t.Parallel()
	schema, types := newSchema(t, gadgets(t, gadgetSchema)), upstreamTypes(t)
	for name, test := range map[string]struct {
		before, after    string
		changed, removed string
		unsure           bool
	}{
		"nothing":               {before: `{"size":1}`, after: `{"size":1}`},
		"scalar":                {before: `{"name":"a","size":1}`, after: `{"name":"a","size":2}`, changed: "f:size"},
		"added":                 {before: `{"name":"a"}`, after: `{"name":"a","size":2}`, changed: "f:size"},
		"removed":               {before: `{"name":"a","size":1}`, after: `{"name":"a"}`, removed: "f:size"},
		"several":               {before: `{"name":"a","size":1}`, after: `{"either":1,"size":2}`, changed: "f:either f:size", removed: "f:name"},
		"another scalar":        {before: `{"either":1}`, after: `{"either":"a"}`, changed: "f:either"},
		"object below":          {before: `{"deep":{"a":{"x":"1","z":"1"}}}`, after: `{"deep":{"a":{"x":"2"}}}`, changed: "f:deep/f:a/f:x", removed: "f:deep/f:a/f:z"},
		"object added":          {before: `{}`, after: `{"deep":{"a":{"x":"1"}}}`, changed: "f:deep f:deep/f:a f:deep/f:a/f:x"},
		"object removed":        {before: `{"deep":{"a":{"x":"1"}}}`, after: `{}`, removed: "f:deep f:deep/f:a f:deep/f:a/f:x"},
		"empty object added":    {before: `{}`, after: `{"deep":{}}`, changed: "f:deep"},
		"empty object removed":  {before: `{"deep":{}}`, after: `{}`, removed: "f:deep"},
		"object filled":         {before: `{"deep":{}}`, after: `{"deep":{"a":{}}}`, changed: "f:deep/f:a"},
		"object emptied":        {before: `{"deep":{"a":{"x":"1"}}}`, after: `{"deep":{}}`, removed: "f:deep/f:a f:deep/f:a/f:x"},
		"map":                   {before: `{"flags":{"a":true,"b":true}}`, after: `{"flags":{"b":false,"c":true}}`, changed: "f:flags/f:b f:flags/f:c", removed: "f:flags/f:a"},
		"atomic map":            {before: `{"solid":{"a":"1"}}`, after: `{"solid":{"a":"2","b":"1"}}`, changed: "f:solid"},
		"atomic map added":      {before: `{}`, after: `{"solid":{"a":"2"}}`, changed: "f:solid"},
		"atomic map removed":    {before: `{"solid":{"a":"2"}}`, after: `{}`, removed: "f:solid"},
		"atomic list":           {before: `{"args":["a"]}`, after: `{"args":["a","b"]}`, changed: "f:args"},
		"atomic list, order":    {before: `{"args":["a","b"]}`, after: `{"args":["b","a"]}`, changed: "f:args"},
		"atomic list emptied":   {before: `{"args":["a"]}`, after: `{"args":[]}`, changed: "f:args"},
		"atomic list removed":   {before: `{"args":["a"]}`, after: `{}`, removed: "f:args"},
		"set":                   {before: `{"tags":["a","b"]}`, after: `{"tags":["c","b"]}`, changed: `f:tags/v:"c"`, removed: `f:tags/v:"a"`},
		"set, order":            {before: `{"tags":["a","b"]}`, after: `{"tags":["b","a"]}`},
		"set added":             {before: `{}`, after: `{"tags":["a"]}`, changed: `f:tags f:tags/v:"a"`},
		"set removed":           {before: `{"tags":["a"]}`, after: `{}`, removed: `f:tags f:tags/v:"a"`},
		"list map, item":        {before: `{"ports":[{"mode":"x","name":"a","port":1}]}`, after: `{"ports":[{"mode":"y","name":"a","port":1}]}`, changed: `f:ports/k:{"name":"a","port":1}/f:mode`},
		"list map, key":         {before: `{"ports":[{"name":"a","port":1}]}`, after: `{"ports":[{"name":"a","port":2}]}`, changed: `f:ports/k:{"name":"a","port":2} f:ports/k:{"name":"a","port":2}/f:name f:ports/k:{"name":"a","port":2}/f:port`, removed: `f:ports/k:{"name":"a","port":1} f:ports/k:{"name":"a","port":1}/f:name f:ports/k:{"name":"a","port":1}/f:port`},
		"list map, order":       {before: `{"ports":[{"name":"a","port":1},{"name":"b","port":1}]}`, after: `{"ports":[{"name":"b","port":1},{"name":"a","port":1}]}`},
		"list map emptied":      {before: `{"ports":[{"name":"a","port":1}]}`, after: `{"ports":[]}`, removed: `f:ports/k:{"name":"a","port":1} f:ports/k:{"name":"a","port":1}/f:name f:ports/k:{"name":"a","port":1}/f:port`},
		"unknown fields":        {before: `{"open":{"a":{"b":1},"c":[1]}}`, after: `{"open":{"a":{"b":2},"c":[2]}}`, changed: "f:open/f:a/f:b f:open/f:c"},
		"unknown fields added":  {before: `{"open":{}}`, after: `{"open":{"a":{"b":{}}}}`, changed: "f:open/f:a f:open/f:a/f:b"},
		"any scalar":            {before: `{"raw":1}`, after: `{"raw":"a"}`, changed: "f:raw"},
		"quotes in a name":      {before: `{}`, after: `{"is \"on\"":true}`, unsure: true},
		"another alphabet":      {before: `{}`, after: `{"é":"1"}`, unsure: true},
		"escaped item":          {before: `{"tags":["a"]}`, after: `{"tags":["\u003c"]}`, unsure: true},
		"escaped item before":   {before: `{"tags":["\u003c"]}`, after: `{"tags":["a"]}`, unsure: true},
		"escaped key":           {before: `{}`, after: `{"ports":[{"name":"\"","port":1}]}`, unsure: true},
		"item twice":            {before: `{"tags":["a","a"]}`, after: `{"tags":["a"]}`, unsure: true},
		"item without its keys": {before: `{}`, after: `{"ports":[{"name":"a"}]}`, unsure: true},
		"null":                  {before: `{"raw":1}`, after: `{"raw":null}`, unsure: true},
		"null before":           {before: `{"raw":null}`, after: `{"raw":1}`, unsure: true},
		"object for a scalar":   {before: `{"raw":1}`, after: `{"raw":{"a":1}}`, unsure: true},
		"array for an object":   {before: `{"raw":{}}`, after: `{"raw":[]}`, unsure: true},
		"pruned":                {before: `{}`, after: `{"unknown":1}`, unsure: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &diff{at: path{"f:spec"}}
			d.values(schema.root.child("spec"), test.before, test.after)
			expect.Equal(t, test.unsure, d.unsure, "unsure")
			if test.unsure {
				return
			}
			expect.Equal(t, fieldsOf(t, test.changed), setOf(t, d.changed), "changed")
			expect.Equal(t, fieldsOf(t, test.removed), setOf(t, d.removed), "removed")
			upstream, err := typedGadget(t, types, test.before).Compare(typedGadget(t, types, test.after))
			expect.NoError(t, err)
			expect.Equal(t, upstream.Added.Union(upstream.Modified).String(), setOf(t, d.changed), "changed, upstream")
			expect.Equal(t, upstream.Removed.String(), setOf(t, d.removed), "removed, upstream")
		})
	}
}

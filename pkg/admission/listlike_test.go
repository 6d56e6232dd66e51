// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// recordedWarnings records warnings.
type recordedWarnings []string

func (w *recordedWarnings) AddWarning(_, text string) { *w = append(*w, text) }

func TestListLike(t *testing.T) {
	t.Parallel()
	object := func(items any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"items": items, "spec": map[string]any{"items": []any{}}}}
	}
	definition := func(kind string, global bool) *apiextensions.CustomResourceDefinition {
		validation := &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{
			Properties: map[string]apiextensions.JSONSchemaProps{"items": {Type: kind}},
		}}
		crd := &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1"}}}}
		if global {
			crd.Spec.Validation = validation
		} else {
			crd.Spec.Versions[0].Schema = validation
		}
		return crd
	}
	array, text := object([]any{}), object("a")
	for name, test := range map[string]struct {
		object, old runtime.Object
		refused     bool
		warned      bool
	}{
		"create":                  {object: array, refused: true},
		"create without an array": {object: text},
		"update that adds it":     {object: array, old: text, refused: true},
		"update of one with it":   {object: array, old: array},
		"update that removes it":  {object: text, old: array},
		"definition":              {object: definition("array", false), warned: true},
		"definition, all alike":   {object: definition("array", true), warned: true},
		"definition of a string":  {object: definition("string", false)},
		"another kind":            {object: &metav1.Status{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got recordedWarnings
			attributes := admission.NewAttributesRecord(test.object, test.old, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Box"}, "", "a",
				schema.GroupVersionResource{}, "", admission.Create, nil, false, nil)
			want := ""
			if test.refused {
				want = "items: Forbidden"
			}
			expect.ErrorOrNone(t, newListLike().Validate(warning.WithWarningRecorder(context.WithoutCancel(t.Context()), &got), attributes, nil), want)
			expect.Equal(t, test.warned, slices.Contains(got, "objects with the field items will be refused: "+listLikeReason), "warned")
		})
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/admission/undecoded"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	mirrorKey   = "annex.dev/config.mirror"
	sourceKey   = "annex.dev/config.source"
	orphanedKey = "annex.dev/config.orphaned"
)

// widget returns a custom resource with annotations; mirror adds the annotations of a mirror.
func widget(spec, status string, annotations ...string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "w"}, "spec": spec}}
	if status != "" {
		object.Object["status"] = status
	}
	set := map[string]string{}
	for i := 0; i < len(annotations); i += 2 {
		set[annotations[i]] = annotations[i+1]
	}
	object.SetAnnotations(set)
	return object
}

func mirror(spec, status string, more ...string) *unstructured.Unstructured {
	return widget(spec, status, append([]string{mirrorKey, "m", sourceKey, "file"}, more...)...)
}

func changed(object *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	change(object)
	return object
}

func configMap(data string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Annotations: map[string]string{mirrorKey: "m", sourceKey: "http"}},
		Data:       map[string]string{"key": data},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	const (
		create   = admission.Create
		update   = admission.Update
		remove   = admission.Delete
		readOnly = `it is the mirror of a static object of the source "file", which is read-only`
		ownOnly  = "only annex sets annotations that begin with annex.dev/config."
	)
	orphan := []string{orphanedKey, "why"}
	tests := map[string]struct {
		operation   admission.Operation
		resource    string
		subresource string
		old, object runtime.Object
		wantErr     string
	}{
		"ordinary object":               {create, "widgets", "", nil, widget("a", ""), ""},
		"own annotation":                {create, "widgets", "", nil, widget("a", "", mirrorKey, "m"), ownOnly},
		"own annotation, later":         {update, "widgets", "", widget("a", ""), widget("a", "", orphanedKey, "x"), ownOnly},
		"ordinary update":               {update, "widgets", "", widget("a", ""), widget("b", ""), ""},
		"spec":                          {update, "widgets", "", mirror("a", ""), mirror("b", ""), readOnly},
		"annotations of a mirror":       {update, "widgets", "", mirror("a", ""), widget("a", ""), readOnly},
		"other annotation of a mirror":  {update, "widgets", "", mirror("a", ""), mirror("a", "", "x", "y"), readOnly},
		"label":                         {update, "widgets", "", mirror("a", ""), changed(mirror("a", ""), func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }), readOnly},
		"owner":                         {update, "widgets", "", mirror("a", ""), changed(mirror("a", ""), func(o *unstructured.Unstructured) { o.SetOwnerReferences([]metav1.OwnerReference{{Name: "o"}}) }), readOnly},
		"finalizer":                     {update, "widgets", "", mirror("a", ""), changed(mirror("a", ""), func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"a/b"}) }), ""},
		"status without its endpoint":   {update, "widgets", "", mirror("a", ""), mirror("a", "Ready"), ""},
		"status":                        {update, "widgets", "status", mirror("a", ""), mirror("a", "Ready"), ""},
		"token":                         {create, "serviceaccounts", "token", nil, widget("a", ""), ""},
		"compiled-in kind":              {update, "configmaps", "", configMap("a"), configMap("b"), `of the source "http"`},
		"compiled-in kind, unchanged":   {update, "configmaps", "", configMap("a"), configMap("a"), ""},
		"deletion":                      {remove, "widgets", "", mirror("a", ""), nil, ""},
		"deletion of a definition":      {remove, "customresourcedefinitions", "", mirror("a", ""), nil, "remove it from the source first"},
		"deletion of a namespace":       {remove, "namespaces", "", mirror("a", ""), nil, "remove it from the source first"},
		"ordinary definition":           {remove, "customresourcedefinitions", "", widget("a", ""), nil, ""},
		"orphaned definition":           {remove, "customresourcedefinitions", "", mirror("a", "", orphan...), nil, ""},
		"orphaned, changed":             {update, "widgets", "", mirror("a", "", orphan...), mirror("b", "", orphan...), ""},
		"orphaned, made ordinary":       {update, "widgets", "", mirror("a", "", orphan...), widget("a", ""), ""},
		"orphaned, made a mirror again": {update, "widgets", "", mirror("a", "", orphan...), mirror("a", ""), ownOnly},
		"deletion of many":              {remove, "widgets", "", nil, nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resource := schema.GroupVersionResource{Version: "v1", Resource: test.resource}
			if test.resource == "customresourcedefinitions" {
				resource.Group = "apiextensions.k8s.io"
			}
			attributes := admission.NewAttributesRecord(test.object, test.old, schema.GroupVersionKind{Version: "v1", Kind: "Widget"}, "default", "w",
				resource, test.subresource, test.operation, nil, false, nil)
			err := New().Validate(t.Context(), attributes, nil)
			expect.ErrorOrNone(t, err, test.wantErr)
			if err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("the error %v is not Forbidden", err)
			}
		})
	}
}

// The subresource scale changes the spec.
func TestValidateScale(t *testing.T) {
	t.Parallel()
	metadata := func(object metav1.Object) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: object.GetAnnotations()}}
	}
	tests := map[string]struct {
		object  *metav1.PartialObjectMetadata
		err     error
		wantErr string
	}{
		"ordinary": {metadata(widget("a", "")), nil, ""},
		"mirror":   {metadata(mirror("a", "")), nil, "which is read-only"},
		"orphaned": {metadata(mirror("a", "", orphanedKey, "why")), nil, ""},
		"gone":     {nil, apierrors.NewNotFound(schema.GroupResource{}, "w"), ""},
		"unknown":  {nil, errors.New("no answer"), "read the metadata of the scaled object: no answer"},
	}
	plugin := New()
	if err := plugin.ValidateInitialization(); err == nil {
		t.Error("the plugin is valid without a reader")
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := New()
			Reader(func(_ context.Context, resource schema.GroupVersionResource, namespace, name string) (*metav1.PartialObjectMetadata, error) {
				expect.Equal(t, "widgets default/w", resource.Resource+" "+namespace+"/"+name, "what is read")
				return test.object, test.err
			}).Initialize(plugin)
			expect.NoError(t, plugin.ValidateInitialization())
			attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "default", "w",
				schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, "scale", admission.Update, nil, false, nil)
			expect.ErrorOrNone(t, plugin.Validate(t.Context(), attributes, nil), test.wantErr)
		})
	}
}

// TestValidateUndecoded has updates whose objects are not decoded.
func TestValidateUndecoded(t *testing.T) {
	t.Parallel()
	const (
		readOnly = `it is the mirror of a static object of the source "file", which is read-only`
		ownOnly  = "only annex sets annotations that begin with annex.dev/config."
	)
	bookkeeping := changed(mirror("a", "Ready"), func(o *unstructured.Unstructured) {
		o.SetFinalizers([]string{"a/b"})
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "controller"}})
		o.SetResourceVersion("8")
		o.SetGeneration(2)
	})
	for name, test := range map[string]struct {
		old, object *unstructured.Unstructured
		wantErr     string
	}{
		"ordinary":           {widget("a", ""), widget("b", ""), ""},
		"own annotation":     {widget("a", ""), widget("a", "", mirrorKey, "m"), ownOnly},
		"spec":               {mirror("a", ""), mirror("b", ""), readOnly},
		"another annotation": {mirror("a", ""), mirror("a", "", "x", "y"), readOnly},
		"no annotations":     {mirror("a", ""), widget("a", ""), readOnly},
		"bookkeeping":        {mirror("a", ""), bookkeeping, ""},
		"nothing":            {mirror("a", ""), mirror("a", ""), ""},
		"orphaned":           {mirror("a", "", orphanedKey, "why"), mirror("b", "", orphanedKey, "why"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.ErrorOrNone(t, validateUndecoded(t, encode(t, test.old), encode(t, test.object)), test.wantErr)
		})
	}
	expect.Error(t, validateUndecoded(t, encode(t, mirror("a", "")), []byte("{")), readOnly)
}

func encode(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	object.SetAPIVersion("v1")
	object.SetKind("Widget")
	text, err := object.MarshalJSON()
	expect.NoError(t, err)
	return text
}

// validateUndecoded validates an update of an object with decoded metadata. Text that is no JSON has the metadata of
// the old object.
func validateUndecoded(t *testing.T, old, updated []byte) error {
	t.Helper()
	request := undecoded.NewRequest(nil)
	var before, after metav1.PartialObjectMetadata
	expect.NoError(t, json.Unmarshal(old, &before))
	if json.Unmarshal(updated, &after) != nil {
		after = before
	}
	return request.Validate(t.Context(), New(), admission.NewAttributesRecord(
		request.Object(&after.ObjectMeta, updated), request.Object(&before.ObjectMeta, old), schema.GroupVersionKind{Version: "v1", Kind: "Widget"}, "default", "w",
		schema.GroupVersionResource{Version: "v1", Resource: "widgets"}, "", admission.Update, nil, false, nil))
}

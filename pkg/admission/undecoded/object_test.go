// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package undecoded

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/test/expect"
)

var kind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// plugin is an admission.Interface with functions, which may be nil. It handles updates.
type plugin struct {
	admit, validate func(admission.Attributes, admission.ObjectInterfaces) error
}

func (plugin) Handles(operation admission.Operation) bool { return operation == admission.Update }

func (p plugin) Admit(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p.admit == nil {
		return nil
	}
	return p.admit(a, o)
}

func (p plugin) Validate(_ context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if p.validate == nil {
		return nil
	}
	return p.validate(a, o)
}

// newUpdate returns a Request, with Attributes that have the old and the new object.
func newUpdate(operation admission.Operation) (*Request, admission.Attributes) {
	r := NewRequest(runtime.NewEquivalentResourceRegistry())
	object := func(spec string) *Object {
		return r.Object(&metav1.ObjectMeta{Name: "a"}, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":`+spec+`}`))
	}
	return r, admission.NewAttributesRecord(object("2"), object("1"), kind, "", "a", kind.GroupVersion().WithResource("widgets"), "",
		operation, &metav1.UpdateOptions{}, false, nil)
}

// convert converts both objects, as webhooks and policies do.
func convert(a admission.Attributes, o admission.ObjectInterfaces) error {
	_, err := admission.NewVersionedAttributes(a, kind, o)
	return err
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	refuse := func(admission.Attributes, admission.ObjectInterfaces) error { return refused }
	for name, test := range map[string]struct {
		chain     plugin
		operation admission.Operation
		want      error
		validates bool
	}{
		"nothing":           {validates: true},
		"another operation": {chain: plugin{admit: refuse}, operation: admission.Connect},
		"refused":           {chain: plugin{admit: refuse}, want: refused},
		"invalid":           {chain: plugin{validate: refuse}, want: refused, validates: true},
		"mutates":           {chain: plugin{admit: convert}, want: ErrMutates},
		"ignores failures": {chain: plugin{admit: func(a admission.Attributes, o admission.ObjectInterfaces) error {
			_ = convert(a, o)
			return nil
		}}, want: ErrMutates},
		"wraps failures": {chain: plugin{admit: func(a admission.Attributes, o admission.ObjectInterfaces) error {
			return errors.Join(convert(a, o), refused)
		}}, want: ErrMutates},
		"marks the new object": {chain: plugin{admit: func(a admission.Attributes, _ admission.ObjectInterfaces) error {
			a.GetObject().(*Object).MarkMutating()
			return nil
		}}, want: ErrMutates},
		"marks a copy": {chain: plugin{admit: func(a admission.Attributes, _ admission.ObjectInterfaces) error {
			a.GetOldObject().DeepCopyObject().(*Object).MarkMutating()
			return refused
		}}, want: ErrMutates},
		"validates, decoded": {chain: plugin{validate: convert}, validates: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.operation == "" {
				test.operation = admission.Update
			}
			validated, validate := false, test.chain.validate
			test.chain.validate = func(a admission.Attributes, o admission.ObjectInterfaces) error {
				validated = true
				return plugin{validate: validate}.Validate(t.Context(), a, o)
			}
			r, attributes := newUpdate(test.operation)
			err := r.Admit(t.Context(), test.chain, attributes)
			if err == nil {
				err = r.Validate(t.Context(), test.chain, attributes)
			}
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			expect.Equal(t, test.validates, validated, "validated")
		})
	}
}

// TestValidatorsGetDecodedObjects converts the objects to their version and to another one, which webhooks may match.
func TestValidatorsGetDecodedObjects(t *testing.T) {
	t.Parallel()
	another := kind
	another.Version = "v2"
	for _, kind := range []schema.GroupVersionKind{kind, another} {
		r, attributes := newUpdate(admission.Update)
		expect.NoError(t, r.Validate(t.Context(), plugin{validate: func(a admission.Attributes, o admission.ObjectInterfaces) error {
			versioned, err := admission.NewVersionedAttributes(a, kind, o)
			expect.NoError(t, err)
			for spec, converted := range map[int64]runtime.Object{1: versioned.VersionedOldObject.Object(), 2: versioned.VersionedObject.Object()} {
				want := map[string]any{
					"apiVersion": kind.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": spec,
				}
				expect.Equal(t, want, converted.(*unstructured.Unstructured).Object)
			}
			return nil
		}}, attributes))
	}
}

// TestInterfaces checks what plugins must not do with objects.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	r, attributes := newUpdate(admission.Update)
	object := attributes.GetObject().(*Object)
	expect.Equal(t, schema.GroupVersionKind{}, object.GetObjectKind().GroupVersionKind(), "kind")
	converter := r.interfaces().GetObjectConvertor()
	expect.Error(t, converter.Convert(&unstructured.Unstructured{}, &unstructured.Unstructured{}, nil), "only objects of the request")
	expect.Error(t, converter.Convert(object, &metav1.PartialObjectMetadata{}, nil), "only objects of the request")
	_, err := converter.ConvertToVersion(object, kind.GroupVersion())
	expect.Error(t, err, "only objects of the request")
	_, _, err = converter.ConvertFieldLabel(kind, "metadata.name", "a")
	expect.Error(t, err, "only objects of the request")
	if r.interfaces().GetEquivalentResourceMapper() == nil {
		t.Error("webhooks cannot match other versions")
	}
}

func TestObject(t *testing.T) {
	t.Parallel()
	r, attributes := newUpdate(admission.Update)
	object := attributes.GetObject().(*Object)
	copied := object.DeepCopyObject().(*Object)
	copied.SetName("b")
	expect.Equal(t, "a", object.GetName(), "name of the original")
	for range 2 {
		decoded, err := object.Decode()
		expect.NoError(t, err)
		expect.Equal(t, any(int64(2)), decoded.Object["spec"])
		decoded.Object["spec"] = "changed"
	}
	_, err := r.Object(&metav1.ObjectMeta{}, []byte("{")).Decode()
	expect.Error(t, err, "decode an object for admission: ")
}

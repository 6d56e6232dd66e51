// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package undecoded passes custom resources to admission as JSON of which only the metadata is decoded. Validating webhooks
// and policies that match a request get a decoded copy. Those that may change the object only mark the request, which has
// to be admitted again with a decoded object.
package undecoded

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/unstructuredscheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
)

// Object is an object of a Request. It has no kind: upstream would take it for a decoded object of that kind.
type Object struct {
	*metav1.ObjectMeta
	request *Request
	json    []byte
}

var (
	_ runtime.Object = &Object{}
	_ metav1.Object  = &Object{}
)

// GetObjectKind implements runtime.Object.
func (*Object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	copied := *o
	copied.ObjectMeta = o.DeepCopy()
	return &copied
}

// MarkMutating marks the request of the object, which a plugin may change.
func (o *Object) MarkMutating() { o.request.mutates.Store(true) }

// Decode returns the decoded object, which the caller may change.
func (o *Object) Decode() (*unstructured.Unstructured, error) {
	decoded := &unstructured.Unstructured{}
	return decoded, o.decodeInto(decoded)
}

func (o *Object) decodeInto(out *unstructured.Unstructured) error {
	if err := utiljson.Unmarshal(o.json, &out.Object); err != nil {
		return fmt.Errorf("decode an object for admission: %w", err)
	}
	out.SetResourceVersion(o.ResourceVersion) // a result is stored without
	return nil
}

// Request is a request to admit a write of one object.
type Request struct {
	mapper   runtime.EquivalentResourceMapper
	mutating atomic.Bool
	mutates  atomic.Bool
}

// NewRequest returns a Request. The mapper knows all versions of the resource.
func NewRequest(mapper runtime.EquivalentResourceMapper) *Request { return &Request{mapper: mapper} }

// Object returns an object with its JSON and its decoded metadata.
func (r *Request) Object(metadata *metav1.ObjectMeta, json []byte) *Object {
	return &Object{ObjectMeta: metadata, request: r, json: json}
}

// ErrMutates is returned by Admit for requests that have to be admitted with a decoded object.
var ErrMutates = errors.New("a plugin, policy or webhook may change the object")

// Admit runs the plugins that change objects. Attributes have Objects.
func (r *Request) Admit(ctx context.Context, chain admission.Interface, attributes admission.Attributes) error {
	mutating, ok := chain.(admission.MutationInterface)
	if !ok || !mutating.Handles(attributes.GetOperation()) {
		return nil
	}
	r.mutating.Store(true)
	defer r.mutating.Store(false)
	err := mutating.Admit(ctx, attributes, r.interfaces())
	if r.mutates.Load() {
		return ErrMutates // also if a failure is ignored, as the policy of a webhook may say
	}
	return err
}

// Validate runs the plugins that validate objects. Attributes have Objects.
func (r *Request) Validate(ctx context.Context, chain admission.Interface, attributes admission.Attributes) error {
	if validating, ok := chain.(admission.ValidationInterface); ok && validating.Handles(attributes.GetOperation()) {
		return validating.Validate(ctx, attributes, r.interfaces())
	}
	return nil
}

func (r *Request) interfaces() admission.ObjectInterfaces {
	return &admission.RuntimeObjectInterfaces{
		ObjectCreater: unstructuredscheme.NewUnstructuredCreator(), ObjectTyper: unstructuredscheme.NewUnstructuredObjectTyper(),
		ObjectDefaulter: unstructuredscheme.NewUnstructuredDefaulter(), ObjectConvertor: converter{r}, EquivalentResourceMapper: r.mapper,
	}
}

// converter decodes Objects.
type converter struct{ request *Request }

var errUnconverted = errors.New("only objects of the request are converted")

// Convert implements runtime.ObjectConvertor.
func (c converter) Convert(in, out, _ any) error {
	object, isObject := in.(*Object)
	decoded, isDecoded := out.(*unstructured.Unstructured)
	switch {
	case !isObject || !isDecoded:
		return errUnconverted
	case c.request.mutating.Load():
		object.MarkMutating()
		return ErrMutates
	}
	return object.decodeInto(decoded)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (converter) ConvertToVersion(runtime.Object, runtime.GroupVersioner) (runtime.Object, error) {
	return nil, errUnconverted
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (converter) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", errUnconverted
}

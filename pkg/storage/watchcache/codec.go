// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Form returns Objects as the form of a watch cache. inner is the codec of the custom resource.
func (r *Resource) Form(inner runtime.Codec) Form {
	return Form{NewObject: r.NewObject, NewList: r.NewList, Attrs: Attrs, CacheAttrs: CacheAttrs, Codec: codec{inner, r}, decode: decodeObject}
}

// decodeObject returns the decoded object, or another object as it is.
func decodeObject(kept runtime.Object) (runtime.Object, error) {
	if object, ok := kept.(*Object); ok {
		return object.Decode()
	}
	return kept, nil
}

type codec struct {
	runtime.Codec
	resource *Resource
}

// Decode implements runtime.Decoder. The Object has a resource version that is to be replaced: objects are stored
// without.
func (c codec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, ok := into.(*Object)
	if into != nil && !ok {
		return c.Codec.Decode(data, defaults, into)
	}
	if object == nil {
		object = &Object{}
	}
	if found := c.resource.fromStored(data); found != nil {
		object.record = found
		kind := c.resource.Kind
		return object, &kind, nil
	}
	// With no object to decode into, upstream would take one with a field `items` for a list.
	decoded, kind, err := c.Codec.Decode(data, defaults, c.resource.newDecoded())
	if err != nil {
		return nil, kind, err
	}
	custom, ok := decoded.(*unstructured.Unstructured)
	if !ok {
		return nil, kind, fmt.Errorf("decode %s: got a %T", c.resource.Kind.Kind, decoded)
	}
	custom.SetResourceVersion(placeholder)
	object.record, err = c.resource.encode(custom, spareBytes)
	return object, kind, err
}

// Encode implements runtime.Encoder.
func (c codec) Encode(obj runtime.Object, w io.Writer) error {
	if object, ok := obj.(*Object); ok {
		decoded, err := object.Decode()
		if err != nil {
			return err
		}
		return c.Codec.Encode(decoded, w)
	}
	return c.Codec.Encode(obj, w)
}

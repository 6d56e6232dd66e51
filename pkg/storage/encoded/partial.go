// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Projection returns an object or list of which only a part is decoded. It returns other objects
// as they are.
type Projection func(runtime.Object) (runtime.Object, error)

// Metadata is a Projection from which upstream makes PartialObjectMetadata.
func Metadata(obj runtime.Object) (runtime.Object, error) {
	switch typed := obj.(type) {
	case *Object:
		return &metadata{typed}, nil
	case *List:
		list := &metadataList{TypeMeta: typed.TypeMeta, ListMeta: typed.ListMeta, Items: make([]metadata, len(typed.Items))}
		for i := range typed.Items {
			list.Items[i] = metadata{&typed.Items[i]}
		}
		return list, nil
	}
	return obj, nil
}

// Decoded is a Projection of which upstream makes tables with whole objects.
func Decoded(obj runtime.Object) (runtime.Object, error) {
	switch typed := obj.(type) {
	case *Object:
		return typed.Decode()
	case *List:
		list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, len(typed.Items))}
		list.SetResourceVersion(typed.ResourceVersion)
		list.SetContinue(typed.Continue)
		list.SetRemainingItemCount(typed.RemainingItemCount)
		for i := range typed.Items {
			if err := typed.Items[i].decodeInto(&list.Items[i]); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return obj, nil
}

// Watch projects the objects of a watch. What all watches of an event share is projected when it
// is encoded, which is once for all.
func (p Projection) Watch(events watch.Interface) watch.Interface {
	project := func(obj runtime.Object) runtime.Object {
		projected, err := p(obj)
		if err != nil {
			utilruntime.HandleError(err)
			projected, _ = Metadata(obj)
		}
		return projected
	}
	return MapEvents(events, func(obj runtime.Object) runtime.Object {
		if event, ok := obj.(runtime.CacheableObject); ok {
			return shared{obj, event, project}
		}
		return project(obj)
	})
}

// metadata is an object of which only the metadata is used.
type metadata struct{ object *Object }

var _ metav1.ObjectMetaAccessor = &metadata{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (m *metadata) GetObjectMeta() metav1.Object { return m.object.objectMeta() }

// GetObjectKind implements runtime.Object.
func (m *metadata) GetObjectKind() schema.ObjectKind { return m.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (m *metadata) DeepCopyObject() runtime.Object {
	return &metadata{m.object.DeepCopyObject().(*Object)}
}

type metadataList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []metadata `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *metadataList) DeepCopyObject() runtime.Object {
	copied := &metadataList{TypeMeta: l.TypeMeta, Items: append([]metadata(nil), l.Items...)}
	l.DeepCopyInto(&copied.ListMeta)
	return copied
}

// shared is an event's object that all watches share.
type shared struct {
	runtime.Object
	event   runtime.CacheableObject
	project func(runtime.Object) runtime.Object
}

// CacheEncode implements runtime.CacheableObject.
func (s shared) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	return s.event.CacheEncode(id, func(obj runtime.Object, w io.Writer) error { return encode(s.project(obj), w) }, w)
}

// GetObject implements runtime.CacheableObject.
func (s shared) GetObject() runtime.Object { return s.project(s.event.GetObject()) }

var _ metav1.ObjectMetaAccessor = shared{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (s shared) GetObjectMeta() metav1.Object {
	accessor, _ := s.event.(metav1.Object)
	return accessor
}

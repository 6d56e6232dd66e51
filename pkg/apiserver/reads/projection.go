// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// projection decodes a part of an object, or of the objects of a list. It returns other objects as they are.
type projection func(runtime.Object) (runtime.Object, error)

// project returns a projection of each object by one.
func project[T any, P interface {
	*T
	runtime.Object
}](one func(*watchcache.Object) (T, error)) projection {
	return func(obj runtime.Object) (runtime.Object, error) {
		switch typed := obj.(type) {
		case *watchcache.Object:
			projected, err := one(typed)
			return P(&projected), err
		case *watchcache.List:
			list := &projectedList[T]{TypeMeta: typed.TypeMeta, ListMeta: typed.ListMeta, Items: make([]T, len(typed.Items))}
			for i := range typed.Items {
				var err error
				if list.Items[i], err = one(&typed.Items[i]); err != nil {
					return nil, err
				}
			}
			return list, nil
		}
		return obj, nil
	}
}

// Upstream makes PartialObjectMetadata from withMetadata, and tables with whole objects from decoded.
var (
	withMetadata = project(func(object *watchcache.Object) (metadata, error) { return metadata{object}, nil })
	decoded      = project(func(object *watchcache.Object) (unstructured.Unstructured, error) {
		whole, err := object.Decode()
		if err != nil {
			return unstructured.Unstructured{}, err
		}
		return *whole, nil
	})
)

// watch projects the objects of a watch. An object that cannot be decoded has only its metadata.
func (p projection) watch(events watch.Interface) watch.Interface {
	return watchcache.Project(events, func(obj runtime.Object) runtime.Object {
		projected, err := p(obj)
		if err != nil {
			utilruntime.HandleError(err)
			projected, _ = withMetadata(obj)
		}
		return projected
	})
}

// metadata is an object whose metadata alone is used.
type metadata struct{ object *watchcache.Object }

var _ metav1.ObjectMetaAccessor = &metadata{}

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (m *metadata) GetObjectMeta() metav1.Object { return m.object.DecodeMetadata() }

// GetObjectKind implements runtime.Object.
func (m *metadata) GetObjectKind() schema.ObjectKind { return m.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (m *metadata) DeepCopyObject() runtime.Object {
	return &metadata{m.object.DeepCopyObject().(*watchcache.Object)}
}

// projectedList is a list of projected objects.
type projectedList[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *projectedList[T]) DeepCopyObject() runtime.Object {
	copied := &projectedList[T]{TypeMeta: l.TypeMeta, Items: slices.Clone(l.Items)}
	l.DeepCopyInto(&copied.ListMeta)
	return copied
}

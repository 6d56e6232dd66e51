// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package reads

import (
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

// withMetadata is a projection from which upstream makes PartialObjectMetadata.
func withMetadata(obj runtime.Object) (runtime.Object, error) {
	switch typed := obj.(type) {
	case *watchcache.Object:
		return &metadata{typed}, nil
	case *watchcache.List:
		list := &metadataList{TypeMeta: typed.TypeMeta, ListMeta: typed.ListMeta, Items: make([]metadata, len(typed.Items))}
		for i := range typed.Items {
			list.Items[i] = metadata{&typed.Items[i]}
		}
		return list, nil
	}
	return obj, nil
}

// decoded is a projection from which upstream makes tables with whole objects.
func decoded(obj runtime.Object) (runtime.Object, error) {
	switch typed := obj.(type) {
	case *watchcache.Object:
		return typed.Decode()
	case *watchcache.List:
		list := &unstructured.UnstructuredList{Items: make([]unstructured.Unstructured, len(typed.Items))}
		list.SetResourceVersion(typed.ResourceVersion)
		list.SetContinue(typed.Continue)
		list.SetRemainingItemCount(typed.RemainingItemCount)
		for i := range typed.Items {
			object, err := typed.Items[i].Decode()
			if err != nil {
				return nil, err
			}
			list.Items[i] = *object
		}
		return list, nil
	}
	return obj, nil
}

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

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Project replaces the objects of a watch. What all watches of an event share is projected when it
// is encoded, which is once for all.
func Project(events watch.Interface, project func(runtime.Object) runtime.Object) watch.Interface {
	return MapEvents(events, func(obj runtime.Object) runtime.Object {
		if event, ok := obj.(runtime.CacheableObject); ok {
			return shared{obj, event, project}
		}
		return project(obj)
	})
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

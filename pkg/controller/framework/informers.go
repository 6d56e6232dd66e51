// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Source is an informer and a controller's handler for its events.
type Source struct {
	// Name is the plural of the objects, for errors.
	Name     string
	Informer cache.SharedIndexInformer
	Handler  cache.ResourceEventHandler
}

// Handler handles the events of objects of type T. A deleted object is the last one known.
type Handler[T any] struct {
	Added   func(object T)
	Updated func(before, after T)
	Deleted func(object T)
}

// Every returns a handler of all events that only needs the current object.
func Every[T any](handle func(object T)) Handler[T] {
	return Handler[T]{Added: handle, Updated: func(_, after T) { handle(after) }, Deleted: handle}
}

// OnAdd implements cache.ResourceEventHandler.
func (h Handler[T]) OnAdd(obj any, _ bool) {
	if object, ok := obj.(T); ok && h.Added != nil {
		h.Added(object)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (h Handler[T]) OnUpdate(old, obj any) {
	before, ok := old.(T)
	if after, is := obj.(T); ok && is && h.Updated != nil {
		h.Updated(before, after)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h Handler[T]) OnDelete(obj any) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	if object, ok := obj.(T); ok && h.Deleted != nil {
		h.Deleted(object)
	}
}

// Watches are the handlers of a controller, on informers that may outlive it.
type Watches struct {
	synced []cache.DoneChecker
	remove []func()
}

// Watch adds the handler of each source to its informer.
func (w *Watches) Watch(sources ...Source) error {
	for _, source := range sources {
		registration, err := source.Informer.AddEventHandler(source.Handler)
		if err != nil {
			w.Unwatch()
			return fmt.Errorf("watch %s: %w", source.Name, err)
		}
		w.WaitFor(registration.HasSyncedChecker())
		// It fails only if the informer has stopped.
		w.remove = append(w.remove, func() { _ = source.Informer.RemoveEventHandler(registration) })
	}
	return nil
}

// WaitFor makes Wait wait for more caches.
func (w *Watches) WaitFor(caches ...cache.DoneChecker) { w.synced = append(w.synced, caches...) }

// Wait returns true when the handlers have received the initial lists, and false when ctx
// is done.
func (w *Watches) Wait(ctx context.Context) bool {
	// Every start waits, so this is logged at V(2) only.
	return cache.WaitFor(klog.NewContext(ctx, klog.FromContext(ctx).V(2)), "caches", w.synced...)
}

// Unwatch removes the handlers.
func (w *Watches) Unwatch() {
	for _, remove := range w.remove {
		remove()
	}
	w.remove = nil
}

// AddWhere queues the names of the objects in an informer's cache for which is returns true.
func AddWhere[T metav1.Object](q interface{ Add(name string) }, informer cache.SharedIndexInformer, is func(T) bool) {
	for _, obj := range informer.GetStore().List() {
		if object, ok := obj.(T); ok && is(object) {
			q.Add(object.GetName())
		}
	}
}

// IgnoreNotFound returns nil and no error for an object that does not exist.
func IgnoreNotFound[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// Pointers returns pointers to the items of a list.
func Pointers[T any](items []T) []*T {
	all := make([]*T, 0, len(items))
	for i := range items {
		all = append(all, &items[i])
	}
	return all
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package metadatainformers

import (
	"fmt"
	"iter"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// store holds the objects of one resource. Only its reflector writes to it, so handlers
// are called in the reflector's order.
type store struct {
	resource Resource
	handlers []Handler
	// synced is called after every Replace.
	synced func()

	mu      sync.RWMutex
	objects map[types.NamespacedName]*Object
	counts  map[string]int
}

var _ cache.TransformingStore = &store{}

func newStore(resource Resource, handlers []Handler, synced func()) *store {
	return &store{
		resource: resource,
		handlers: handlers,
		synced:   synced,
		objects:  map[types.NamespacedName]*Object{},
		counts:   map[string]int{},
	}
}

// Transformer makes the reflector strip objects before it collects a list.
func (s *store) Transformer() cache.TransformFunc { return strip }

// strip removes most of the metadata.
func strip(obj any) (any, error) {
	if object, ok := obj.(*metav1.PartialObjectMetadata); ok {
		object.TypeMeta = metav1.TypeMeta{}
		object.ManagedFields, object.Annotations, object.Labels = nil, nil, nil
	}
	return obj, nil
}

// Add implements cache.ReflectorStore.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *store) Update(obj any) error {
	object, err := s.object(obj)
	if err != nil {
		return err
	}
	s.put(object)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(obj any) error {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	object, err := s.object(obj)
	if err != nil {
		return err
	}
	s.remove(object.key())
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *store) Replace(list []any, _ string) error {
	there := make(map[types.NamespacedName]struct{}, len(list))
	for i, obj := range list {
		object, err := s.object(obj)
		if err != nil {
			return err
		}
		list[i] = nil
		there[object.key()] = struct{}{}
		s.put(object)
	}
	for key := range s.all() {
		if _, found := there[key]; !found {
			s.remove(key)
		}
	}
	s.synced()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

func (s *store) object(obj any) (*Object, error) {
	partial, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("%s: got a %T in place of metadata", s.resource.GroupResource(), obj)
	}
	return NewObject(partial), nil
}

// put stores an object and notifies handlers. A different UID under the same name is a
// deletion and a creation.
func (s *store) put(after *Object) {
	key := after.key()
	before := s.objects[key]
	if before != nil && before.UID != after.UID {
		s.remove(key)
		before = nil
	}
	if before != nil && before.equal(after) {
		return
	}
	s.mu.Lock()
	s.objects[key] = after
	if before == nil {
		s.counts[after.Namespace]++
	}
	s.mu.Unlock()
	for _, handler := range s.handlers {
		if before == nil {
			handler.Added(s.resource, after)
		} else {
			handler.Updated(s.resource, before, after)
		}
	}
}

func (s *store) remove(key types.NamespacedName) {
	before := s.objects[key]
	if before == nil {
		return
	}
	s.mu.Lock()
	delete(s.objects, key)
	if s.counts[key.Namespace]--; s.counts[key.Namespace] == 0 {
		delete(s.counts, key.Namespace)
	}
	s.mu.Unlock()
	for _, handler := range s.handlers {
		handler.Deleted(s.resource, before)
	}
}

// notifySynced notifies handlers that they received all objects.
func (s *store) notifySynced() {
	for _, handler := range s.handlers {
		handler.Synced(s.resource)
	}
}

// empty deletes all objects. The reflector has ended by then.
func (s *store) empty() {
	for key := range s.all() {
		s.remove(key)
	}
}

// drop makes handlers drop the resource. The reflector has ended by then.
func (s *store) drop() {
	for _, handler := range s.handlers {
		handler.Dropped(s.resource, s.values())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects)
	clear(s.counts)
}

// all iterates without lock, for the writer.
func (s *store) all() iter.Seq2[types.NamespacedName, *Object] {
	return func(yield func(types.NamespacedName, *Object) bool) {
		for key, object := range s.objects {
			if !yield(key, object) {
				return
			}
		}
	}
}

// values iterates without lock, for the writer.
func (s *store) values() iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for _, object := range s.objects {
			if !yield(object) {
				return
			}
		}
	}
}

func (s *store) get(namespace, name string) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects[types.NamespacedName{Namespace: namespace, Name: name}]
}

// find returns the object with a name and UID in any namespace.
func (s *store) find(name string, uid types.UID) *Object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for namespace := range s.counts {
		if object := s.objects[types.NamespacedName{Namespace: namespace, Name: name}]; object != nil && object.UID == uid {
			return object
		}
	}
	return nil
}

func (s *store) count() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

func (o *Object) key() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
}

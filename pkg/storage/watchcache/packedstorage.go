// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/util/workqueue"
)

// Storage returns storage of decoded objects whose watch cache has Packed ones. Everything that
// the cache cannot answer goes to etcd.
func (t *Packing) Storage(etcd, cached storage.Interface) storage.Interface {
	s := &unpacking{writing{Interface: etcd, cached: cached}, t}
	s.current = s.lookUp
	return s
}

type unpacking struct {
	writing
	typed *Packing
}

// Get implements storage.Interface.
func (s *unpacking) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if options.ResourceVersion == "" {
		return s.Interface.Get(ctx, key, options, out)
	}
	found := &Packed{}
	if err := s.cached.Get(ctx, key, options, found); err != nil {
		return err
	}
	return found.unpack(out)
}

// GetList implements storage.Interface.
func (s *unpacking) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	items, err := meta.GetItemsPtr(out)
	if err != nil {
		return fmt.Errorf("list into a %T: %w", out, err)
	}
	found := &PackedList{}
	options.Predicate.GetAttrs = PackedAttrs
	if err := s.cached.GetList(ctx, key, options, found); err != nil {
		return err
	}
	slice := reflect.ValueOf(items).Elem()
	slice.Set(reflect.MakeSlice(slice.Type(), len(found.Items), len(found.Items)))
	unpacked := make([]error, len(found.Items))
	workqueue.ParallelizeUntil(ctx, unpackers, len(found.Items), func(i int) {
		object := s.typed.newObject()
		if unpacked[i] = found.Items[i].unpack(object); unpacked[i] == nil {
			slice.Index(i).Set(reflect.ValueOf(object).Elem())
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, err := range unpacked {
		if err != nil {
			return err
		}
	}
	list, err := meta.ListAccessor(out)
	if err != nil {
		return fmt.Errorf("list into a %T: %w", out, err)
	}
	list.SetResourceVersion(found.ResourceVersion)
	list.SetContinue(found.Continue)
	list.SetRemainingItemCount(found.RemainingItemCount)
	return nil
}

// unpackers is the number of objects of a list that are decoded at the same time, as upstream's
// storage does for watches.
const unpackers = 10

// Watch implements storage.Interface.
func (s *unpacking) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	options.Predicate.GetAttrs = PackedAttrs
	events, err := s.cached.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	return Project(events, func(obj runtime.Object) runtime.Object {
		object, err := s.unpacked(obj)
		if err != nil {
			utilruntime.HandleError(err)
			return obj
		}
		return object
	}), nil
}

// unpacked returns the decoded object of an event, or another object as it is.
func (s *unpacking) unpacked(obj runtime.Object) (runtime.Object, error) {
	found, ok := obj.(*Packed)
	if !ok {
		return obj, nil
	}
	object := s.typed.newObject()
	if err := found.unpack(object); err != nil {
		return nil, err
	}
	return object, nil
}

// lookUp returns the object that the watch cache has, or nil.
func (s *unpacking) lookUp(ctx context.Context, key string) runtime.Object {
	found := &Packed{}
	if s.cached.ReadinessCheck() != nil || s.cached.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, found) != nil {
		return nil
	}
	object, err := s.unpacked(found)
	if err != nil {
		return nil
	}
	return object
}

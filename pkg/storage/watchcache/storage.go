// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Storage returns storage of decoded objects whose watch cache has Objects: reads that the
// cache may answer are decoded, everything else goes to etcd.
func Storage(etcd, cached storage.Interface) storage.Interface {
	s := &decoding{writing{Interface: etcd, cached: cached}}
	s.current = s.decoded
	return s
}

type decoding struct{ writing }

// writing passes what the watch cache has of an object to etcd's storage. Upstream's watch cache
// does so as well, which saves a read of etcd before a write.
type writing struct {
	storage.Interface
	cached storage.Interface
	// current returns the decoded object that the watch cache has, or nil.
	current func(ctx context.Context, key string) runtime.Object
}

// Get implements storage.Interface.
func (s *decoding) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if options.ResourceVersion == "" {
		return s.Interface.Get(ctx, key, options, out)
	}
	var object Object
	if err := s.cached.Get(ctx, key, options, &object); err != nil {
		return err
	}
	return object.decodeInto(out)
}

func (o *Object) decodeInto(out runtime.Object) error {
	decoded, err := o.Decode()
	if err != nil {
		return err
	}
	into, ok := out.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("decode into a %T: only unstructured objects are supported", out)
	}
	*into = *decoded
	return nil
}

// GetList implements storage.Interface.
func (s *decoding) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	into, ok := out.(*unstructured.UnstructuredList)
	if !ok {
		return fmt.Errorf("list into a %T: only unstructured lists are supported", out)
	}
	var list List
	options.Predicate.GetAttrs = Attrs
	if err := s.cached.GetList(ctx, key, options, &list); err != nil {
		return err
	}
	into.Items = make([]unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		if err := list.Items[i].decodeInto(&into.Items[i]); err != nil {
			return err
		}
	}
	into.SetResourceVersion(list.ResourceVersion)
	into.SetContinue(list.Continue)
	into.SetRemainingItemCount(list.RemainingItemCount)
	return nil
}

// Watch implements storage.Interface.
func (s *decoding) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	options.Predicate.GetAttrs = Attrs
	events, err := s.cached.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	return MapEvents(events, decodeEvent), nil
}

// decodeEvent returns the decoded object of an event, or another object as it is.
func decodeEvent(obj runtime.Object) runtime.Object {
	if shared, ok := obj.(runtime.CacheableObject); ok {
		obj = shared.GetObject()
	}
	object, ok := obj.(*Object)
	if !ok {
		return obj
	}
	decoded, err := object.Decode()
	if err != nil {
		return &unstructured.Unstructured{}
	}
	return decoded
}

// GuaranteedUpdate implements storage.Interface.
func (s *writing) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	growStack()
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, s.current(ctx, key))
}

// Delete implements storage.Interface.
func (s *writing) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, options storage.DeleteOptions,
) error {
	return s.Interface.Delete(ctx, key, out, preconditions, validate, s.current(ctx, key), options)
}

// decoded returns the object that the watch cache has, or nil.
func (s *decoding) decoded(ctx context.Context, key string) runtime.Object {
	object := lookUp(ctx, s.cached, key)
	if object == nil {
		return nil
	}
	decoded, err := object.Decode()
	if err != nil {
		return nil
	}
	return decoded
}

// ReadinessCheck implements storage.Interface.
func (s *writing) ReadinessCheck() error { return s.cached.ReadinessCheck() }

// EnableResourceSizeEstimation implements storage.Interface. Stats are those of the cache.
func (s *writing) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	return s.cached.EnableResourceSizeEstimation(keys)
}

// Stats implements storage.Interface.
func (s *writing) Stats(ctx context.Context) (storage.Stats, error) { return s.cached.Stats(ctx) }

// CompactRevision implements storage.Interface.
func (s *writing) CompactRevision() int64 { return s.cached.CompactRevision() }

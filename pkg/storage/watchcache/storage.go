// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package watchcache

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/util/workqueue"

	"github.com/annex-dev/annex/pkg/stack"
)

// Form is the form in which a watch cache keeps the objects of a resource, which are not decoded: Objects or Packed.
type Form struct {
	// NewObject and NewList return an empty kept object, and an empty list of kept objects.
	NewObject, NewList func() runtime.Object
	// Attrs returns the labels and fields of a kept object, CacheAttrs those that the watch cache selects by.
	Attrs, CacheAttrs storage.AttrFunc
	// Codec is the storage codec of kept objects.
	Codec runtime.Codec

	decode func(kept runtime.Object) (runtime.Object, error)
}

// Storage returns storage of decoded objects. cached is their watch cache, which keeps them in a form: reads that it
// may answer are decoded, everything else goes to etcd.
func (f Form) Storage(etcd, cached storage.Interface) storage.Interface {
	return &decoding{Interface: etcd, form: f, cached: cached}
}

type decoding struct {
	storage.Interface
	form   Form
	cached storage.Interface
}

// Get implements storage.Interface.
func (s *decoding) Get(ctx context.Context, key string, options storage.GetOptions, out runtime.Object) error {
	if options.ResourceVersion == "" {
		return s.Interface.Get(ctx, key, options, out)
	}
	kept := s.form.NewObject()
	if err := s.cached.Get(ctx, key, options, kept); err != nil {
		return err
	}
	return s.decodeInto(kept, reflect.ValueOf(out).Elem())
}

func (s *decoding) decodeInto(kept runtime.Object, out reflect.Value) error {
	decoded, err := s.form.decode(kept)
	if err != nil {
		return err
	}
	value := reflect.ValueOf(decoded).Elem()
	if value.Type() != out.Type() {
		return fmt.Errorf("decode a %s into a %s", value.Type(), out.Type())
	}
	out.Set(value)
	return nil
}

// decoders is the number of objects of a list that are decoded at the same time, as upstream's
// storage does for watches.
const decoders = 10

// GetList implements storage.Interface.
func (s *decoding) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	list := s.form.NewList()
	options.Predicate.GetAttrs = s.form.Attrs
	if err := s.cached.GetList(ctx, key, options, list); err != nil {
		return err
	}
	kept, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list cached objects: %w", err)
	}
	items, err := meta.GetItemsPtr(out)
	if err != nil {
		return fmt.Errorf("list into a %T: %w", out, err)
	}
	slice := reflect.ValueOf(items).Elem()
	slice.Set(reflect.MakeSlice(slice.Type(), len(kept), len(kept)))
	failed := make([]error, len(kept)+1)
	workqueue.ParallelizeUntil(ctx, decoders, len(kept), func(i int) {
		failed[i] = s.decodeInto(kept[i], slice.Index(i))
	})
	failed[len(kept)] = ctx.Err()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return copyListMeta(list, out)
}

func copyListMeta(from, to runtime.Object) error {
	list, err := meta.ListAccessor(from)
	if err != nil {
		return fmt.Errorf("list a %T: %w", from, err)
	}
	out, err := meta.ListAccessor(to)
	if err != nil {
		return fmt.Errorf("list into a %T: %w", to, err)
	}
	out.SetResourceVersion(list.GetResourceVersion())
	out.SetContinue(list.GetContinue())
	out.SetRemainingItemCount(list.GetRemainingItemCount())
	return nil
}

// Watch implements storage.Interface.
func (s *decoding) Watch(ctx context.Context, key string, options storage.ListOptions) (watch.Interface, error) {
	options.Predicate.GetAttrs = s.form.Attrs
	events, err := s.cached.Watch(ctx, key, options)
	if err != nil {
		return nil, err
	}
	return Project(events, func(obj runtime.Object) runtime.Object {
		decoded, err := s.form.decode(obj)
		if err != nil {
			utilruntime.HandleError(err)
			return obj
		}
		return decoded
	}), nil
}

// current returns the decoded object that the watch cache has, or nil. Upstream's watch cache passes that to etcd's
// storage as well, which saves a read of etcd before a write.
func (s *decoding) current(ctx context.Context, key string) runtime.Object {
	kept := s.form.NewObject()
	if s.cached.ReadinessCheck() != nil || s.cached.Get(ctx, key, storage.GetOptions{ResourceVersion: "0"}, kept) != nil {
		return nil
	}
	decoded, err := s.form.decode(kept)
	if err != nil {
		return nil
	}
	return decoded
}

// GuaranteedUpdate implements storage.Interface.
func (s *decoding) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, _ runtime.Object,
) error {
	stack.Grow()
	return s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, s.current(ctx, key))
}

// Delete implements storage.Interface.
func (s *decoding) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, _ runtime.Object, options storage.DeleteOptions,
) error {
	return s.Interface.Delete(ctx, key, out, preconditions, validate, s.current(ctx, key), options)
}

// ReadinessCheck implements storage.Interface.
func (s *decoding) ReadinessCheck() error { return s.cached.ReadinessCheck() }

// EnableResourceSizeEstimation implements storage.Interface.
func (s *decoding) EnableResourceSizeEstimation(keys storage.KeysFunc) error {
	return s.cached.EnableResourceSizeEstimation(keys)
}

// Stats implements storage.Interface.
func (s *decoding) Stats(ctx context.Context) (storage.Stats, error) { return s.cached.Stats(ctx) }

// CompactRevision implements storage.Interface.
func (s *decoding) CompactRevision() int64 { return s.cached.CompactRevision() }

// Endpoint is the storage of a served version of a custom resource.
type Endpoint struct {
	// Definition is the CustomResourceDefinition that the storage was created for.
	Definition *apiextensionsv1.CustomResourceDefinition
	Resource   *Resource
	// Storage reads Objects, and writes Stored ones.
	Storage storage.Interface
	// Prefix begins all keys.
	Prefix string
}

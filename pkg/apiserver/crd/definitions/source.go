// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/annex-dev/annex/pkg/storage/encoded"
)

// source lists and watches outlines, in this process: a request would decode and encode each
// definition twice.
type source struct {
	packed  storage.Interface
	key     string
	outline func(*encoded.Packed) (*definition, error)
}

var _ interface {
	cache.ListerWatcher
	cache.ListerWatcherWithContext
} = &source{}

var resource = apiextensionsv1.Resource("customresourcedefinitions")

// IsWatchListSemanticsUnSupported makes the informer list: that is as cheap.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	found := &encoded.PackedList{}
	if err := s.packed.GetList(ctx, s.key, storageOptions(options), found); err != nil {
		return nil, fmt.Errorf("list definitions: %w", storeerr.InterpretListError(err, resource))
	}
	// The items are pointers, which the informer does not copy: they identify the schemas.
	list := &metainternalversion.List{ListMeta: found.ListMeta, Items: make([]runtime.Object, len(found.Items))}
	failed := make([]error, len(found.Items)+1)
	workqueue.ParallelizeUntil(ctx, goruntime.GOMAXPROCS(0), len(found.Items), func(i int) {
		list.Items[i], failed[i] = s.outline(&found.Items[i])
	})
	failed[len(found.Items)] = ctx.Err()
	return list, errors.Join(failed...)
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := s.packed.Watch(ctx, s.key, storageOptions(options))
	if err != nil {
		return nil, storeerr.InterpretWatchError(err, resource, "")
	}
	return encoded.MapEvents(events, func(obj runtime.Object) runtime.Object {
		if shared, ok := obj.(runtime.CacheableObject); ok {
			obj = shared.GetObject()
		}
		packed, ok := obj.(*encoded.Packed)
		if !ok {
			return obj
		}
		if packed.IsBookmark() {
			return &definition{ObjectMeta: packed.ObjectMeta}
		}
		outline, err := s.outline(packed)
		if err != nil {
			// The informer lists again.
			return &apierrors.NewInternalError(err).ErrStatus
		}
		return outline
	}), nil
}

func storageOptions(options metav1.ListOptions) storage.ListOptions {
	return storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, Recursive: true,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), GetAttrs: encoded.PackedAttrs,
			Limit: options.Limit, Continue: options.Continue, AllowWatchBookmarks: options.AllowWatchBookmarks,
		},
	}
}

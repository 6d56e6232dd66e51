// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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

	"github.com/annex-dev/annex/pkg/storage/watchcache"
)

// source lists and watches outlines, in this process: a request would decode and encode each
// definition twice.
type source struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes the informer list: that is as cheap.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

type outlineFunc func(*watchcache.Packed) (*definition, error)

func newSource(packed storage.Interface, key string, outline outlineFunc) source {
	return source{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return listOutlines(ctx, packed, key, options, outline)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return watchOutlines(ctx, packed, key, options, outline)
		},
	}}
}

var resource = apiextensionsv1.Resource("customresourcedefinitions")

func listOutlines(ctx context.Context, packed storage.Interface, key string, options metav1.ListOptions, outline outlineFunc) (runtime.Object, error) {
	found := &watchcache.PackedList{}
	if err := packed.GetList(ctx, key, storageOptions(options), found); err != nil {
		return nil, fmt.Errorf("list definitions: %w", storeerr.InterpretListError(err, resource))
	}
	// The items are pointers, which the informer does not copy: they identify the schemas.
	list := &metainternalversion.List{ListMeta: found.ListMeta, Items: make([]runtime.Object, len(found.Items))}
	failed := make([]error, len(found.Items)+1)
	workqueue.ParallelizeUntil(ctx, goruntime.GOMAXPROCS(0), len(found.Items), func(i int) {
		list.Items[i], failed[i] = outline(&found.Items[i])
	})
	failed[len(found.Items)] = ctx.Err()
	return list, errors.Join(failed...)
}

func watchOutlines(ctx context.Context, packed storage.Interface, key string, options metav1.ListOptions, outline outlineFunc) (watch.Interface, error) {
	events, err := packed.Watch(ctx, key, storageOptions(options))
	if err != nil {
		return nil, storeerr.InterpretWatchError(err, resource, "")
	}
	return watchcache.Forward(events, func(event watch.Event) (watch.Event, bool) {
		if shared, ok := event.Object.(runtime.CacheableObject); ok {
			event.Object = shared.GetObject()
		}
		found, ok := event.Object.(*watchcache.Packed)
		switch {
		case !ok: // an error
		case found.IsBookmark():
			event.Object = &definition{ObjectMeta: found.ObjectMeta}
		default:
			crd, err := outline(found)
			if err != nil {
				return watchcache.ErrorEvent(err), true // the informer lists again
			}
			event.Object = crd
		}
		return event, true
	}), nil
}

func storageOptions(options metav1.ListOptions) storage.ListOptions {
	return storage.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch, Recursive: true,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), GetAttrs: watchcache.PackedAttrs,
			Limit: options.Limit, Continue: options.Continue, AllowWatchBookmarks: options.AllowWatchBookmarks,
		},
	}
}

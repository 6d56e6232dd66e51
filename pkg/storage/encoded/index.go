// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package encoded

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	toolscache "k8s.io/client-go/tools/cache"
)

// Indexers returns the index functions of a watch cache: one for each selectable field.
func (r *Resource) Indexers() toolscache.Indexers {
	indexers := toolscache.Indexers{}
	for _, field := range r.Selectable {
		indexers[storage.FieldIndex(field)] = func(obj any) ([]string, error) {
			object, ok := obj.(*Object)
			if !ok || object.record == nil || object.decoded != nil {
				return nil, nil
			}
			return []string{object.fields[field]}, nil
		}
	}
	return indexers
}

// UseIndexes wraps a watch cache with Indexers: a list whose selector requires a value reads only
// the objects that have it. Lists with a limit do without, because the watch cache returns a
// continue token if there are more objects, whether these are selected or not.
func (r *Resource) UseIndexes(cached storage.Interface) storage.Interface {
	if len(r.Selectable) == 0 {
		return cached
	}
	return &indexed{cached, r.Selectable}
}

type indexed struct {
	storage.Interface
	fields []string
}

// GetList implements storage.Interface.
func (s *indexed) GetList(ctx context.Context, key string, options storage.ListOptions, out runtime.Object) error {
	if options.Predicate.Limit == 0 && options.Predicate.Field != nil {
		options.Predicate.IndexFields = s.fields
	}
	return s.Interface.GetList(ctx, key, options, out)
}

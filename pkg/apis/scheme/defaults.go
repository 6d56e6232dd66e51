// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// addDefaults registers the defaults of a kind and of its list.
func addDefaults[T runtime.Object](scheme *runtime.Scheme, object T, list runtime.Object, setDefaults func(T)) {
	scheme.AddTypeDefaultingFunc(object, func(obj any) { setDefaults(obj.(T)) })
	scheme.AddTypeDefaultingFunc(list, func(obj any) {
		// It fails only for a type that is no list.
		_ = meta.EachListItem(obj.(runtime.Object), func(item runtime.Object) error {
			setDefaults(item.(T))
			return nil
		})
	})
}

// setDefault sets a pointer that is nil, and preserves an explicit zero.
func setDefault[T any](value **T, otherwise T) {
	if *value == nil {
		*value = new(otherwise)
	}
}

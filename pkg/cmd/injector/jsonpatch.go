// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchDepth reaches annotations, and fields of the spec.
const patchDepth = 1

// escape escapes a field in a JSON pointer.
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// diff appends the operations that change an object from before to after. Lists are replaced as a
// whole, and so are fields deeper than depth: paths repeat the keys on their way.
func diff(operations []operation, path string, before, after map[string]any, depth int) []operation {
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[name]; !kept {
			operations = append(operations, operation{Op: "remove", Path: path + "/" + escape.Replace(name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		at, value := path+"/"+escape.Replace(name), after[name]
		old, existed := before[name]
		oldObject, wasObject := old.(map[string]any)
		object, isObject := value.(map[string]any)
		switch {
		case !existed:
			operations = append(operations, operation{Op: "add", Path: at, Value: value})
		case wasObject && isObject && depth > 0:
			operations = diff(operations, at, oldObject, object, depth-1)
		case !reflect.DeepEqual(old, value):
			operations = append(operations, operation{Op: "replace", Path: at, Value: value})
		}
	}
	return operations
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// mutants returns the object with one of its fields different, for each field except
// its kind and its metadata, and some other values of each.
func mutants(base object) map[string]object {
	all := map[string]object{}
	for key, value := range base {
		if key != "apiVersion" && key != "kind" && key != "metadata" {
			mutate(key, value, func(name string, value any) {
				mutant := maps.Clone(base)
				set(mutant, key, value)
				all[name] = mutant
			})
		}
	}
	return all
}

// removed is the value of a field that is not there.
type removed struct{}

func set(in object, key string, value any) {
	if value == (removed{}) {
		delete(in, key)
	} else {
		in[key] = value
	}
}

// mutate yields other values in place of one, named by their path.
func mutate(path string, value any, yield func(name string, value any)) {
	yield(path+" removed", removed{})
	switch value := value.(type) {
	case object:
		yield(path+" empty", object{})
		for key, child := range value {
			mutate(path+"."+key, child, func(name string, child any) {
				mutant := maps.Clone(value)
				set(mutant, key, child)
				yield(name, mutant)
			})
		}
	case []any:
		yield(path+" empty", []any{})
		for i, child := range value {
			element := fmt.Sprintf("%s[%d]", path, i)
			yield(element+" twice", append(slices.Clone(value), child))
			mutate(element, child, func(name string, child any) {
				mutant := slices.Clone(value)
				if child == (removed{}) {
					mutant = slices.Delete(mutant, i, i+1)
				} else {
					mutant[i] = child
				}
				yield(name, mutant)
			})
		}
	case string:
		yield(path+" empty", "")
		yield(path+" wrong", "Not valid!")
		yield(path+" long", strings.Repeat("a", 300))
	case float64:
		yield(path+" negative", -1)
		yield(path+" zero", 0)
		yield(path+" large", 1<<31-1)
	case bool:
		yield(path+" inverted", !value)
	}
}

// mergePatch applies a JSON merge patch.
func mergePatch(base, patch any) object {
	merged, _ := mergeValue(base, patch).(object)
	return merged
}

func mergeValue(base, patch any) any {
	changes, ok := patch.(object)
	if !ok {
		return patch
	}
	into, _ := base.(object)
	into = maps.Clone(into)
	if into == nil {
		into = object{}
	}
	for key, value := range changes {
		if value == nil {
			delete(into, key)
		} else {
			into[key] = mergeValue(into[key], value)
		}
	}
	return into
}

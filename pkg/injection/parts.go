// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// parts are the injected items of one pod template.
type parts struct {
	containers, initContainers, volumes []any
	// These are keyed by container.
	volumeMounts, env map[containerKey][]any
}

// take takes the parts of a record out of the pod template.
func (l location) take(r *record) parts {
	taken := parts{
		containers:     takeItems(l.pod, l.containers, nameKey, r.Containers),
		initContainers: takeItems(l.pod, initContainersField, nameKey, r.InitContainers),
		volumes:        takeItems(l.pod, volumesField, nameKey, r.Volumes),
		volumeMounts:   map[containerKey][]any{}, env: map[containerKey][]any{},
	}
	l.eachContainer(func(key containerKey, container map[string]any) {
		taken.volumeMounts[key] = takeItems(container, volumeMountsField, mountPathKey, r.VolumeMounts[key.name])
		taken.env[key] = takeItems(container, envField, nameKey, r.Env[key.name])
	})
	return taken
}

// takeItems removes the items with these names from a list, and the list if no other is left.
func takeItems(object map[string]any, list, key string, names nameSet) []any {
	items, _ := object[list].([]any)
	var taken, left []any
	for _, item := range items {
		if _, recorded := names[nameOf(item, key)]; recorded {
			taken = append(taken, item)
		} else {
			left = append(left, item)
		}
	}
	switch {
	case len(taken) == 0:
	case len(left) == 0:
		delete(object, list)
	default:
		object[list] = left
	}
	return taken
}

// place adds parts to the pod template. Init containers come first, because containers may depend
// on them, and init containers of the object too.
func (l location) place(p parts) {
	addItems(l.pod, l.containers, p.containers, false)
	addItems(l.pod, initContainersField, p.initContainers, true)
	addItems(l.pod, volumesField, p.volumes, false)
	injected := sets.New[string]()
	for _, container := range slices.Concat(p.containers, p.initContainers) {
		injected.Insert(nameOf(container, nameKey))
	}
	l.eachContainer(func(key containerKey, container map[string]any) {
		if !injected.Has(key.name) {
			addItems(container, volumeMountsField, p.volumeMounts[key], false)
			addItems(container, envField, p.env[key], false)
		}
	})
}

func addItems(object map[string]any, list string, items []any, first bool) {
	if len(items) == 0 {
		return
	}
	own, _ := object[list].([]any)
	added := runtime.DeepCopyJSONValue(items).([]any)
	if first {
		object[list] = slices.Concat(added, own)
	} else {
		object[list] = slices.Concat(own, added)
	}
}

// or returns the parts merged with others, in the order of others. If both have a part of the same name, it
// takes the part of p.
func (p parts) or(others parts) parts {
	return parts{
		containers:     mergeItems(p.containers, others.containers, nameKey),
		initContainers: mergeItems(p.initContainers, others.initContainers, nameKey),
		volumes:        mergeItems(p.volumes, others.volumes, nameKey),
		volumeMounts:   mergePerContainer(p.volumeMounts, others.volumeMounts, mountPathKey),
		env:            mergePerContainer(p.env, others.env, nameKey),
	}
}

func mergeItems(preferred, others []any, key string) []any {
	var merged []any
	first, present := map[string]any{}, sets.New[string]()
	for _, item := range slices.Backward(preferred) {
		first[nameOf(item, key)] = item
	}
	for _, item := range others {
		name := nameOf(item, key)
		present.Insert(name)
		if other, found := first[name]; found {
			item = other
		}
		merged = append(merged, item)
	}
	for _, item := range preferred {
		if !present.Has(nameOf(item, key)) {
			merged = append(merged, item)
		}
	}
	return merged
}

func mergePerContainer(preferred, others map[containerKey][]any, key string) map[containerKey][]any {
	merged := map[containerKey][]any{}
	for container := range preferred {
		merged[container] = mergeItems(preferred[container], others[container], key)
	}
	for container := range others {
		merged[container] = mergeItems(preferred[container], others[container], key)
	}
	return merged
}

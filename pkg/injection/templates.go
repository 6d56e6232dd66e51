// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/annex-dev/annex/pkg/apis/hosting/injectionpath"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// The fields that identify an item of a list in a pod template.
const (
	nameKey      = "name"
	mountPathKey = "mountPath"
)

// The lists of a pod template.
const (
	containersField     = "containers"
	initContainersField = "initContainers"
	volumesField        = "volumes"
	volumeMountsField   = "volumeMounts"
	envField            = "env"
)

// layout is where a type of pod template has its containers.
type layout struct {
	// pod are the fields from the path to the object that has the lists.
	pod []string
	// containers is the list that containers are added to.
	containers string
	// single are fields that are a container, not a list of them.
	single []string
}

var layouts = map[v1alpha1.InjectionTemplateType]layout{
	v1alpha1.InjectionPodTemplate:  {pod: []string{"spec"}, containers: containersField},
	v1alpha1.InjectionPodSpec:      {containers: containersField},
	v1alpha1.InjectionArgoTemplate: {containers: "sidecars", single: []string{"container", "script"}},
}

// location is a pod template in an object.
type location struct {
	layout
	// path has indexes and keys instead of wildcards.
	path string
	// value is what is at the path, and pod the object in it that has the lists; nil if there is
	// none.
	value, pod map[string]any
}

// locate returns the pod templates of an object, each once.
func locate(object map[string]any, templates []v1alpha1.InjectionTemplate) []location {
	var found []location
	seen := map[uintptr]bool{}
	for _, template := range templates {
		steps, err := injectionpath.Parse(template.Path)
		if err != nil {
			continue // validation refuses it
		}
		walk(object, steps, "", func(value map[string]any, path string) {
			// Two patterns may match the same template.
			if pointer := reflect.ValueOf(value).Pointer(); !seen[pointer] {
				seen[pointer] = true
				at := location{layout: layouts[template.Type], path: path, value: value}
				at.pod = at.find()
				found = append(found, at)
			}
		})
	}
	return found
}

// walk calls visit for each object at the end of the steps.
func walk(from any, steps []injectionpath.Step, path string, visit func(value map[string]any, path string)) {
	object, ok := from.(map[string]any)
	if !ok {
		return
	}
	if len(steps) == 0 {
		visit(object, path)
		return
	}
	step, rest := steps[0], steps[1:]
	if path != "" {
		path += "."
	}
	path += step.Field
	switch next := object[step.Field].(type) {
	case []any:
		for i := range next {
			if step.Each {
				walk(next[i], rest, fmt.Sprintf("%s[%d]", path, i), visit)
			}
		}
	case map[string]any:
		if !step.Each {
			walk(next, rest, path, visit)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(next)) {
			walk(next[key], rest, fmt.Sprintf("%s[%s]", path, key), visit)
		}
	}
}

// find returns the object with the lists. A pod template without a container of its own is not
// changed: the first container that it gets would become the main one.
func (l location) find() map[string]any {
	pod := l.value
	for _, name := range l.layout.pod {
		pod, _ = pod[name].(map[string]any)
	}
	if len(l.single) == 0 {
		if own, _ := pod[l.containers].([]any); len(own) == 0 {
			return nil
		}
		return pod
	}
	for _, name := range l.single {
		if _, ok := pod[name].(map[string]any); ok {
			return pod
		}
	}
	return nil
}

// field is a field of the pod, for errors.
func (l location) field(name string) string {
	path := l.path
	for _, step := range append(slices.Clone(l.layout.pod), name) {
		path += "." + step
	}
	return path
}

// eachContainer calls visit for the containers and init containers of the pod.
func (l location) eachContainer(visit func(name string, container map[string]any)) {
	for _, list := range []string{l.containers, initContainersField} {
		items, _ := l.pod[list].([]any)
		for _, item := range items {
			if container, ok := item.(map[string]any); ok {
				visit(nameOf(item, nameKey), container)
			}
		}
	}
	for _, name := range l.single {
		if container, ok := l.pod[name].(map[string]any); ok {
			visit(name, container)
		}
	}
}

// nameOf is the name of an item of a list, empty if it has none.
func nameOf(item any, key string) string {
	fields, _ := item.(map[string]any)
	name, _ := fields[key].(string)
	return name
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

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

// layout locates the containers in a type of pod template.
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
	path *path
	// value is the value at the path, and pod the object in it that has the lists; nil if there
	// is none.
	value, pod map[string]any
}

// path is a place in an object: a field of the parent, or an item of it. Keys of maps may be long, so
// paths share their beginnings, and are text in errors only.
type path struct {
	parent *path
	name   string
	// index is the index of an item of a list, or isField or isKey.
	index int
}

const (
	isField = -1
	isKey   = -2
)

// String is the path as text.
func (p *path) String() string {
	var names []string
	for ; p != nil; p = p.parent {
		switch p.index {
		case isField:
			names = append(names, p.name, ".")
		case isKey:
			names = append(names, "["+p.name+"]")
		default:
			names = append(names, fmt.Sprintf("[%d]", p.index))
		}
	}
	slices.Reverse(names)
	return strings.TrimPrefix(strings.Join(names, ""), ".")
}

// finder finds pod templates in the objects of one write.
type finder struct {
	// paths has each path once, so that the paths of two objects are comparable.
	paths map[path]*path
	// done returns an error once the finder must stop. Its results are then incomplete.
	done func() error
}

func (f finder) path(parent *path, name string, index int) *path {
	key := path{parent, name, index}
	if f.paths[key] == nil {
		f.paths[key] = &key
	}
	return f.paths[key]
}

// locate returns the pod templates of an object, each once.
func (f finder) locate(object map[string]any, templates []v1alpha1.InjectionTemplate) []location {
	var found []location
	seen := map[uintptr]bool{}
	for _, template := range templates {
		steps, err := injectionpath.Parse(template.Path)
		if err != nil {
			continue // validation refuses it
		}
		f.walk(object, steps, nil, func(value map[string]any, at *path) {
			// Two patterns may match the same template.
			if pointer := reflect.ValueOf(value).Pointer(); !seen[pointer] {
				seen[pointer] = true
				template := location{layout: layouts[template.Type], path: at, value: value}
				template.pod = template.find()
				found = append(found, template)
			}
		})
	}
	return found
}

// walk calls visit for each object at the end of the steps.
func (f finder) walk(from any, steps []injectionpath.Step, at *path, visit func(value map[string]any, at *path)) {
	object, ok := from.(map[string]any)
	if !ok {
		return
	}
	if len(steps) == 0 {
		visit(object, at)
		return
	}
	step, rest := steps[0], steps[1:]
	at = f.path(at, step.Field, isField)
	switch next := object[step.Field].(type) {
	case []any:
		for i := 0; step.Each && i < len(next) && f.done() == nil; i++ {
			f.walk(next[i], rest, f.path(at, "", i), visit)
		}
	case map[string]any:
		if !step.Each {
			f.walk(next, rest, at, visit)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(next)) {
			if f.done() != nil {
				return
			}
			f.walk(next[key], rest, f.path(at, key, isKey), visit)
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
	return strings.Join(slices.Concat([]string{l.path.String()}, l.layout.pod, []string{name}), ".")
}

// containerKey identifies a container in a pod. Names may be missing, and the same in objects that are
// not validated as Pods.
type containerKey struct {
	name string
	// index counts the containers of the name.
	index int
}

// eachContainer calls visit for the containers and init containers of the pod.
func (l location) eachContainer(visit func(key containerKey, container map[string]any)) {
	seen := map[string]int{}
	one := func(name string, item any) {
		if container, ok := item.(map[string]any); ok {
			visit(containerKey{name, seen[name]}, container)
			seen[name]++
		}
	}
	for _, list := range []string{l.containers, initContainersField} {
		items, _ := l.pod[list].([]any)
		for _, item := range items {
			one(nameOf(item, nameKey), item)
		}
	}
	for _, name := range l.single {
		one(name, l.pod[name])
	}
}

// nameOf is the name of an item of a list, empty if it has none.
func nameOf(item any, key string) string {
	fields, _ := item.(map[string]any)
	name, _ := fields[key].(string)
	return name
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// IsInjected reports whether a profile was injected in an object, which may be nil.
func IsInjected(object map[string]any) bool {
	_, found := annotations(object)[v1alpha1.InjectedAnnotation]
	return found
}

// maxParts bounds what is added to one object. A small object can have very many pod templates.
const maxParts = 1 << 17

// maxConflicts bounds the refused names that an error lists.
const maxConflicts = 10

// Inject returns an object with the parts of the target. If the target is nil, it returns the object
// without the parts of an earlier target. stored is nil for a new object. Inject changes neither object.
func Inject(ctx context.Context, target *Target, object, stored map[string]any) (map[string]any, error) {
	injected, err := finder{paths: map[path]*path{}, done: ctx.Err}.inject(target, object, stored)
	if ended := ctx.Err(); ended != nil {
		return nil, fmt.Errorf("find the pod templates of an object: %w", ended)
	}
	return injected, err
}

func (f finder) inject(target *Target, object, stored map[string]any) (map[string]any, error) {
	current, err := readRecord(object)
	if err != nil {
		return nil, err
	}
	// The record of a stored object was checked when it was written.
	before, _ := readRecord(stored)
	if current == nil {
		current = before
	}
	if current == nil && target == nil {
		return object, nil
	}
	changed := runtime.DeepCopyJSON(object)
	present := f.take(changed, current)
	if stored != nil && !f.isChanged(target, changed, stored, current, before) {
		if before == nil {
			return object, nil
		}
		return f.restore(changed, stored, before, present)
	}
	return f.apply(target, changed, current, present)
}

// take takes the parts of a record out of an object. It returns them by the paths of the templates.
func (f finder) take(object map[string]any, r *record) map[*path]parts {
	taken := map[*path]parts{}
	if r == nil {
		return taken
	}
	for _, at := range f.locate(object, r.Templates) {
		if at.pod != nil && f.done() == nil {
			taken[at.path] = at.take(r)
		}
	}
	return taken
}

// isChanged reports whether pod templates without injected parts, or the answer to whether they are
// wanted, differ from the stored object's.
func (f finder) isChanged(target *Target, object, stored map[string]any, current, before *record) bool {
	if annotations(object)[v1alpha1.InjectAnnotation] != annotations(stored)[v1alpha1.InjectAnnotation] {
		return true
	}
	stored = runtime.DeepCopyJSON(stored)
	f.take(stored, before)
	var templates []v1alpha1.InjectionTemplate
	if current != nil {
		templates = current.Templates
	}
	if target != nil {
		templates = slices.Concat(templates, target.templates)
	}
	values := func(of map[string]any) map[*path]any {
		found := map[*path]any{}
		for _, at := range f.locate(of, templates) {
			found[at.path] = at.value
		}
		return found
	}
	return !equality.Semantic.DeepEqual(values(object), values(stored))
}

// restore puts back the parts that are present, and those that only the stored object has. Clients
// that replace lists, as `kubectl apply` does, do not remove what they do not know.
func (f finder) restore(object, stored map[string]any, before *record, present map[*path]parts) (map[string]any, error) {
	had := f.take(runtime.DeepCopyJSON(stored), before)
	for _, at := range f.locate(object, before.Templates) {
		if at.pod != nil {
			at.place(present[at.path].or(had[at.path]))
		}
	}
	return object, before.write(object)
}

// apply adds the parts of the target to an object without injected parts. Those that are present and
// of the same revision are kept as they are: a webhook may have changed them since.
func (f finder) apply(t *Target, object map[string]any, current *record, present map[*path]parts) (map[string]any, error) {
	if t == nil {
		var none *record
		return object, none.write(object)
	}
	var templates []location
	for _, at := range f.locate(object, t.templates) {
		if at.pod != nil && f.done() == nil {
			templates = append(templates, at)
		}
	}
	if err := t.conflicts(templates); err != nil {
		return nil, err
	}
	var written *record
	taken, containers := ownNames(templates)
	if added := len(templates)*(len(t.containers)+len(t.initContainers)+len(t.volumes)) + containers*(len(t.volumeMounts)+len(t.env)); added > maxParts {
		return nil, field.Forbidden(field.NewPath(templates[0].path.String()), fmt.Sprintf(
			"InjectionProfile %q would add %d parts to the object, at most %d are added: set the annotation %s: \"false\"", t.Profile, added, maxParts, v1alpha1.InjectAnnotation))
	}
	for _, at := range templates {
		added := t.parts(at, taken)
		if t.isRecorded(current) {
			added = present[at.path].or(added)
		}
		at.place(added)
		if written == nil {
			written = &record{Profile: t.Profile, Revision: t.revision, Templates: t.templates}
		}
		written.add(added)
	}
	return object, written.write(object)
}

// conflicts refuses a pod template that has a container or volume with the name of an injected one.
func (t *Target) conflicts(templates []location) error {
	var errs field.ErrorList
	refuse := func(at location, list string, i int, what, name string) {
		if len(errs) == maxConflicts {
			return
		}
		errs = append(errs, field.Invalid(field.NewPath(at.field(list)).Index(i).Child(nameKey), name, fmt.Sprintf(
			"InjectionProfile %q injects a %s of this name: rename yours, or set the annotation %s: \"false\"", t.Profile, what, v1alpha1.InjectAnnotation)))
	}
	names := func(items []any) sets.Set[string] {
		found := sets.New[string]()
		for _, item := range items {
			found.Insert(nameOf(item, nameKey))
		}
		return found
	}
	containers, volumes := names(slices.Concat(t.containers, t.initContainers)), names(t.volumes)
	for _, at := range templates {
		for _, list := range []string{at.containers, initContainersField, volumesField} {
			injected, what := containers, "container"
			if list == volumesField {
				injected, what = volumes, "volume"
			}
			own, _ := at.pod[list].([]any)
			for i, item := range own {
				if name := nameOf(item, nameKey); injected.Has(name) {
					refuse(at, list, i, what, name)
				}
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs.ToAggregate()
}

// names holds the mount paths and environment names of each container, keyed by container name.
type names struct{ volumeMounts, env map[string]sets.Set[string] }

// ownNames returns those that containers have themselves. Containers of the same name, in several
// pod templates, share them, so that a record by the name of the container is unambiguous. It also
// returns the number of containers.
func ownNames(templates []location) (own names, containers int) {
	own = names{map[string]sets.Set[string]{}, map[string]sets.Set[string]{}}
	for _, at := range templates {
		at.eachContainer(func(key containerKey, container map[string]any) {
			containers++
			if own.env[key.name] == nil {
				own.env[key.name], own.volumeMounts[key.name] = sets.New[string](), sets.New[string]()
			}
			collect(own.volumeMounts[key.name], container[volumeMountsField], mountPathKey)
			collect(own.env[key.name], container[envField], nameKey)
		})
	}
	return own, containers
}

func collect(into sets.Set[string], list any, key string) {
	items, _ := list.([]any)
	for _, item := range items {
		into.Insert(nameOf(item, key))
	}
}

// parts returns the parts of the target for a pod template.
func (t *Target) parts(at location, own names) parts {
	added := parts{
		containers: t.containers, initContainers: t.initContainers, volumes: t.volumes,
		volumeMounts: map[containerKey][]any{}, env: map[containerKey][]any{},
	}
	without := func(items []any, key string, taken sets.Set[string]) []any {
		return slices.DeleteFunc(slices.Clone(items), func(item any) bool { return taken.Has(nameOf(item, key)) })
	}
	at.eachContainer(func(key containerKey, _ map[string]any) {
		added.volumeMounts[key] = without(t.volumeMounts, mountPathKey, own.volumeMounts[key.name])
		added.env[key] = without(t.env, nameKey, own.env[key.name])
	})
	return added
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/hosting/injectionpath"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Fit returns why a target cannot be injected in the objects of a definition: paths that do not
// exist, and parts that the schema would prune or refuse. Errors name fields of the profile.
func (s *Schemas) Fit(target *Target) field.ErrorList {
	var errs field.ErrorList
	for _, version := range slices.Sorted(maps.Keys(s.versions)) {
		schema, path, name := s.versions[version], field.NewPath(target.field), fmt.Sprintf("%s, version %s,", s.resource, version)
		if schema.err != nil {
			errs = append(errs, field.Invalid(path.Child("resource"), s.resource, fmt.Sprintf("the schema of version %s is not structural: %v", version, schema.err)))
			continue
		}
		for i, template := range target.templates {
			errs = append(errs, fit(target, template, schema.structural, name, path.Child("templates").Index(i).Child("path"))...)
		}
	}
	return errs
}

// node is a place in a schema, nil where nothing is defined.
type node struct {
	*structuralschema.Structural
	// open is true where the schema keeps unknown fields, and defines none.
	open bool
}

// child returns the field of a node; false if it does not exist.
func (n node) child(name string) (node, bool) {
	if n.open {
		return n, true
	}
	if property, found := n.Properties[name]; found {
		return newNode(&property), true
	}
	if n.AdditionalProperties != nil && n.AdditionalProperties.Structural != nil {
		return newNode(n.AdditionalProperties.Structural), true
	}
	return node{open: true}, n.XPreserveUnknownFields
}

// each returns the items of a list or the values of a map.
func (n node) each() (node, bool) {
	switch {
	case n.open:
		return n, true
	case n.Items != nil:
		return newNode(n.Items), true
	case n.AdditionalProperties != nil && n.AdditionalProperties.Structural != nil:
		return newNode(n.AdditionalProperties.Structural), true
	}
	return node{open: true}, n.XPreserveUnknownFields
}

// newNode treats objects that keep unknown fields and define none as open.
func newNode(s *structuralschema.Structural) node {
	return node{s, s.XPreserveUnknownFields && len(s.Properties) == 0 && s.Items == nil && s.AdditionalProperties == nil}
}

func fit(target *Target, template v1alpha1.InjectionTemplate, root *structuralschema.Structural, version string, path *field.Path) field.ErrorList {
	missing := func(at string) field.ErrorList {
		return field.ErrorList{field.Invalid(path, template.Path, fmt.Sprintf("does not lead to a %s: the schema of %s has no %s", template.Type, version, at))}
	}
	steps, err := injectionpath.Parse(template.Path)
	if err != nil {
		return field.ErrorList{field.Invalid(path, template.Path, err.Error())}
	}
	at, walked := newNode(root), ""
	for _, step := range steps {
		walked = join(walked, step.Field)
		var found bool
		if at, found = at.child(step.Field); !found {
			return missing(walked)
		}
		if step.Each {
			if at, found = at.each(); !found {
				return missing(walked + "[*]")
			}
			walked += "[*]"
		} else if at.isList() {
			return missing(walked + " that is an object: it is a list")
		}
	}
	in := layouts[template.Type]
	for _, name := range in.pod {
		walked = join(walked, name)
		var found bool
		if at, found = at.child(name); !found {
			return missing(walked)
		}
	}
	return target.fitPod(at, in, walked, version, path)
}

func (n node) isList() bool { return n.Structural != nil && !n.open && n.Items != nil }

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}

// fitPod checks the lists that the target adds to.
func (t *Target) fitPod(pod node, in layout, walked, version string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	items := func(of node, walked, list string, injected []any, source string) (node, bool) {
		at, found := of.child(list)
		if found {
			at, found = at.each()
		}
		if !found {
			errs = append(errs, field.Invalid(path, walked, fmt.Sprintf("the schema of %s has no list %s there, for spec.%s", version, list, source)))
			return at, false
		}
		for i, part := range injected {
			errs = append(errs, fitPart(at, part, fmt.Sprintf("%s.%s[*]", walked, list), version, field.NewPath("spec", source).Index(i))...)
		}
		return at, true
	}
	containers, found := items(pod, walked, in.containers, t.containers, containersField)
	if len(t.initContainers) > 0 {
		items(pod, walked, initContainersField, t.initContainers, initContainersField)
	}
	if len(t.volumes) > 0 {
		items(pod, walked, volumesField, t.volumes, volumesField)
	}
	own := map[string]node{}
	if found && len(in.single) == 0 {
		own[fmt.Sprintf("%s.%s[*]", walked, in.containers)] = containers
	}
	for _, name := range in.single {
		if at, found := pod.child(name); found {
			own[join(walked, name)] = at
		} else {
			errs = append(errs, field.Invalid(path, walked, fmt.Sprintf("the schema of %s has no %s there", version, name)))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(own)) {
		if len(t.volumeMounts) > 0 {
			items(own[at], at, volumeMountsField, t.volumeMounts, volumeMountsField)
		}
		if len(t.env) > 0 {
			items(own[at], at, envField, t.env, envField)
		}
	}
	return errs
}

// fitPart checks that the schema keeps all fields of a part, and accepts their values.
func fitPart(items node, part any, at, version string, path *field.Path) field.ErrorList {
	if items.open {
		return nil
	}
	var errs field.ErrorList
	pruned := pruning.PruneWithOptions(runtime.DeepCopyJSONValue(part), items.Structural, false, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, name := range pruned {
		errs = append(errs, field.Forbidden(path.Child(name), fmt.Sprintf("the schema of %s does not have this field in %s, and would drop it", version, at)))
	}
	part = runtime.DeepCopyJSONValue(part)
	defaulting.Default(part, items.Structural)
	validator := validation.NewSchemaValidatorFromOpenAPI(items.ToKubeOpenAPI())
	for _, err := range validation.ValidateCustomResource(path, part, validator) {
		err.Detail = fmt.Sprintf("%s, by the schema of %s for %s", err.Detail, strings.TrimSuffix(version, ","), at)
		errs = append(errs, err)
	}
	return errs
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/hosting/injectionpath"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// record is the value of the annotation of an injected object.
type record struct {
	// Profile is the name of the profile, and Revision a hash of its parts.
	Profile  string `json:"profile"`
	Revision string `json:"revision"`
	// Templates are the paths where parts were injected.
	Templates []v1alpha1.InjectionTemplate `json:"templates"`
	// The names of the injected parts, of variables and mount paths by the container.
	Containers     nameSet            `json:"containers,omitempty"`
	InitContainers nameSet            `json:"initContainers,omitempty"`
	Volumes        nameSet            `json:"volumes,omitempty"`
	VolumeMounts   map[string]nameSet `json:"volumeMounts,omitempty"`
	Env            map[string]nameSet `json:"env,omitempty"`
}

// nameSet is a list of names in JSON.
type nameSet map[string]sets.Empty

// MarshalJSON implements json.Marshaler.
func (s nameSet) MarshalJSON() ([]byte, error) { return json.Marshal(slices.Sorted(maps.Keys(s))) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *nameSet) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	*s = nameSet(sets.New(names...))
	return nil
}

func annotations(object map[string]any) map[string]string {
	return (&unstructured.Unstructured{Object: object}).GetAnnotations()
}

// annotationPath is the field of an annotation, for errors.
func annotationPath(name string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(name)
}

// readRecord returns the record of an object, nil if it has none. Clients may write one, as when they
// copy an object: it has parts that they may remove as well. It is at most as large as all annotations of
// an object may be, and has no more templates than a target.
func readRecord(object map[string]any) (*record, *field.Error) {
	text, found := annotations(object)[v1alpha1.InjectedAnnotation]
	if !found {
		return nil, nil
	}
	if len(text) > apivalidation.TotalAnnotationSizeLimitB {
		return nil, field.TooLong(annotationPath(v1alpha1.InjectedAnnotation), "", apivalidation.TotalAnnotationSizeLimitB)
	}
	read := &record{}
	err := json.Unmarshal([]byte(text), read)
	if err == nil && len(read.Templates) > injectionpath.MaxTemplates {
		err = fmt.Errorf("has more than %d templates", injectionpath.MaxTemplates)
	}
	for _, template := range read.Templates {
		if _, known := layouts[template.Type]; err == nil && !known {
			err = fmt.Errorf("unknown type %q", template.Type)
		}
		if err == nil {
			_, err = injectionpath.Parse(template.Path)
		}
	}
	if err != nil {
		return nil, field.Invalid(annotationPath(v1alpha1.InjectedAnnotation), text, fmt.Sprintf("must be as annex writes it, or absent: %v", err))
	}
	return read, nil
}

// write sets the annotation to the record, or removes it if the record is nil.
func (r *record) write(object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	all := u.GetAnnotations()
	if r == nil {
		delete(all, v1alpha1.InjectedAnnotation)
	} else {
		text, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode the record of an injection: %w", err)
		}
		if all == nil {
			all = map[string]string{}
		}
		all[v1alpha1.InjectedAnnotation] = string(text)
	}
	u.SetAnnotations(all)
	return nil
}

// add adds what was placed in a pod template.
func (r *record) add(placed parts) {
	r.Containers = addNames(r.Containers, placed.containers, nameKey)
	r.InitContainers = addNames(r.InitContainers, placed.initContainers, nameKey)
	r.Volumes = addNames(r.Volumes, placed.volumes, nameKey)
	r.VolumeMounts = addPerContainer(r.VolumeMounts, placed.volumeMounts, mountPathKey)
	r.Env = addPerContainer(r.Env, placed.env, nameKey)
}

func addNames(names nameSet, items []any, key string) nameSet {
	for _, item := range items {
		if names == nil {
			names = nameSet{}
		}
		names[nameOf(item, key)] = sets.Empty{}
	}
	return names
}

func addPerContainer(names map[string]nameSet, items map[containerKey][]any, key string) map[string]nameSet {
	for container := range items {
		if len(items[container]) == 0 {
			continue
		}
		if names == nil {
			names = map[string]nameSet{}
		}
		names[container.name] = addNames(names[container.name], items[container], key)
	}
	return names
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Target is a profile, ready to be injected in the objects of one resource.
type Target struct {
	// Profile is the name of the profile.
	Profile string

	revision        string
	templates       []v1alpha1.InjectionTemplate
	mode            v1alpha1.InjectionMode
	objects, spaces labels.Selector
	containers      []any
	initContainers  []any
	volumes         []any
	volumeMounts    []any
	env             []any
	// field is the field of the target in the profile.
	field string
}

// revisionLength is the number of digits of a hash that identify the parts of a profile.
const revisionLength = 12

// NewTarget decodes the parts of a profile for one of its targets.
func NewTarget(profile *v1alpha1.InjectionProfile, index int) (*Target, error) {
	target := &Target{
		Profile: profile.Name, mode: profile.Spec.Mode, templates: profile.Spec.Targets[index].Templates,
		field: fmt.Sprintf("spec.targets[%d]", index),
	}
	var err error
	if target.objects, err = selector(profile.Spec.ObjectSelector); err != nil {
		return nil, fmt.Errorf("parse the objectSelector of injection profile %s: %w", profile.Name, err)
	}
	if target.spaces, err = selector(profile.Spec.NamespaceSelector); err != nil {
		return nil, fmt.Errorf("parse the namespaceSelector of injection profile %s: %w", profile.Name, err)
	}
	hash := sha256.New()
	for _, list := range []struct {
		name string
		from []runtime.RawExtension
		to   *[]any
	}{
		{containersField, profile.Spec.Containers, &target.containers},
		{initContainersField, profile.Spec.InitContainers, &target.initContainers},
		{volumesField, profile.Spec.Volumes, &target.volumes},
		{volumeMountsField, profile.Spec.VolumeMounts, &target.volumeMounts},
		{envField, profile.Spec.Env, &target.env},
	} {
		for i := range list.from {
			part := map[string]any{}
			if err := json.Unmarshal(list.from[i].Raw, &part); err != nil {
				return nil, fmt.Errorf("decode spec.%s[%d] of injection profile %s: %w", list.name, i, profile.Name, err)
			}
			*list.to = append(*list.to, part)
			fmt.Fprintf(hash, "%s %s\n", list.name, list.from[i].Raw)
		}
	}
	for _, template := range target.templates {
		fmt.Fprintf(hash, "%s %s\n", template.Type, template.Path)
	}
	target.revision = hex.EncodeToString(hash.Sum(nil))[:revisionLength]
	return target, nil
}

func selector(of *metav1.LabelSelector) (labels.Selector, error) {
	if of == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(of)
}

// selects reports whether an object is selected.
func (t *Target) selects(object Object, inject string) (bool, error) {
	switch {
	case t.mode == v1alpha1.InjectionOptIn && inject != "true":
		return false, nil
	case !t.objects.Matches(labels.Set(object.Labels)):
		return false, nil
	case object.Namespace == "" || t.spaces.Empty():
		return true, nil
	}
	of, err := object.NamespaceLabels()
	if err != nil {
		return false, fmt.Errorf("read the labels of namespace %s: %w", object.Namespace, err)
	}
	return t.spaces.Matches(labels.Set(of)), nil
}

// isRecorded reports whether a record is of the same parts at the same paths.
func (t *Target) isRecorded(r *record) bool {
	return r != nil && r.Profile == t.Profile && r.Revision == t.revision
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownerreferences bounds the owner references of objects: upstream compares those with
// the same UID in pairs, and repeats all of them in the error of each controller after the first.
package ownerreferences

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

const (
	// PluginName is the name in --enable-admission-plugins.
	PluginName = "OwnerReferencesLimit"

	// MaxReferences bounds the owner references of an object.
	MaxReferences = 500

	// fewControllers controllers are left to upstream's validation, which refuses a second
	// one with an error for each that repeats all references.
	fewControllers = 10
)

// Plugin refuses objects with too many owner references or controllers. It runs with the
// mutating plugins, before upstream compares and validates the references.
type Plugin struct {
	*admission.Handler
}

var _ admission.MutationInterface = &Plugin{}

// New returns the plugin.
func New() *Plugin {
	return &Plugin{admission.NewHandler(admission.Create, admission.Update)}
}

// Admit implements admission.MutationInterface. It changes nothing. An object that has too many
// references already may be changed, but not get more.
func (p *Plugin) Admit(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	references := of(attributes.GetObject())
	controllers := 0
	for i := range references {
		if controller := references[i].Controller; controller != nil && *controller {
			controllers++
		}
	}
	count := len(references)
	if count <= len(of(attributes.GetOldObject())) {
		count = 0
	}
	return Check(attributes.GetKind().GroupKind(), attributes.GetName(), count, controllers)
}

// Check returns the error of an object with too many owner references or controllers.
func Check(kind schema.GroupKind, name string, references, controllers int) error {
	path := field.NewPath("metadata", "ownerReferences")
	switch {
	case references > MaxReferences:
		return apierrors.NewInvalid(kind, name, field.ErrorList{field.TooMany(path, references, MaxReferences)})
	case controllers > fewControllers:
		return apierrors.NewInvalid(kind, name, field.ErrorList{
			field.Invalid(path, fmt.Sprintf("%d controllers", controllers), "only one reference can have controller set to true"),
		})
	default:
		return nil
	}
}

func of(object any) []metav1.OwnerReference {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return accessor.GetOwnerReferences()
}

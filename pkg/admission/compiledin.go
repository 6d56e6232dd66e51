// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

const compiledInName = "CompiledInGroups"

// compiledIn refuses CustomResourceDefinitions in groups that are compiled into annex: their objects
// could have the same keys as annex's own.
type compiledIn struct {
	*admission.Handler
	groups CompiledInGroups
}

var _ admission.ValidationInterface = &compiledIn{}

// newCompiledIn returns the plugin, which CompiledInGroups must initialize.
func newCompiledIn() *compiledIn {
	// The group is immutable, and existing definitions must be deletable.
	return &compiledIn{Handler: admission.NewHandler(admission.Create)}
}

// CompiledInGroups initializes the plugin of this name with the compiled-in groups.
type CompiledInGroups sets.Set[string]

var _ admission.PluginInitializer = CompiledInGroups{}

// Initialize implements admission.PluginInitializer.
func (g CompiledInGroups) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*compiledIn); ok {
		p.groups = g
	}
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *compiledIn) ValidateInitialization() error {
	if len(p.groups) == 0 {
		return errors.New("the compiled-in groups are missing")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *compiledIn) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	if attributes.GetResource().GroupResource() != apiextensions.Resource("customresourcedefinitions") {
		return nil
	}
	definition, ok := attributes.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("expected a CustomResourceDefinition, got %T", attributes.GetObject()))
	}
	if _, found := p.groups[definition.Spec.Group]; !found {
		return nil
	}
	return apierrors.NewInvalid(attributes.GetKind().GroupKind(), definition.Name, field.ErrorList{
		field.Forbidden(field.NewPath("spec", "group"), "the group is compiled into annex; define the resource in a group of its own"),
	})
}

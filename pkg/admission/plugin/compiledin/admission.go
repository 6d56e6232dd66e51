// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package compiledin refuses CustomResourceDefinitions in groups that annex serves
// itself: their objects could share keys with annex's own, and a group would be in
// discovery for two reasons.
package compiledin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
)

// PluginName is the name in --enable-admission-plugins.
const PluginName = "CompiledInGroups"

// Register makes the plugin known.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) { return New(), nil })
}

// Plugin refuses to define resources in some groups.
type Plugin struct {
	*admission.Handler
	groups Groups
}

var _ admission.ValidationInterface = &Plugin{}

// New returns the plugin, which Groups have to initialize.
func New() *Plugin {
	// A definition never changes its group, and those that exist have to be deleted.
	return &Plugin{Handler: admission.NewHandler(admission.Create)}
}

// Groups are those that are compiled in.
type Groups sets.Set[string]

var _ admission.PluginInitializer = Groups{}

// Initialize gives the plugin the groups.
func (g Groups) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.groups = g
	}
}

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if len(p.groups) == 0 {
		return errors.New("the groups that are compiled in are missing")
	}
	return nil
}

// Validate refuses a definition in one of the groups.
func (p *Plugin) Validate(_ context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
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

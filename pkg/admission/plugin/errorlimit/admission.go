// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package errorlimit refuses custom resources with very many errors. Upstream compares the errors of an
// object in pairs and joins their texts one by one, and does not end when the request does.
package errorlimit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/admission"

	"github.com/annex-dev/annex/pkg/apis/meta/validation"
)

const (
	// PluginName is the name in --enable-admission-plugins.
	PluginName = "ValidationErrorsLimit"

	// fewValues bounds the values of an object that is left to upstream: it has few errors.
	fewValues = 2000
)

// Definitions are the CRDs with schemas. They are known once the chain is built, after the plugins.
type Definitions struct {
	lister atomic.Pointer[crdlisters.CustomResourceDefinitionLister]
}

// Set sets the definitions.
func (d *Definitions) Set(lister crdlisters.CustomResourceDefinitionLister) { d.lister.Store(&lister) }

var _ admission.PluginInitializer = &Definitions{}

// Initialize implements admission.PluginInitializer.
func (d *Definitions) Initialize(plugin admission.Interface) {
	if p, ok := plugin.(*Plugin); ok {
		p.definitions = d
	}
}

// Plugin validates large objects until they have too many errors. It runs with the mutating plugins,
// before upstream validates objects.
type Plugin struct {
	*admission.Handler
	definitions *Definitions
}

var (
	_ admission.MutationInterface       = &Plugin{}
	_ admission.InitializationValidator = &Plugin{}
)

// New returns the plugin, which Definitions must initialize.
func New() *Plugin { return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update)} }

// ValidateInitialization implements admission.InitializationValidator.
func (p *Plugin) ValidateInitialization() error {
	if p.definitions == nil {
		return errors.New("the definitions are missing")
	}
	return nil
}

// Admit implements admission.MutationInterface. It changes nothing.
func (p *Plugin) Admit(ctx context.Context, attributes admission.Attributes, _ admission.ObjectInterfaces) error {
	object, ok := attributes.GetObject().(*unstructured.Unstructured)
	isStatus := attributes.GetSubresource() == "status"
	if !ok || attributes.GetSubresource() != "" && !isStatus || countValues(object.Object, fewValues) <= fewValues {
		return nil
	}
	definition, err := p.definition(attributes)
	if err != nil || definition == nil {
		return err
	}
	var old any
	if existing, ok := attributes.GetOldObject().(*unstructured.Unstructured); ok && existing != nil {
		old = existing.Object
	}
	v, err := newValidator(definition, attributes.GetKind().Version)
	if err != nil || v == nil {
		return err
	}
	if errs := v.validate(ctx, object, old, isStatus); len(errs) > validation.MaxErrors {
		return apierrors.NewInvalid(attributes.GetKind().GroupKind(), attributes.GetName(), validation.LimitErrors(errs))
	}
	return nil
}

// definition returns nil if the object has none: upstream's handler answers then.
func (p *Plugin) definition(attributes admission.Attributes) (*apiextensionsv1.CustomResourceDefinition, error) {
	lister, resource := p.definitions.lister.Load(), attributes.GetResource().GroupResource()
	if lister == nil {
		return nil, admission.NewForbidden(attributes, errors.New("not yet ready to handle request"))
	}
	definition, err := (*lister).Get(resource.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the definition of %s: %w", resource, err)
	}
	return definition, nil
}

// countValues stops when there are more than most.
func countValues(value any, most int) int {
	count := 1
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			if count += countValues(v, most-count); count > most {
				return count
			}
		}
	case []any:
		for _, v := range value {
			if count += countValues(v, most-count); count > most {
				return count
			}
		}
	}
	return count
}

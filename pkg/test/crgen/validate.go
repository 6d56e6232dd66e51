// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validator validates objects of one version of a CRD like a create in the API server: defaults,
// unknown fields, schema, list types and CEL rules.
type Validator struct {
	structural *structuralschema.Structural
	strategy   interface {
		Validate(ctx context.Context, obj runtime.Object) field.ErrorList
	}
}

// NewValidator prepares the validation of one version of crd.
func NewValidator(crd *apiextensionsv1.CustomResourceDefinition, version string) (*Validator, error) {
	properties, err := schemaOf(crd, version)
	if err != nil {
		return nil, err
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(properties, internal, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of %s %s: %w", crd.Name, version, err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("the schema of %s %s is not structural: %w", crd.Name, version, err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("compile the schema of %s %s: %w", crd.Name, version, err)
	}
	kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}
	namespaced := crd.Spec.Scope == apiextensionsv1.NamespaceScoped
	return &Validator{
		structural: structural,
		strategy:   customresource.NewStrategy(nil, namespaced, kind, validator, nil, structural, nil, nil, nil),
	}, nil
}

// Validate returns the errors of the API server for object, which it does not change.
func (v *Validator) Validate(ctx context.Context, object *unstructured.Unstructured) error {
	object = object.DeepCopy()
	defaulting.PruneNonNullableNullsWithoutDefaults(object.Object, v.structural)
	defaulting.Default(object.Object, v.structural)
	options := structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}
	if unknown := pruning.PruneWithOptions(object.Object, v.structural, true, options); len(unknown) > 0 {
		return fmt.Errorf("unknown fields: %v", unknown)
	}
	return v.strategy.Validate(ctx, object).ToAggregate()
}

func schemaOf(crd *apiextensionsv1.CustomResourceDefinition, version string) (*apiextensionsv1.JSONSchemaProps, error) {
	for _, candidate := range crd.Spec.Versions {
		if candidate.Name == version && candidate.Schema != nil && candidate.Schema.OpenAPIV3Schema != nil {
			return candidate.Schema.OpenAPIV3Schema, nil
		}
	}
	return nil, fmt.Errorf("%s has no schema for version %s", crd.Name, version)
}

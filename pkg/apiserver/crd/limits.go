// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

const (
	// maxVersions bounds the versions of a definition. Each takes an APIService, and some milliseconds in
	// each document and at the first request for an object, while others wait for theirs.
	maxVersions = 100
	// maxRules bounds the rules in the schemas of all versions. Upstream compiles each when a definition is
	// written, which takes a millisecond or more and does not end with the request, and again to serve it.
	maxRules = 5000
)

// Limit makes a store of definitions refuse those that take too long to check and to serve. What is
// stored may stay as it is.
func Limit(store *genericregistry.Store) {
	store.CreateStrategy, store.UpdateStrategy = limitedCreate{store.CreateStrategy}, limitedUpdate{store.UpdateStrategy}
}

type limitedCreate struct{ rest.RESTCreateStrategy }

// Validate implements rest.RESTCreateStrategy.
func (s limitedCreate) Validate(ctx context.Context, object runtime.Object) field.ErrorList {
	if errs := tooLarge(object.(*apiextensions.CustomResourceDefinition), &apiextensions.CustomResourceDefinition{}); len(errs) > 0 {
		return errs
	}
	return s.RESTCreateStrategy.Validate(ctx, object)
}

type limitedUpdate struct{ rest.RESTUpdateStrategy }

// ValidateUpdate implements rest.RESTUpdateStrategy.
func (s limitedUpdate) ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList {
	if errs := tooLarge(object.(*apiextensions.CustomResourceDefinition), old.(*apiextensions.CustomResourceDefinition)); len(errs) > 0 {
		return errs
	}
	return s.RESTUpdateStrategy.ValidateUpdate(ctx, object, old)
}

func tooLarge(definition, old *apiextensions.CustomResourceDefinition) field.ErrorList {
	path, versions := field.NewPath("spec", "versions"), len(definition.Spec.Versions)
	if versions > max(maxVersions, len(old.Spec.Versions)) {
		return field.ErrorList{field.TooMany(path, versions, maxVersions)}
	}
	if rules := rulesIn(definition); rules > maxRules && rules > rulesIn(old) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("the schemas of all versions have %d x-kubernetes-validations, the limit is %d", rules, maxRules))}
	}
	return nil
}

func rulesIn(definition *apiextensions.CustomResourceDefinition) (rules int) {
	for i := range definition.Spec.Versions {
		// There is an error only for unknown versions.
		schema, _ := apiextensions.GetSchemaForVersion(definition, definition.Spec.Versions[i].Name)
		if schema != nil && schema.OpenAPIV3Schema != nil {
			apiextensionsvalidation.SchemaHas(schema.OpenAPIV3Schema, func(s *apiextensions.JSONSchemaProps) bool {
				rules += len(s.XValidations)
				return false
			})
		}
	}
	return rules
}

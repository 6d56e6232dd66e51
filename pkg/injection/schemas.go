// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Schemas are the schemas of the served versions of a definition.
type Schemas struct {
	resource string
	versions map[string]*versionSchema
}

type versionSchema struct {
	// err is set, and nothing else, if the schema is not structural.
	err        error
	structural *structuralschema.Structural
	// validator validates whole objects. It is compiled when first needed.
	validator func() objectValidator
}

type objectValidator struct {
	schema validation.SchemaValidator
	rules  *cel.Validator
}

// NewSchemas converts the schemas of a definition.
func NewSchemas(crd *apiextensionsv1.CustomResourceDefinition) *Schemas {
	schemas := &Schemas{resource: crd.Name, versions: map[string]*versionSchema{}}
	for i := range crd.Spec.Versions {
		if version := &crd.Spec.Versions[i]; version.Served {
			schemas.versions[version.Name] = newVersionSchema(version, crd.Spec.PreserveUnknownFields)
		}
	}
	return schemas
}

func newVersionSchema(version *apiextensionsv1.CustomResourceDefinitionVersion, preserve bool) *versionSchema {
	structural := &structuralschema.Structural{}
	// Definitions from before apiextensions.k8s.io/v1 may have no schema, or no structural one.
	if version.Schema != nil && version.Schema.OpenAPIV3Schema != nil {
		internal := &apiextensions.JSONSchemaProps{}
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, internal, nil)
		if err == nil {
			structural, err = structuralschema.NewStructural(internal)
		}
		if err != nil {
			return &versionSchema{err: err}
		}
	} else {
		preserve = true
	}
	structural.XPreserveUnknownFields = structural.XPreserveUnknownFields || preserve
	return &versionSchema{structural: structural, validator: sync.OnceValue(func() objectValidator {
		return objectValidator{
			schema: validation.NewSchemaValidatorFromOpenAPI(structural.ToKubeOpenAPI()),
			rules:  cel.NewValidator(structural, true, celconfig.PerCallLimit),
		}
	})}
}

// validate is the validation of the definition, as the server does it after admission.
func (s *versionSchema) validate(ctx context.Context, object, stored map[string]any) field.ErrorList {
	validator := s.validator()
	object = runtime.DeepCopyJSON(object)
	defaulting.Default(object, s.structural)
	errs := validation.ValidateCustomResource(nil, object, validator.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(errs) > 0 || validator.rules == nil {
		return errs
	}
	var old any
	if stored != nil {
		old = stored
	}
	errs, _ = validator.rules.Validate(ctx, nil, s.structural, object, old, celconfig.RuntimeCELCostBudget)
	return errs
}

// Invalidates returns the reasons for which an object is invalid only because of what was injected.
// Objects that are invalid without it are left to the server's own validation.
func (s *Schemas) Invalidates(ctx context.Context, target *Target, version string, injected, object, stored map[string]any) field.ErrorList {
	schema := s.versions[version]
	if schema == nil || schema.err != nil || target == nil {
		return nil
	}
	errs := schema.validate(ctx, injected, stored)
	if len(errs) == 0 || len(schema.validate(ctx, object, stored)) > 0 {
		return nil
	}
	for _, err := range errs {
		err.Detail = fmt.Sprintf("%s (the object is valid without what InjectionProfile %q injects)", err.Detail, target.Profile)
	}
	return errs
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package errorlimit

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// manyValues bounds the values of an object whose rules only upstream evaluates: joining the texts of their
// errors takes long for more.
const manyValues = 20_000

// validator finds the errors of an object, and stops when it has too many. It may count errors that
// upstream ignores because the part of the object that has them does not change: in a list, it counts all
// if an item of the list changes.
type validator struct {
	namespaced  bool
	dropsStatus bool
	schema      *apiextensions.JSONSchemaProps
	structural  *structuralschema.Structural
	errs        field.ErrorList
}

// newValidator returns nil if the definition has no such version, or the version no schema.
func newValidator(definition *apiextensionsv1.CustomResourceDefinition, version string) (*validator, error) {
	found, err := apihelpers.GetSchemaForVersion(definition, version)
	if hasSchema := err == nil && found != nil && found.OpenAPIV3Schema != nil; !hasSchema {
		return nil, nil
	}
	v := &validator{namespaced: definition.Spec.Scope == apiextensionsv1.NamespaceScoped, schema: &apiextensions.JSONSchemaProps{}}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(found.OpenAPIV3Schema, v.schema, nil); err != nil {
		return nil, fmt.Errorf("convert the schema of %s: %w", definition.Name, err)
	}
	if v.structural, err = structuralschema.NewStructural(v.schema); err != nil {
		return nil, fmt.Errorf("read the schema of %s: %w", definition.Name, err)
	}
	subresources, err := apihelpers.GetSubresourcesForVersion(definition, version)
	v.dropsStatus = err == nil && subresources != nil && subresources.Status != nil
	return v, nil
}

func (v *validator) validate(ctx context.Context, object *unstructured.Unstructured, old any, isStatus bool) field.ErrorList {
	content := map[string]any{}
	for name, value := range object.Object {
		if name != "status" && !isStatus || name == "status" && (isStatus || !v.dropsStatus) {
			content[name] = value
		}
	}
	v.errs = apivalidation.ValidateObjectMetaAccessor(object, v.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	v.walk(nil, &node{schema: v.schema}, content, old)
	for _, validate := range []func() field.ErrorList{
		func() field.ErrorList { return objectmeta.Validate(ctx, nil, content, v.structural, false) },
		func() field.ErrorList { return listtype.ValidateListSetsAndMaps(nil, v.structural, content) },
		func() field.ErrorList {
			if countValues(content, manyValues) <= manyValues {
				return nil
			}
			rules := cel.NewValidator(v.structural, true, celconfig.PerCallLimit)
			if rules == nil {
				return nil
			}
			errs, _ := rules.Validate(ctx, nil, v.structural, content, old, celconfig.RuntimeCELCostBudget)
			return errs
		},
	} {
		if len(v.errs) > validation.MaxErrors {
			break
		}
		v.errs = append(v.errs, validate()...)
	}
	return v.errs
}

// walk validates a value, then the values in it.
func (v *validator) walk(path *field.Path, n *node, value, old any) {
	if n == nil || len(v.errs) > validation.MaxErrors || old != nil && reflect.DeepEqual(value, old) {
		return
	}
	v.errs = append(v.errs, n.validate(path, value)...)
	switch value := value.(type) {
	case map[string]any:
		before, _ := old.(map[string]any)
		for name, field := range value {
			v.walk(path.Child(name), n.field(name), field, before[name])
		}
	case []any:
		for i, item := range value {
			v.walk(path.Index(i), n.item(), item, nil)
		}
	}
}

// node is the schema of a value. It validates the value without the values in it, except for allOf, anyOf,
// oneOf and not.
type node struct {
	schema    *apiextensions.JSONSchemaProps
	validator schemavalidation.SchemaValidator
	// only is the type of the value if the schema says nothing else of it, except required fields.
	only   string
	fields map[string]*node
	items  *node
}

func (n *node) validate(path *field.Path, value any) field.ErrorList {
	if n.validator == nil {
		if err := n.compile(); err != nil {
			return field.ErrorList{field.InternalError(path, fmt.Errorf("read its schema: %w", err))}
		}
	}
	// Most values are valid here, and the validator takes long.
	switch value := value.(type) {
	case string:
		if n.only == "string" {
			return nil
		}
	case int64:
		if n.only == "integer" || n.only == "number" {
			return nil
		}
	case map[string]any:
		isMissing := func(name string) bool { return value[name] == nil }
		if n.only == "object" && !slices.ContainsFunc(n.schema.Required, isMissing) {
			return nil
		}
	}
	return schemavalidation.ValidateCustomResource(path, value, n.validator)
}

func (n *node) compile() (err error) {
	own := *n.schema
	own.Properties, own.AdditionalProperties, own.Items = nil, nil, nil
	n.fields = map[string]*node{}
	if n.validator, _, err = schemavalidation.NewSchemaValidator(&own); err != nil {
		return err
	}
	own.Description, own.Default, own.Required, own.XPreserveUnknownFields, own.XValidations = "", nil, nil, nil, nil
	if reflect.DeepEqual(own, apiextensions.JSONSchemaProps{Type: own.Type, Nullable: own.Nullable}) {
		n.only = own.Type
	}
	return nil
}

// field returns nil if the field has no schema.
func (n *node) field(name string) *node {
	key := name
	property, ok := n.schema.Properties[name]
	if !ok {
		if n.schema.AdditionalProperties == nil || n.schema.AdditionalProperties.Schema == nil {
			return nil
		}
		key, property = "", *n.schema.AdditionalProperties.Schema
	}
	if n.fields[key] == nil {
		n.fields[key] = &node{schema: &property}
	}
	return n.fields[key]
}

func (n *node) item() *node {
	if n.items == nil && n.schema.Items != nil && n.schema.Items.Schema != nil {
		n.items = &node{schema: n.schema.Items.Schema}
	}
	return n.items
}

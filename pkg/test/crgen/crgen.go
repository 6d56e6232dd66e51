// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crgen generates custom resources from the schema of a CRD, so that tests can use the
// kinds of other projects without manifests.
//
// Required fields, enumerations, bounds, patterns and formats are satisfied by construction.
// Upstream's validation, CEL rules included, decides which optional fields can be added. A table
// of overrides contains the fields that CEL rules require.
package crgen

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// growth is the number of levels at which optional fields are added, and attempts the number of
// fields that are tried: large schemas have thousands.
const (
	growth   = 3
	attempts = 48
)

// Pair is a small and a larger object of one kind, with the same name.
type Pair struct {
	// Minimal has only the required fields.
	Minimal *unstructured.Unstructured
	// Full has also optional fields, and the metadata of Minimal.
	Full *unstructured.Unstructured
}

// New returns valid objects of one version of a CRD. namespace is ignored for cluster-scoped
// kinds.
func New(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, version, namespace, name string) (*Pair, error) {
	properties, err := schemaOf(crd, version)
	if err != nil {
		return nil, err
	}
	validator, err := NewValidator(crd, version)
	if err != nil {
		return nil, err
	}
	minimal, err := build(crd, properties, version, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := validator.Validate(ctx, minimal); err != nil {
		return nil, fmt.Errorf("the smallest %s %s is not valid: %w", crd.Name, version, err)
	}

	full := minimal.DeepCopy()
	grower := &grower{object: full, left: attempts, valid: func() bool { return validator.Validate(ctx, full) == nil }}
	for _, section := range sections(properties) {
		part := properties.Properties[section]
		grower.grow(full.Object, section, &part, growth)
	}
	return &Pair{Minimal: minimal, Full: full}, nil
}

// sections returns the root fields that are specific to the kind, except status: with a status
// subresource a create drops it.
func sections(properties *apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for _, name := range sortedNames(properties.Properties) {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
		default:
			names = append(names, name)
		}
	}
	return names
}

func build(crd *apiextensionsv1.CustomResourceDefinition, properties *apiextensionsv1.JSONSchemaProps, version, namespace, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	for _, section := range sections(properties) {
		if section != "spec" && !slices.Contains(required(properties), section) {
			continue
		}
		part := properties.Properties[section]
		content, err := value(&part, section, 0)
		if err != nil {
			return nil, fmt.Errorf("create a %s %s: %w", crd.Name, version, err)
		}
		object.Object[section] = content
	}
	overlay(object.Object, overrides[crd.Spec.Names.Kind+"."+crd.Spec.Group])

	object.SetAPIVersion(crd.Spec.Group + "/" + version)
	object.SetKind(crd.Spec.Names.Kind)
	object.SetName(name)
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		object.SetNamespace(namespace)
	}
	return object, nil
}

// overlay merges over into object; nil removes a field.
func overlay(object, over map[string]any) {
	for name, replacement := range over {
		inner, isMap := replacement.(map[string]any)
		existing, hasMap := object[name].(map[string]any)
		switch {
		case replacement == nil:
			delete(object, name)
		case isMap && hasMap:
			overlay(existing, inner)
		case isMap:
			object[name] = runtime.DeepCopyJSON(inner)
		default:
			object[name] = runtime.DeepCopyJSONValue(replacement)
		}
	}
}

// grower adds optional fields to an object while it is valid.
type grower struct {
	object *unstructured.Unstructured
	left   int
	valid  func() bool
}

// grow adds a missing field to parent, then fields below it.
func (g *grower) grow(parent map[string]any, name string, schema *apiextensionsv1.JSONSchemaProps, levels int) {
	if _, ok := parent[name]; !ok && !g.add(parent, name, schema) {
		return
	}
	if levels == 0 {
		return
	}
	child := parent[name]
	if items, ok := child.([]any); ok && len(items) > 0 && schema.Items != nil {
		child, schema = items[0], schema.Items.Schema
	}
	fields, ok := child.(map[string]any)
	if !ok || schema == nil {
		return
	}
	for _, field := range sortedNames(schema.Properties) {
		property := schema.Properties[field]
		g.grow(fields, field, &property, levels-1)
	}
}

func (g *grower) add(parent map[string]any, name string, schema *apiextensionsv1.JSONSchemaProps) bool {
	if g.left == 0 {
		return false
	}
	candidate := schema
	if schema.Type == "array" && schema.MinItems == nil {
		// Try a list with one item instead of an empty one.
		one := int64(1)
		candidate = schema.DeepCopy()
		candidate.MinItems = &one
	}
	content, err := value(candidate, name, 0)
	if err != nil {
		return false
	}
	g.left--
	parent[name] = content
	if g.valid() {
		return true
	}
	delete(parent, name)
	return false
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

import (
	"encoding/json"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// value returns the smallest valid value of a schema, with required fields and the minimum number
// of items. It ignores CEL rules.
func value(schema *apiextensionsv1.JSONSchemaProps, path string, n int) (any, error) {
	if len(schema.Enum) > 0 {
		return enumerated(schema, n)
	}
	if schema.XIntOrString {
		return int64(1), nil
	}
	if schema.XEmbeddedResource {
		return map[string]any{
			"apiVersion": "v1",
			"kind":       "ConfigMap",
			"metadata":   map[string]any{"name": numbered("embedded", n)},
		}, nil
	}
	switch schema.Type {
	case "object":
		return object(schema, path, n)
	case "array":
		return array(schema, path)
	case "string":
		value, err := text(merged(schema), n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return value, nil
	case "integer":
		return integer(schema, n), nil
	case "number":
		return float64(integer(schema, n)), nil
	case "boolean":
		return true, nil
	case "":
		return map[string]any{}, nil
	}
	return nil, fmt.Errorf("%s: unknown type %q", path, schema.Type)
}

// enumerated returns value n of an enumeration.
func enumerated(schema *apiextensionsv1.JSONSchemaProps, n int) (any, error) {
	options := make([]any, 0, len(schema.Enum))
	for _, option := range schema.Enum {
		var decoded any
		if err := json.Unmarshal(option.Raw, &decoded); err != nil {
			return nil, fmt.Errorf("read the enumeration value %s: %w", option.Raw, err)
		}
		// An empty string or null in an enumeration stands for "not set".
		if decoded != nil && decoded != "" {
			options = append(options, decoded)
		}
	}
	if len(options) == 0 {
		return "", nil
	}
	return options[n%len(options)], nil
}

func object(schema *apiextensionsv1.JSONSchemaProps, path string, n int) (any, error) {
	result := map[string]any{}
	for _, name := range required(schema) {
		property, ok := schema.Properties[name]
		if !ok {
			continue
		}
		field, err := value(&property, path+"."+name, n)
		if err != nil {
			return nil, err
		}
		result[name] = field
	}
	if schema.MinProperties == nil {
		return result, nil
	}
	for _, name := range sortedNames(schema.Properties) {
		if int64(len(result)) >= *schema.MinProperties {
			break
		}
		if _, ok := result[name]; ok {
			continue
		}
		property := schema.Properties[name]
		field, err := value(&property, path+"."+name, n)
		if err != nil {
			return nil, err
		}
		result[name] = field
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		for i := 0; int64(len(result)) < *schema.MinProperties; i++ {
			field, err := value(schema.AdditionalProperties.Schema, path+".*", i)
			if err != nil {
				return nil, err
			}
			result[numbered("key", i)] = field
		}
	}
	return result, nil
}

// required returns the names of required fields. Of alternatives, it takes the first schema.
func required(schema *apiextensionsv1.JSONSchemaProps) []string {
	names := slices.Clone(schema.Required)
	for _, alternatives := range [][]apiextensionsv1.JSONSchemaProps{schema.OneOf, schema.AnyOf} {
		if len(alternatives) > 0 {
			names = append(names, alternatives[0].Required...)
		}
	}
	for _, part := range schema.AllOf {
		names = append(names, required(&part)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func array(schema *apiextensionsv1.JSONSchemaProps, path string) (any, error) {
	count := int64(0)
	if schema.MinItems != nil {
		count = *schema.MinItems
	}
	result := []any{}
	for i := range count {
		if schema.Items == nil || schema.Items.Schema == nil {
			return nil, fmt.Errorf("%s: items without a schema", path)
		}
		item, err := value(schema.Items.Schema, path+"[]", int(i))
		if err != nil {
			return nil, err
		}
		result = append(result, item)
	}
	return result, nil
}

func integer(schema *apiextensionsv1.JSONSchemaProps, n int) int64 {
	result := int64(1 + n)
	if schema.Minimum != nil && float64(result) <= *schema.Minimum {
		result = int64(*schema.Minimum)
		if schema.ExclusiveMinimum {
			result++
		}
	}
	if schema.Maximum != nil && float64(result) >= *schema.Maximum {
		result = int64(*schema.Maximum)
		if schema.ExclusiveMaximum {
			result--
		}
	}
	if schema.MultipleOf != nil && *schema.MultipleOf >= 1 {
		step := int64(*schema.MultipleOf)
		result = (result + step - 1) / step * step
	}
	return result
}

// merged returns the schema of a string merged with all of allOf, and the first of anyOf and
// oneOf.
func merged(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	result := schema.DeepCopy()
	parts := slices.Clone(schema.AllOf)
	for _, alternatives := range [][]apiextensionsv1.JSONSchemaProps{schema.OneOf, schema.AnyOf} {
		if len(alternatives) > 0 {
			parts = append(parts, alternatives[0])
		}
	}
	for _, part := range parts {
		if result.Pattern == "" {
			result.Pattern = part.Pattern
		}
		if result.Format == "" {
			result.Format = part.Format
		}
		if part.MinLength != nil {
			result.MinLength = part.MinLength
		}
		if part.MaxLength != nil {
			result.MaxLength = part.MaxLength
		}
	}
	return result
}

func sortedNames(properties map[string]apiextensionsv1.JSONSchemaProps) []string {
	names := make([]string, 0, len(properties))
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

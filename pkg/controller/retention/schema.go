// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// schemaProps is a schema; nil accepts anything.
type schemaProps = apiextensionsv1.JSONSchemaProps

// versionOf returns the version that objects are read in: the stored one, which is read without
// conversion, or if it is not served the first that is. It returns nil if none is.
func versionOf(crd *apiextensionsv1.CustomResourceDefinition) (version *apiextensionsv1.CustomResourceDefinitionVersion) {
	for i := range crd.Spec.Versions {
		candidate := &crd.Spec.Versions[i]
		if candidate.Served && (version == nil || candidate.Storage) {
			version = candidate
		}
	}
	return version
}

// checkFields returns what is wrong with the fields that the rules read, according to the schema.
func checkFields(retention *hostingv1alpha1.Retention, crd *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion) (problems []string) {
	var root *schemaProps
	if version.Schema != nil && !crd.Spec.PreserveUnknownFields {
		root = version.Schema.OpenAPIV3Schema
	}
	for i := range retention.Rules {
		rule := &retention.Rules[i]
		report := func(field string, err error) {
			if err != nil {
				problems = append(problems, fmt.Sprintf("rule %s: %s: %v", rule.Name, field, err))
			}
		}
		if rule.Condition != nil {
			report("condition", checkConditions(root))
		}
		if rule.Phase != nil {
			report("phase.path", checkPhase(root, rule.Phase))
			if rule.Phase.TimestampPath != "" {
				report("phase.timestampPath", checkTime(root, splitPath(rule.Phase.TimestampPath)))
			}
		}
		if rule.Timestamp != nil {
			report("timestamp.path", checkTime(root, splitPath(rule.Timestamp.Path)))
		}
	}
	return problems
}

// find returns the schema of a field. It returns nil if the schema accepts any fields there.
func find(root *schemaProps, path []string) (*schemaProps, error) {
	current := root
	for i, name := range path {
		switch {
		case current == nil:
			return nil, nil
		case hasProperty(current, name):
			property := current.Properties[name]
			current = &property
		case current.AdditionalProperties != nil && (current.AdditionalProperties.Schema != nil || current.AdditionalProperties.Allows):
			current = current.AdditionalProperties.Schema
		case current.XPreserveUnknownFields != nil && *current.XPreserveUnknownFields:
			return nil, nil
		default:
			return nil, fmt.Errorf("the schema has no field .%s; %s has %s", strings.Join(path[:i+1], "."), whole(path[:i]), names(current))
		}
	}
	return current, nil
}

func hasProperty(schema *schemaProps, name string) bool {
	_, found := schema.Properties[name]
	return found
}

func whole(path []string) string {
	if len(path) == 0 {
		return "it"
	}
	return "." + strings.Join(path, ".")
}

func names(schema *schemaProps) string {
	const most = 10
	all := slices.Sorted(maps.Keys(schema.Properties))
	switch {
	case len(all) == 0:
		return "no fields"
	case len(all) > most:
		return strings.Join(all[:most], ", ") + ", …"
	default:
		return strings.Join(all, ", ")
	}
}

func checkType(schema *schemaProps, path []string, want string) error {
	if schema == nil || schema.Type == want || schema.Type == "" {
		return nil
	}
	return fmt.Errorf(".%s has the type %s in the schema, not %s", strings.Join(path, "."), schema.Type, want)
}

func checkPhase(root *schemaProps, phase *hostingv1alpha1.RetentionPhase) error {
	path := splitPath(phase.Path)
	found, err := find(root, path)
	if err != nil {
		return err
	}
	if err := checkType(found, path, "string"); err != nil || found == nil || len(found.Enum) == 0 {
		return err
	}
	allowed := sets.New[string]()
	for _, value := range found.Enum {
		var text string
		if json.Unmarshal(value.Raw, &text) == nil {
			allowed.Insert(text)
		}
	}
	for _, value := range phase.Values {
		if !allowed.Has(value) {
			return fmt.Errorf("the schema does not allow the value %q in %s, only %s", value, phase.Path, strings.Join(sets.List(allowed), ", "))
		}
	}
	return nil
}

func checkTime(root *schemaProps, path []string) error {
	found, err := find(root, path)
	if err != nil {
		return err
	}
	if err := checkType(found, path, "string"); err != nil || found == nil {
		return err
	}
	if found.Format != "" && found.Format != "date-time" {
		return fmt.Errorf(".%s has the format %s in the schema, not date-time", strings.Join(path, "."), found.Format)
	}
	return nil
}

func checkConditions(root *schemaProps) error {
	found, err := find(root, conditionsPath)
	if err != nil {
		return err
	}
	if err := checkType(found, conditionsPath, "array"); err != nil || found == nil || found.Items == nil || found.Items.Schema == nil {
		return err
	}
	for _, name := range []string{"type", "status", "lastTransitionTime"} {
		if _, err := find(found.Items.Schema, []string{name}); err != nil {
			return fmt.Errorf("an item of .status.conditions: %w", err)
		}
	}
	return nil
}

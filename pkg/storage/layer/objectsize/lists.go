// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package objectsize

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// MaxItems bounds the items of lists of type set or map by the sum of the squares of their lengths:
// upstream inserts each into a sorted list, in the order in which the client wrote them.
const MaxItems = 20_000

// AssociativeLists has the names of fields with lists of type set or map, in the field or below it. Nil
// stands for all lists.
type AssociativeLists sets.Set[string]

// NewAssociativeLists returns the lists that a definition has in any version. Without a definition all
// lists may be of these types.
func NewAssociativeLists(definition *apiextensionsv1.CustomResourceDefinition) AssociativeLists {
	if definition == nil {
		return nil
	}
	lists := AssociativeLists{"finalizers": {}}
	for v := range definition.Spec.Versions {
		if validation := definition.Spec.Versions[v].Schema; validation != nil && validation.OpenAPIV3Schema != nil {
			lists.add("", validation.OpenAPIV3Schema)
		}
	}
	return lists
}

// add adds the lists in the schema of a field, or of the items or values in it.
func (a AssociativeLists) add(field string, schema *apiextensionsv1.JSONSchemaProps) {
	if ptr.Deref(schema.XListType, "atomic") != "atomic" {
		a[field] = sets.Empty{}
	}
	for name := range schema.Properties {
		property := schema.Properties[name]
		a.add(name, &property)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		a.add(field, schema.AdditionalProperties.Schema)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		a.add(field, schema.Items.Schema)
	}
}

// Refusal says why the lists of an object in JSON take much more work than its size, or is empty. What
// cannot be decoded is refused by others.
func (a AssociativeLists) Refusal(text []byte) string {
	var object any
	if json.Unmarshal(text, &object) != nil || a.squares(object, a == nil) <= MaxItems*MaxItems {
		return ""
	}
	return fmt.Sprintf("it has lists with too many items, the limit is %d for one of type set or map", MaxItems)
}

// squares returns the sum of the squares of the lengths of lists that may be sets or maps.
func (a AssociativeLists) squares(value any, found bool) (sum int) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			_, named := a[name]
			sum += a.squares(field, found || named)
		}
	case []any:
		if found {
			sum = len(value) * len(value)
		}
		for _, item := range value {
			sum += a.squares(item, found)
		}
	}
	return sum
}

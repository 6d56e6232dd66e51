// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// setDefaults reports false for defaults that are not plain JSON.
func (r *rule) setDefaults(schema *apiextensionsv1.JSONSchemaProps) bool {
	r.gains = r.items.gains || r.additional != nil && r.additional.gains
	for name := range schema.Properties {
		property := schema.Properties[name]
		r.gains = r.gains || property.Default != nil || r.properties[name].rule.gains
		if property.Default == nil {
			continue
		}
		value, ok := canonicaljson.Append(nil, property.Default.Raw)
		if !ok || !isPlain(name) {
			return false
		}
		r.defaults = append(r.defaults, member{quoted(name), string(value)})
	}
	return true
}

// withDefaults returns a value with the defaults that it lacks, also those of a default. Other values than the schema
// allows may be left as they are: they are refused.
func (r *rule) withDefaults(text string) string {
	switch {
	case r == nil || !r.gains:
		return text
	case text[0] == '{':
		return canonicaljson.StringOf(r.addDefaults(membersOf(text)).encode())
	case text[0] == '[':
		items := itemsOf(text)
		for i := range items {
			items[i] = r.items.withDefaults(items[i])
		}
		return joined(items)
	}
	return text
}

// addDefaults is withDefaults for the members of an object.
func (r *rule) addDefaults(object members) members {
	if !r.gains {
		return object
	}
	for i := range object {
		object[i].value = r.child(object[i].name()).withDefaults(object[i].value)
	}
	for _, d := range r.defaults {
		if object.get(d.key) == "" {
			object = append(object, member{d.key, r.child(d.key).withDefaults(d.value)})
		}
	}
	slices.SortFunc(object, member.compare)
	return object
}

// joined returns the JSON of an array.
func joined(items []string) string {
	size := len("[]")
	for _, item := range items {
		size += len(item) + len(",")
	}
	text := append(make([]byte, 0, size), '[')
	for i, item := range items {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, item...)
	}
	return canonicaljson.StringOf(append(text, ']'))
}

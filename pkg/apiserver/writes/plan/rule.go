// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"regexp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/storage/canonicaljson"
)

// kinds is a set of kinds of JSON values.
type kinds uint8

const (
	objects kinds = 1 << iota
	arrays
	texts
	integers
	numbers
	booleans
)

// kindsOf has the values that a type of a schema allows.
var kindsOf = map[string]kinds{
	"object": objects, "array": arrays, "string": texts, "integer": integers, "number": integers | numbers, "boolean": booleans,
}

// rule describes the values at a place of a schema that upstream certainly accepts and does not change. The zero rule
// accepts none.
type rule struct {
	kinds kinds
	// free is set for places without a schema that keep all values, nulls included.
	free bool
	enum map[string]bool // the JSON of each value

	// gains is set if values may lack defaults.
	gains bool

	// Objects.
	properties map[string]property
	// required counts the properties that have to be there. Those with defaults, which are JSON, have to be there too.
	required                     int
	defaults                     members
	additional                   *rule // nil if others are pruned
	presence                     *presence
	minProperties, maxProperties int
	atomicMap                    bool

	// Arrays.
	items              *rule
	minItems, maxItems int
	list               listType
	keys               []string // of a map

	// Strings.
	minLength, maxLength int
	pattern              *regexp.Regexp
	format               string

	// Numbers.
	minimum, maximum                   *float64
	exclusiveMinimum, exclusiveMaximum bool
	int32                              bool
}

type property struct {
	rule *rule
	// required is set if it has to be there, and defaulted if it has a default.
	required, defaulted bool
}

// listType is x-kubernetes-list-type.
type listType uint8

const (
	atomicList listType = iota
	mapList
	setList
)

// anything keeps all values.
var anything = func() *rule {
	r := &rule{free: true, kinds: ^kinds(0)}
	r.additional = r
	return r
}()

// newRule compiles a schema, which is structural. preserve is set for items of lists that keep unknown fields.
func newRule(schema *apiextensionsv1.JSONSchemaProps, preserve bool) *rule {
	if schema == nil {
		if preserve {
			return anything
		}
		return &rule{}
	}
	preserve = preserve || ptr.Deref(schema.XPreserveUnknownFields, false)
	r := &rule{kinds: kindsOf[schema.Type]}
	switch {
	case hasUnsure(schema):
		return &rule{}
	case schema.XIntOrString:
		r.kinds = texts | integers
	case schema.Type == "" && preserve:
		r.kinds = ^kinds(0)
	}
	if !isIntOrString(schema) {
		var ok bool
		if r.presence, ok = newPresence(schema); !ok || r.presence != nil && r.kinds != objects {
			return &rule{}
		}
	}
	if !r.setEnum(schema) || !r.setString(schema) || !r.setNumber(schema) {
		return &rule{}
	}
	r.setArray(schema, preserve)
	if !r.setObject(schema, preserve) || !r.setDefaults(schema) {
		return &rule{}
	}
	return r
}

// hasUnsure reports whether a schema has keywords that no rule checks. Rules in CEL are checked elsewhere.
func hasUnsure(schema *apiextensionsv1.JSONSchemaProps) bool {
	return schema.XEmbeddedResource || schema.MultipleOf != nil || schema.UniqueItems ||
		len(schema.PatternProperties)+len(schema.Dependencies) > 0 || schema.AdditionalItems != nil || schema.Ref != nil
}

// The boolean keywords that structural schemas have beside x-kubernetes-int-or-string, and that say the same. They may have
// limits, which no rule checks.
var (
	anyOfIntOrString = apiextensionsv1.JSONSchemaProps{AnyOf: []apiextensionsv1.JSONSchemaProps{{Type: "integer"}, {Type: "string"}}}
	allOfIntOrString = apiextensionsv1.JSONSchemaProps{AllOf: []apiextensionsv1.JSONSchemaProps{anyOfIntOrString}}
)

// isIntOrString reports whether the only boolean keyword is one of those.
func isIntOrString(schema *apiextensionsv1.JSONSchemaProps) bool {
	found := apiextensionsv1.JSONSchemaProps{Not: schema.Not, OneOf: schema.OneOf, AnyOf: schema.AnyOf, AllOf: schema.AllOf}
	return schema.XIntOrString && (equality.Semantic.DeepEqual(found, anyOfIntOrString) || equality.Semantic.DeepEqual(found, allOfIntOrString))
}

func (r *rule) setEnum(schema *apiextensionsv1.JSONSchemaProps) bool {
	if len(schema.Enum) == 0 {
		return true
	}
	r.enum = make(map[string]bool, len(schema.Enum))
	for _, value := range schema.Enum {
		text, ok := canonicaljson.Append(nil, value.Raw)
		if !ok {
			return false
		}
		r.enum[string(text)] = true
	}
	return true
}

func (r *rule) setString(schema *apiextensionsv1.JSONSchemaProps) (ok bool) {
	r.minLength, r.maxLength = bounds(schema.MinLength, schema.MaxLength)
	if r.kinds&texts != 0 && strfmt.Default.ContainsName(schema.Format) {
		r.format = schema.Format
	}
	if schema.Pattern == "" {
		return true
	}
	var err error
	r.pattern, err = regexp.Compile(schema.Pattern)
	return err == nil
}

// setNumber takes no formats but those that are implied by the values that JSON has here.
func (r *rule) setNumber(schema *apiextensionsv1.JSONSchemaProps) bool {
	r.minimum, r.exclusiveMinimum = schema.Minimum, schema.ExclusiveMinimum
	r.maximum, r.exclusiveMaximum = schema.Maximum, schema.ExclusiveMaximum
	r.int32 = schema.Format == "int32"
	numeric := schema.Type == "integer" || schema.Type == "number"
	return !numeric || slices.Contains([]string{"", "int32", "int64", "double"}, schema.Format)
}

func (r *rule) setArray(schema *apiextensionsv1.JSONSchemaProps, preserve bool) {
	r.minItems, r.maxItems = bounds(schema.MinItems, schema.MaxItems)
	switch ptr.Deref(schema.XListType, "atomic") {
	case "map":
		r.list, r.keys = mapList, slices.Sorted(slices.Values(schema.XListMapKeys))
	case "set":
		r.list = setList
	}
	var items *apiextensionsv1.JSONSchemaProps
	if schema.Items != nil {
		items = schema.Items.Schema
	}
	r.items = newRule(items, preserve)
}

// setObject reports false if a required field has no schema of its own.
func (r *rule) setObject(schema *apiextensionsv1.JSONSchemaProps, preserve bool) bool {
	r.minProperties, r.maxProperties = bounds(schema.MinProperties, schema.MaxProperties)
	r.atomicMap = ptr.Deref(schema.XMapType, "granular") == "atomic"
	r.properties = make(map[string]property, len(schema.Properties))
	for name := range schema.Properties {
		child := schema.Properties[name]
		added := property{rule: newRule(&child, false), required: slices.Contains(schema.Required, name), defaulted: child.Default != nil}
		r.properties[name] = added
		r.required += count(added.required)
	}
	switch {
	case schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema == nil:
		r.additional = &rule{} // pruning and validation differ on these
	case schema.AdditionalProperties != nil:
		r.additional = newRule(schema.AdditionalProperties.Schema, false)
	case preserve:
		r.additional = anything
	}
	return r.required == len(schema.Required)
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func bounds(least, most *int64) (int, int) {
	return int(ptr.Deref(least, 0)), int(ptr.Deref(most, math.MaxInt))
}

// child returns the rule of a field, or nil if it is pruned.
func (r *rule) child(name string) *rule {
	if p, known := r.properties[name]; known {
		return p.rule
	}
	return r.additional
}

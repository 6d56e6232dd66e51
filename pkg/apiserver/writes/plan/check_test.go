// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestCheck has a row for each keyword, with values that are certainly valid, and values of which a plan is unsure. Values
// are separated by white space. Upstream must take the valid ones as they are.
func TestCheck(t *testing.T) {
	t.Parallel()
	const ofItems = `{type: array, items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}, open: {type: boolean}}}, `
	const ofFields = `{type: object, properties: {a: {type: integer}, b: {type: integer}, "<": {type: integer}}, `
	for name, test := range map[string]struct{ schema, valid, unsure string }{
		"string":                 {`{type: string}`, `"a" "" "\u003c" "null"`, `1 true null [] {}`},
		"integer":                {`{type: integer}`, `0 1 -1 999999999999999999`, `1.5 "1" 1e+21 -0 1.0`},
		"number":                 {`{type: number}`, `1 1.5 1e-7 1e+21`, `"1" true null 1.50`},
		"boolean":                {`{type: boolean}`, `true false`, `"true" 1 null tru falsey`},
		"object":                 {`{type: object}`, `{}`, `{"a":1} [] null "a" {`},
		"array":                  {`{type: array, items: {type: integer}}`, `[] [1,2]`, `["a"] [null] [1,] {} [1`},
		"array of no schema":     {`{type: array}`, `[]`, `[1]`},
		"nested":                 {`{type: array, items: {type: array, items: {type: string}}}`, `[[],["a"]]`, `["a"] [[1]]`},
		"properties":             {`{type: object, properties: {a: {type: string}, b: {type: object, properties: {c: {type: integer}}}}}`, `{} {"a":"x"} {"a":"x","b":{"c":1}}`, `{"a":1} {"a":null} {"b":{"d":1}} {"c":1} {"b":1,"a":"x"}`},
		"escaped property":       {`{type: object, properties: {"<": {type: string}}}`, `{"\u003c":"x"}`, `{"\u003c":1} {"<":"x"}`},
		"required":               {`{type: object, required: [a], properties: {a: {type: integer}, b: {type: integer}}}`, `{"a":1} {"a":1,"b":2}`, `{} {"b":1}`},
		"required of no schema":  {`{type: object, required: [a], x-kubernetes-preserve-unknown-fields: true}`, ``, `{"a":1}`},
		"default":                {`{type: object, properties: {a: {type: integer, default: 3}}}`, `{"a":3} {"a":4}`, `{} {"a":null}`},
		"additionalProperties":   {`{type: object, additionalProperties: {type: integer}}`, `{} {"a":1,"b":2}`, `{"a":"x"} {"a":1,"a":2}`},
		"any additional":         {`{type: object, additionalProperties: true}`, `{}`, `{"a":1}`},
		"minProperties":          {`{type: object, minProperties: 1, additionalProperties: {type: integer}}`, `{"a":1} {"a":1,"b":2}`, `{}`},
		"maxProperties":          {`{type: object, maxProperties: 1, additionalProperties: {type: integer}}`, `{} {"a":1}`, `{"a":1,"b":2}`},
		"unknown fields":         {`{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}`, `{"a":"x","b":[null,{"c":1.5}]} {"b":null}`, `{"a":1} {"a":null} [] 1`},
		"any type":               {`{x-kubernetes-preserve-unknown-fields: true}`, `1 "a" true {"a":null} [null,[1.5]]`, `null`},
		"any items":              {`{type: array, x-kubernetes-preserve-unknown-fields: true}`, `[] [1,{"a":null}]`, `{}`},
		"nullable":               {`{type: string, nullable: true}`, `"a"`, `null`},
		"minItems":               {`{type: array, minItems: 1, items: {type: integer}}`, `[1] [1,2]`, `[]`},
		"maxItems":               {`{type: array, maxItems: 1, items: {type: integer}}`, `[] [1]`, `[1,2]`},
		"uniqueItems":            {`{type: array, uniqueItems: true, items: {type: integer}}`, ``, `[] [1]`},
		"atomic":                 {`{type: array, x-kubernetes-list-type: atomic, items: {type: integer}}`, `[1,1]`, `["a"]`},
		"set":                    {`{type: array, x-kubernetes-list-type: set, items: {type: string}}`, `[] ["a","b"]`, `["a","b","a"] ["\""] ["é"] [1]`},
		"set of numbers":         {`{type: array, x-kubernetes-list-type: set, items: {type: number}}`, `[1,2]`, `[1,1] [1.5]`},
		"set of objects":         {`{type: array, x-kubernetes-list-type: set, items: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}}}}`, `[]`, `[{"a":"x"}]`},
		"map":                    {ofItems + `x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name]}`, `[] [{"name":"a"},{"name":"b"}]`, `[{"name":"a"},{"name":"a","port":1}] [{"port":1}] [{"name":"\u003c"}]`},
		"map with more keys":     {ofItems + `x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port, name, open]}`, `[{"name":"a","open":true,"port":1},{"name":"a","open":true,"port":2},{"name":"a","open":false,"port":1}]`, `[{"name":"a"}] [{"name":"a","open":true,"port":1},{"name":"a","open":true,"port":1}]`},
		"enum":                   {`{type: string, enum: [a, "<"]}`, `"a" "\u003c"`, `"b" "" "<"`},
		"enum of values":         {`{enum: [1, {a: 1, b: 2}], x-kubernetes-preserve-unknown-fields: true}`, `1 {"a":1,"b":2}`, `2 "1" {"a":1} [1]`},
		"enum, large integer":    {`{type: integer, enum: [1, 1000000000000000000]}`, ``, `1`},
		"minLength":              {`{type: string, minLength: 2}`, `"éé" "\n\n"`, `"é" "\n" ""`},
		"maxLength":              {`{type: string, maxLength: 2}`, `"éé" "" "\"\u003c"`, `"abc" "\n\n\n"`},
		"pattern":                {`{type: string, pattern: "^<+$"}`, `"\u003c" "\u003c\u003c"`, `"" "a"`},
		"bad pattern":            {`{type: string, pattern: "("}`, ``, `"a" "("`},
		"format":                 {`{type: string, format: date}`, `"2026-01-02"`, `"today" ""`},
		"unknown format":         {`{type: string, format: color}`, `"red"`, `1`},
		"int32":                  {`{type: integer, format: int32}`, `2147483647 -2147483648`, `2147483648 -2147483649`},
		"int64":                  {`{type: integer, format: int64}`, `2147483648`, `1.5`},
		"double":                 {`{type: number, format: double}`, `1.5`, `"1"`},
		"float":                  {`{type: number, format: float}`, ``, `1.5 1`},
		"minimum":                {`{type: number, minimum: 2}`, `2 2.5 3`, `1 1.99 -2`},
		"exclusiveMinimum":       {`{type: number, minimum: 2, exclusiveMinimum: true}`, `2.5 3`, `2 1`},
		"maximum":                {`{type: integer, maximum: 2}`, `2 -3 0`, `3`},
		"exclusiveMaximum":       {`{type: integer, maximum: 2, exclusiveMaximum: true}`, `1`, `2 3`},
		"inexact":                {`{type: integer, minimum: 2}`, `9007199254740991`, `9007199254740992`},
		"inexact, no limit":      {`{type: integer}`, `9007199254740993`, ``},
		"int-or-string":          {`{x-kubernetes-int-or-string: true}`, `1 "a"`, `1.5 true null {} []`},
		"int-or-string, anyOf":   {`{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}`, `1 "a"`, `1.5`},
		"int-or-string, allOf":   {`{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}]}`, `1 "a"`, `1.5`},
		"int-or-string, more":    {`{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maxLength: 1}]}`, ``, `1 "a"`},
		"int-or-string, both":    {`{x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], allOf: [{anyOf: [{type: integer}, {type: string}]}]}`, ``, `1`},
		"int-or-string, limit":   {`{x-kubernetes-int-or-string: true, anyOf: [{type: integer, minimum: 2}, {type: string}]}`, ``, `1 2`},
		"int-or-string, limits":  {`{x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string, maxLength: 1}]}]}`, ``, `"a" "aa"`},
		"int-or-string, beside":  {`{x-kubernetes-int-or-string: true, allOf: [{maxLength: 1, anyOf: [{type: integer}, {type: string}]}]}`, ``, `"a" "aa"`},
		"int-or-string, pattern": {`{x-kubernetes-int-or-string: true, pattern: "^a", minimum: 3}`, `3 "a"`, `2 "b"`},
		"oneOf":                  {`{type: string, oneOf: [{minLength: 1}]}`, ``, `"a"`},
		"anyOf":                  {`{type: string, anyOf: [{minLength: 1}, {minLength: 2}]}`, ``, `"a"`},
		"allOf":                  {`{type: string, allOf: [{minLength: 1}]}`, ``, `"a"`},
		"not":                    {`{type: string, not: {minLength: 5}}`, ``, `"a"`},
		"oneOf required":         {ofFields + `oneOf: [{required: [a]}, {required: [b, "<"]}]}`, `{"a":1} {"a":1,"b":1} {"\u003c":1,"b":1}`, `{} {"b":1} {"\u003c":1,"a":1,"b":1}`},
		"anyOf required":         {ofFields + `anyOf: [{required: [a]}, {required: [b, "<"]}]}`, `{"a":1} {"\u003c":1,"a":1,"b":1}`, `{} {"b":1} {"\u003c":1}`},
		"allOf required":         {ofFields + `allOf: [{required: [a]}, {required: [b]}]}`, `{"a":1,"b":1}`, `{"a":1} {"b":1} {}`},
		"not required":           {ofFields + `not: {required: [a, b]}}`, `{} {"a":1} {"b":1}`, `{"a":1,"b":1}`},
		"all booleans required":  {ofFields + `allOf: [{required: [a]}], not: {required: [b]}}`, `{"a":1}`, `{} {"a":1,"b":1}`},
		"oneOf with more":        {ofFields + `oneOf: [{required: [a]}, {required: [b], maxProperties: 1}]}`, ``, `{"a":1}`},
		"required, no object":    {`{x-kubernetes-preserve-unknown-fields: true, anyOf: [{required: [a]}]}`, ``, `{"a":1} 1`},
		"multipleOf":             {`{type: integer, multipleOf: 1}`, ``, `1`},
		"embedded":               {`{type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`, ``, `{} {"apiVersion":"v1","kind":"A"}`},
		"unsure below":           {`{type: object, properties: {a: {type: string, not: {minLength: 5}}, b: {type: integer}}}`, `{} {"b":1}`, `{"a":"x"}`},
		"patternProperties":      {`{type: object, patternProperties: {a: {type: string}}}`, ``, `{}`},
		"dependencies":           {`{type: object, dependencies: {a: [b]}}`, ``, `{}`},
		"additionalItems":        {`{type: array, items: {type: string}, additionalItems: true}`, ``, `[]`},
		"$ref":                   {`{type: string, $ref: "#/a"}`, ``, `"a"`},
		"not one value":          {`{type: integer}`, ``, `1,2 1] 1"a"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			schema := &apiextensionsv1.JSONSchemaProps{}
			expect.NoError(t, yaml.UnmarshalStrict([]byte(test.schema), schema))
			r := newRule(schema, false)
			for _, value := range strings.Fields(test.valid) {
				if !r.check([]byte(value)) {
					t.Errorf("unsure of %s", value)
				}
				expect.Equal(t, `{"v":`+value+`}`, byUpstream(t, schema, value), "upstream")
			}
			for _, value := range strings.Fields(test.unsure) {
				if r.check([]byte(value)) {
					t.Errorf("sure of %s", value)
				}
			}
		})
	}
	if newRule(nil, false).check([]byte("{}")) || newRule(nil, true) != anything {
		t.Error("no schema is taken for one")
	}
}

// upstreamSchema returns a schema as upstream validates with it, and as it prunes and defaults.
func upstreamSchema(t *testing.T, schema *apiextensionsv1.JSONSchemaProps) (*apiextensions.JSONSchemaProps, *structuralschema.Structural) {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	expect.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, internal, nil))
	structural, err := structuralschema.NewStructural(internal)
	expect.NoError(t, err)
	return internal, structural
}

// byUpstream returns an object with a field v as upstream prunes and defaults it, or its errors.
func byUpstream(t *testing.T, schema *apiextensionsv1.JSONSchemaProps, value string) string {
	t.Helper()
	internal, structural := upstreamSchema(t, &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"v": *schema}})
	validator, _, err := validation.NewSchemaValidator(internal)
	expect.NoError(t, err)
	var object map[string]any
	expect.NoError(t, utiljson.Unmarshal([]byte(`{"v":`+value+`}`), &object))
	pruning.Prune(object, structural, false)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, structural)
	defaulting.Default(object, structural)
	errs := append(validation.ValidateCustomResource(nil, object, validator), listtype.ValidateListSetsAndMaps(nil, structural, object)...)
	if len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	text, err := json.Marshal(object)
	expect.NoError(t, err)
	return string(text)
}

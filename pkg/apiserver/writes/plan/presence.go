// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"reflect"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// presence is a condition on which fields an object has: the boolean keywords of schemas that only require fields.
type presence struct {
	not                 []string
	oneOf, anyOf, allOf [][]string
}

// newPresence reports false if a boolean keyword has more than required fields. It returns nil if there are none.
func newPresence(schema *apiextensionsv1.JSONSchemaProps) (*presence, bool) {
	if schema.Not == nil && len(schema.OneOf)+len(schema.AnyOf)+len(schema.AllOf) == 0 {
		return nil, true
	}
	p, ok := &presence{}, true
	if schema.Not != nil {
		p.not, ok = onlyRequired(*schema.Not)
	}
	for into, alternatives := range map[*[][]string][]apiextensionsv1.JSONSchemaProps{
		&p.oneOf: schema.OneOf, &p.anyOf: schema.AnyOf, &p.allOf: schema.AllOf,
	} {
		for _, alternative := range alternatives {
			required, is := onlyRequired(alternative)
			*into, ok = append(*into, required), ok && is
		}
	}
	return p, ok
}

func onlyRequired(schema apiextensionsv1.JSONSchemaProps) ([]string, bool) {
	required := schema.Required
	schema.Required = nil
	return required, len(required) > 0 && reflect.ValueOf(schema).IsZero()
}

// holds reports whether an object with fields meets the condition.
func (p *presence) holds(fields []string) bool {
	met := func(required []string) bool {
		return !slices.ContainsFunc(required, func(name string) bool { return !slices.Contains(fields, name) })
	}
	unmet := func(required []string) bool { return !met(required) }
	matches := 0
	for _, required := range p.oneOf {
		matches += count(met(required))
	}
	return (p.not == nil || !met(p.not)) && (p.oneOf == nil || matches == 1) &&
		(p.anyOf == nil || slices.ContainsFunc(p.anyOf, met)) && !slices.ContainsFunc(p.allOf, unmet)
}

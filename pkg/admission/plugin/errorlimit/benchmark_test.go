// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package errorlimit

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// BenchmarkValidate compares the validator with upstream's, which validates the object again.
func BenchmarkValidate(b *testing.B) {
	v, err := newValidator(newDefinition(b), "v1")
	expect.NoError(b, err)
	upstream, _, err := validation.NewSchemaValidator(v.schema)
	expect.NoError(b, err)
	object := box("spec.parts", repeat(100_000, map[string]any{"name": "a", "parent": "b"}))
	for name, validate := range map[string]func() field.ErrorList{
		"annex":    func() field.ErrorList { return v.validate(b.Context(), object, nil, false) },
		"upstream": func() field.ErrorList { return validation.ValidateCustomResource(nil, object.Object, upstream) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if errs := validate(); len(errs) > 0 {
					b.Fatal(errs.ToAggregate())
				}
			}
		})
	}
}

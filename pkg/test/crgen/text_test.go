// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

import (
	"regexp"
	"testing"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestTextMatchesItsSchema(t *testing.T) {
	t.Parallel()
	tests := map[string]apiextensionsv1.JSONSchemaProps{
		"anything":           {},
		"long":               {MinLength: ptr.To[int64](40)},
		"short":              {MaxLength: ptr.To[int64](3)},
		"DNS label":          {Pattern: `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, MaxLength: ptr.To[int64](63)},
		"duration":           {Pattern: `^([0-9]{1,5}(h|m|s|ms)){1,4}$`},
		"quantity":           {Pattern: `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE])?$`},
		"absolute path":      {Pattern: `^/\S*$`},
		"digest":             {Pattern: `^sha256:[a-f0-9]{64}$`},
		"pattern and bounds": {Pattern: `^[A-Z]{2,}$`, MinLength: ptr.To[int64](2), MaxLength: ptr.To[int64](4)},
		"alternatives":       {Pattern: `^(Always|Never)$`},
	}
	for name, schema := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := text(&schema, 0)
			expect.NoError(t, err)
			length := int64(utf8.RuneCountInString(got))
			if !regexp.MustCompile(schema.Pattern).MatchString(got) {
				t.Errorf("%q does not match %q", got, schema.Pattern)
			}
			if length < ptr.Deref(schema.MinLength, 0) || length > ptr.Deref(schema.MaxLength, length) {
				t.Errorf("%q has %d characters", got, length)
			}
		})
	}
}

func TestTextOfUnsatisfiableSchema(t *testing.T) {
	t.Parallel()
	// No string is both one character long and ten.
	schema := &apiextensionsv1.JSONSchemaProps{Pattern: `^a{10}$`, MaxLength: ptr.To[int64](1)}
	if got, err := text(schema, 0); err == nil {
		t.Errorf("got %q, want an error", got)
	}
}

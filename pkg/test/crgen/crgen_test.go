// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

import (
	"regexp"
	"testing"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestEveryPublishedKind generates objects of every kind and served version of the pinned
// projects.
func TestEveryPublishedKind(t *testing.T) {
	t.Parallel()
	for _, source := range crds.Sources() {
		manifests, err := crds.Load(t.Context(), source)
		expect.NoError(t, err)
		for _, manifest := range manifests {
			for _, version := range manifest.CRD.Spec.Versions {
				if !version.Served {
					continue
				}
				t.Run(source.Name+"/"+manifest.CRD.Name+"/"+version.Name, func(t *testing.T) {
					t.Parallel()
					pair, err := New(t.Context(), manifest.CRD, version.Name, "default", "sample")
					expect.NoError(t, err)
					minimal, full := leaves(pair.Minimal.Object), leaves(pair.Full.Object)
					if full <= minimal {
						t.Errorf("the full object has %d values, no more than the minimal one with %d", full, minimal)
					}
				})
			}
		}
	}
}

func leaves(value any) int {
	count := 0
	switch value := value.(type) {
	case map[string]any:
		for _, field := range value {
			count += leaves(field)
		}
	case []any:
		for _, item := range value {
			count += leaves(item)
		}
	default:
		count = 1
	}
	return count
}

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

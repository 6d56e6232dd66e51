// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crgen

import (
	"testing"

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

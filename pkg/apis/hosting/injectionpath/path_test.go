// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injectionpath

import (
	"strings"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]Step{
		"spec":                       {{Field: "spec"}},
		"spec.template":              {{Field: "spec"}, {Field: "template"}},
		"spec.groups[*].template":    {{Field: "spec"}, {Field: "groups", Each: true}, {Field: "template"}},
		"spec.tfReplicaSpecs[*].a-b": {{Field: "spec"}, {Field: "tfReplicaSpecs", Each: true}, {Field: "a-b"}},
	} {
		got, err := Parse(path)
		expect.NoError(t, err)
		expect.Equal(t, want, got, "%s", path)
	}
	for _, path := range []string{"", ".", ".spec", "spec.", "spec..a", "spec[0]", "spec[*][*]", "spec.a[", "spec.*", "spec a", "/spec", "metadata.a", "status", "kind", "apiVersion", strings.Repeat("a", maxLength+1)} {
		if got, err := Parse(path); err == nil {
			t.Errorf("%q is accepted as %v", path, got)
		}
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestPublishedByIsALabelValue(t *testing.T) {
	t.Parallel()
	if got := PublishedBy("annex-system", "annex"); got != "annex-system.annex" {
		t.Errorf("PublishedBy = %q", got)
	}
	seen := map[string]bool{}
	for _, name := range []string{strings.Repeat("a", 62), strings.Repeat("a", 63), strings.Repeat("a", 62) + "b"} {
		value := PublishedBy(strings.Repeat("n", 63), name)
		if reasons := validation.IsValidLabelValue(value); len(reasons) > 0 {
			t.Errorf("%q is no label value: %v", value, reasons)
		}
		if seen[value] {
			t.Errorf("two Services have the value %q", value)
		}
		seen[value] = true
	}
}

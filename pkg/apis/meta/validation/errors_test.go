// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestLimitErrors(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]int{0: 0, MaxErrors: MaxErrors, MaxErrors + 1: shownErrors + 1} {
		errs := make(field.ErrorList, count)
		for i := range errs {
			errs[i] = field.Required(field.NewPath("spec").Index(i), "")
		}
		if got := LimitErrors(errs); len(got) != want {
			t.Errorf("%d of %d errors, want %d", len(got), count, want)
		}
	}
}

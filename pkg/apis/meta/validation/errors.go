// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxErrors bounds the errors of an object: apimachinery joins their texts one by one.
	MaxErrors = 1000
	// shownErrors are returned of more.
	shownErrors = 100
)

// LimitErrors returns the first errors if there are more than MaxErrors.
func LimitErrors(errs field.ErrorList) field.ErrorList {
	if len(errs) <= MaxErrors {
		return errs
	}
	return append(errs[:shownErrors:shownErrors], field.Forbidden(field.NewPath("others"), fmt.Sprintf("there are more than %d errors", MaxErrors)))
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injection

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// StatusError returns an error of Find or Inject as the response to a write of an object.
func StatusError(kind schema.GroupKind, name string, err error) *apierrors.StatusError {
	var errs field.ErrorList
	collected := []error{err}
	if aggregate, ok := errors.AsType[utilerrors.Aggregate](err); ok {
		collected = aggregate.Errors()
	}
	for _, one := range collected {
		invalid, ok := errors.AsType[*field.Error](one)
		if !ok {
			return apierrors.NewInternalError(err)
		}
		errs = append(errs, invalid)
	}
	return apierrors.NewInvalid(kind, name, errs)
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package follow

import apierrors "k8s.io/apimachinery/pkg/api/errors"

// Found turns "not found" into nil: to a controller what is not there is a state,
// not an error.
func Found[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

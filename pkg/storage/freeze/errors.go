// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/revision"
)

// retryAfterSeconds is the Retry-After of refused requests.
const retryAfterSeconds = 1

// HeldError is the error of a request that was not performed, and can be repeated once the resource
// has been moved.
type HeldError struct {
	Resource schema.GroupResource
	// Frozen is set for a write while the resource is returned to the main cluster.
	Frozen bool
}

// IsHeld reports whether an error is a HeldError.
func IsHeld(err error) bool {
	var held *HeldError
	return errors.As(err, &held)
}

// Error implements error.
func (e *HeldError) Error() string {
	if e.Frozen {
		return fmt.Sprintf("annex is returning %s to the main cluster, try again", e.Resource)
	}
	return fmt.Sprintf("annex is moving %s, try again", e.Resource)
}

// Status implements apierrors.APIStatus.
func (e *HeldError) Status() metav1.Status { return unavailable(e, e.Resource) }

// ReturnedError is the error of a request that was not performed because the main cluster serves the
// resource.
type ReturnedError struct{ Resource schema.GroupResource }

// IsReturned reports whether an error is a ReturnedError.
func IsReturned(err error) bool {
	var returned *ReturnedError
	return errors.As(err, &returned)
}

// Refusal returns the error of the requests of a closed resource.
func Refusal(resource schema.GroupResource, closed revision.State) error {
	if closed.Returned {
		return &ReturnedError{Resource: resource}
	}
	return &HeldError{Resource: resource}
}

// Error implements error.
func (e *ReturnedError) Error() string {
	return fmt.Sprintf("annex has returned %s to the main cluster, try again", e.Resource)
}

// Status implements apierrors.APIStatus.
func (e *ReturnedError) Status() metav1.Status { return unavailable(e, e.Resource) }

func unavailable(err error, resource schema.GroupResource) metav1.Status {
	status := apierrors.NewServiceUnavailable(err.Error()).Status()
	status.Details = &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource, RetryAfterSeconds: retryAfterSeconds}
	return status
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeze

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/storage/layer/revision"
)

// retryAfterSeconds is the Retry-After of refused requests.
const retryAfterSeconds = 1

// HeldError is the error of a request that was not performed, and can be repeated once the resource
// has been moved.
type HeldError struct{ refused }

// ReturnedError is the error of a request that was not performed because the main cluster serves the
// resource.
type ReturnedError struct{ refused }

// refused is a request that was not performed because of what annex does with its resource.
type refused struct {
	resource schema.GroupResource
	doing    string
}

// Refusal returns the error of the requests of a closed resource.
func Refusal(resource schema.GroupResource, closed revision.State) error {
	if closed.Returned {
		return &ReturnedError{refused{resource, "has returned %s to the main cluster"}}
	}
	return &HeldError{refused{resource, "is moving %s"}}
}

// IsHeld reports whether an error is a HeldError.
func IsHeld(err error) bool {
	_, held := errors.AsType[*HeldError](err)
	return held
}

// IsReturned reports whether an error is a ReturnedError.
func IsReturned(err error) bool {
	_, returned := errors.AsType[*ReturnedError](err)
	return returned
}

func isRefused(err error) bool { return IsHeld(err) || IsReturned(err) }

func (r refused) Error() string { return fmt.Sprintf("annex "+r.doing+", try again", r.resource) }

func (r refused) Status() metav1.Status {
	status := apierrors.NewServiceUnavailable(r.Error()).Status()
	status.Details = &metav1.StatusDetails{Group: r.resource.Group, Kind: r.resource.Resource, RetryAfterSeconds: retryAfterSeconds}
	return status
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// retryAfterSeconds is when to ask again for a resource that is about to be placed.
// Nothing else says when to ask again: clients would do so by themselves for a
// while, and whoever waits for them would not see why. After a write they even must
// not, because it may have been done.
const retryAfterSeconds = 1

// notPlacedError is a resource that has no Store.
type notPlacedError struct {
	resource schema.GroupResource
	why      string
	// final says that waiting does not help: something has to be changed.
	final bool
}

// notPlaced returns an error of a resource that has no Store.
func notPlaced(resource schema.GroupResource, why string, final bool) error {
	return &notPlacedError{resource: resource, why: why, final: final}
}

// Error implements error.
func (e *notPlacedError) Error() string {
	return fmt.Sprintf("hostedresource %s %s", e.resource, e.why)
}

// status is the error as clients get it.
func (e *notPlacedError) status() error {
	details := &metav1.StatusDetails{Group: hostingv1alpha1.SchemeGroupVersion.Group, Kind: "hostedresources", Name: e.resource.String()}
	if !e.final {
		details.RetryAfterSeconds = retryAfterSeconds
	}
	return unavailable(e.Error(), details)
}

// storeUnavailable is the error of a Store that cannot be used, as clients get it.
// Stores say it in that form themselves.
func storeUnavailable(store string, reason error) error {
	var known apierrors.APIStatus
	if errors.As(reason, &known) {
		return reason
	}
	details := &metav1.StatusDetails{Group: hostingv1alpha1.SchemeGroupVersion.Group, Kind: "stores", Name: store}
	return unavailable(fmt.Sprintf("store %q is not available: %v", store, reason), details)
}

func unavailable(message string, details *metav1.StatusDetails) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusServiceUnavailable,
		Reason:  metav1.StatusReasonServiceUnavailable,
		Message: message,
		Details: details,
	}}
}

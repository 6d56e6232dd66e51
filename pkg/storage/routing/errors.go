// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// retryAfterSeconds is the Retry-After of a resource that is about to be placed. No other
// error has one: clients would retry silently for a while, and a write that may have been
// done must not be retried.
const retryAfterSeconds = 1

// notPlacedError is the error of a resource without a Store.
type notPlacedError struct {
	resource schema.GroupResource
	why      string
	// final is set if waiting does not help.
	final bool
}

func notPlaced(resource schema.GroupResource, why string, final bool) error {
	return &notPlacedError{resource: resource, why: why, final: final}
}

// Error implements error.
func (e *notPlacedError) Error() string {
	return fmt.Sprintf("hostedresource %s %s", e.resource, e.why)
}

// status returns the error for clients.
func (e *notPlacedError) status() error {
	details := &metav1.StatusDetails{Group: hostingv1alpha1.SchemeGroupVersion.Group, Kind: "hostedresources", Name: e.resource.String()}
	if !e.final {
		details.RetryAfterSeconds = retryAfterSeconds
	}
	return unavailable(e.Error(), details)
}

// storeUnavailable returns the error of an unavailable Store for clients. Stores themselves
// return an API status, which stays as it is.
func storeUnavailable(store string, reason error) error {
	var known apierrors.APIStatus
	if errors.As(reason, &known) {
		return reason
	}
	details := &metav1.StatusDetails{Group: hostingv1alpha1.SchemeGroupVersion.Group, Kind: "stores", Name: store}
	return unavailable(fmt.Sprintf("store %q is not available: %v", store, reason), details)
}

func unavailable(message string, details *metav1.StatusDetails) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = details
	return err
}

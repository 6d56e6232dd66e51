// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

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
func storeUnavailable(store string, reason error) error {
	var said apierrors.APIStatus
	if errors.As(reason, &said) {
		return &apierrors.StatusError{ErrStatus: said.Status()}
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

// storeFull is the error of a write to a Store that has no space left.
func storeFull(store string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure,
		Code:   http.StatusInsufficientStorage,
		Reason: "StoreFull",
		Message: fmt.Sprintf("store %q is full: it refuses writes until objects are deleted or its etcd gets a larger quota; "+
			"reads and deletes go on", store),
		Details: &metav1.StatusDetails{Group: hostingv1alpha1.SchemeGroupVersion.Group, Kind: "stores", Name: store},
	}}
}

// explain turns errors of etcd itself into such that name the Store. What is about
// objects stays as it is.
func explain(ctx context.Context, store Store, err error) error {
	if err == nil {
		return nil
	}
	var known apierrors.APIStatus
	var ofObject *storage.StorageError
	if errors.As(err, &known) || errors.As(err, &ofObject) {
		return err
	}
	if down := store.Available(); down != nil {
		return storeUnavailable(store.Name(), down)
	}
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return storeFull(store.Name())
	case code(err) == codes.Unavailable:
		return storeUnavailable(store.Name(), err)
	case code(err) == codes.DeadlineExceeded && ctx.Err() == nil:
		return storeUnavailable(store.Name(), err)
	}
	return err
}

// code is how etcd or the connection to it classes an error.
func code(err error) codes.Code {
	var ofEtcd rpctypes.EtcdError
	if errors.As(err, &ofEtcd) {
		return ofEtcd.Code()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return codes.DeadlineExceeded
	}
	if s, ok := status.FromError(err); ok {
		return s.Code()
	}
	return codes.Unknown
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corruption

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UnsafeDelete is upstream's option for deleting unreadable objects.
const UnsafeDelete = "ignoreStoreReadErrorWithClusterBreakingPotential"

// maxNames bounds the objects named in an error.
const maxNames = 10

// damageError is the error of a damaged value. It is an APIStatus because upstream ends
// watches with those unchanged. Other errors become internal errors, after which a watch
// cache retries the same watch for half a minute.
type damageError struct {
	resource schema.GroupResource
	object   string // may be empty
	cause    error
}

// Error implements error.
func (e *damageError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *damageError) Unwrap() error { return e.cause }

// Status implements apierrors.APIStatus.
func (e *damageError) Status() metav1.Status {
	what := e.object
	if what == "" {
		what = "an object"
	}
	return storeReadError(e.resource, fmt.Sprintf("%s %s cannot be read: %v", e.resource, what, e.cause)).ErrStatus
}

func storeReadError(resource schema.GroupResource, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonStoreReadError,
		Message: message,
		Details: &metav1.StatusDetails{Group: resource.Group, Kind: resource.Resource},
	}}
}

// isExternal reports whether a service that provides a key or a dictionary failed, and the value may be
// intact.
func isExternal(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	var ofEtcd rpctypes.EtcdError
	var ofServer apierrors.APIStatus // of an unavailable Store
	if ctx.Err() != nil || errors.As(err, &ofEtcd) || errors.As(err, &ofServer) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if _, ok := status.FromError(err); ok {
		return true
	}
	// errors.Unwrap does not support aggregates.
	if many, ok := err.(interface{ Errors() []error }); ok {
		return slices.ContainsFunc(many.Errors(), func(one error) bool { return isExternal(ctx, one) })
	}
	return isExternal(ctx, errors.Unwrap(err))
}

// unreadableCauses returns the reasons by key in etcd, if a list failed because of
// unreadable objects.
func unreadableCauses(err error) map[string]string {
	var failed *apierrors.StatusError
	if !errors.As(err, &failed) || failed.ErrStatus.Reason != metav1.StatusReasonStoreReadError || failed.ErrStatus.Details == nil {
		return nil
	}
	causes := map[string]string{}
	for _, cause := range failed.ErrStatus.Details.Causes {
		if cause.Field != "" {
			causes[cause.Field] = reasonOf(cause.Message)
		}
	}
	return causes
}

// reasonOf removes the key from a message of upstream's storage.
func reasonOf(message string) string {
	if _, reason, found := strings.Cut(message, "AdditionalErrorMsg: "); found {
		return reason
	}
	return message
}

// explanation is the message to clients about unreadable objects.
func explanation(resource schema.GroupResource, objects []Object) string {
	if len(objects) == 1 {
		return fmt.Sprintf("%s %s cannot be read: %s; it has to be made readable, or deleted with %s",
			resource, objects[0], objects[0].Reason, UnsafeDelete)
	}
	return fmt.Sprintf("%s cannot be read: %s; they have to be made readable, or deleted one by one with %s",
		resource, Names(objects), UnsafeDelete)
}

// Names lists the first objects for messages.
func Names(objects []Object) string {
	names := make([]string, 0, maxNames)
	for _, object := range objects[:min(len(objects), maxNames)] {
		names = append(names, object.String())
	}
	if more := len(objects) - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}

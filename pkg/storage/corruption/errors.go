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

// UnsafeDelete is upstream's option that deletes what cannot be read. It has to be true.
const UnsafeDelete = "ignoreStoreReadErrorWithClusterBreakingPotential"

// maxNames is how many objects are named where there are many.
const maxNames = 10

// damageError is the error of a value that is at fault itself. It is a Status because
// upstream ends watches with those as they are. Other errors become internal ones, after
// which a watch cache tries the same watch again for half a minute.
type damageError struct {
	resource schema.GroupResource
	object   string // empty where it is not known
	cause    error
}

// Error implements error.
func (e *damageError) Error() string { return e.cause.Error() }

// Unwrap returns the error of what failed to read the value.
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

// isElsewhere reports whether an error is that of a service that was asked for a key or
// a dictionary, and not of the value.
func isElsewhere(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	var ofEtcd rpctypes.EtcdError
	var ofServer apierrors.APIStatus // as a Store that is not available has it
	if ctx.Err() != nil || errors.As(err, &ofEtcd) || errors.As(err, &ofServer) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	if _, ok := status.FromError(err); ok {
		return true
	}
	// Aggregates cannot be unwrapped.
	if many, ok := err.(interface{ Errors() []error }); ok {
		return slices.ContainsFunc(many.Errors(), func(one error) bool { return isElsewhere(ctx, one) })
	}
	return isElsewhere(ctx, errors.Unwrap(err))
}

// unreadableCauses returns why objects cannot be read, by their keys in etcd, if a list
// failed because of them.
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

// reasonOf is what a message of upstream's storage says beyond the key.
func reasonOf(message string) string {
	if _, reason, found := strings.Cut(message, "AdditionalErrorMsg: "); found {
		return reason
	}
	return message
}

// explanation is what clients are told about objects that cannot be read.
func explanation(resource schema.GroupResource, objects []Object) string {
	if len(objects) == 1 {
		return fmt.Sprintf("%s %s cannot be read: %s; it has to be made readable, or deleted with %s",
			resource, objects[0], objects[0].Reason, UnsafeDelete)
	}
	return fmt.Sprintf("%s cannot be read: %s; they have to be made readable, or deleted one by one with %s",
		resource, Names(objects), UnsafeDelete)
}

// Names lists objects for people: not all, if there are many.
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

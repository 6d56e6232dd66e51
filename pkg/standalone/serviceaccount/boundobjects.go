// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// validateObjects returns an error unless the token was issued for the current service
// account and, if it is bound to a Secret, for the current Secret.
func (a *tokenAuthenticator) validateObjects(ctx context.Context, token *kubernetesClaims) error {
	err := checkReference(ctx, token.ServiceAccount, a.ServiceAccounts.ServiceAccounts(token.Namespace), a.Live.ServiceAccounts(token.Namespace))
	if err != nil {
		return fmt.Errorf("the service account %s/%s of the token %w", token.Namespace, token.ServiceAccount.Name, err)
	}
	if token.Secret == nil {
		return nil
	}
	err = checkReference(ctx, *token.Secret, a.Secrets.Secrets(token.Namespace), a.Live.Secrets(token.Namespace))
	if err != nil {
		return fmt.Errorf("the Secret %s/%s that the token is bound to %w", token.Namespace, token.Secret.Name, err)
	}
	return nil
}

// lister is a lister of one namespace.
type lister[T metav1.Object] interface {
	Get(name string) (T, error)
}

// client is a client of one namespace.
type client[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// checkReference returns nil if the referenced object exists. If the cache lacks it,
// the cache may be behind, and the live object is read.
func checkReference[T metav1.Object](ctx context.Context, wanted reference, cached lister[T], live client[T]) error {
	if object, err := cached.Get(wanted.Name); err == nil && matches(wanted, object) == nil {
		return nil
	}
	object, err := live.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errDeleted
	}
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return matches(wanted, object)
}

// boundObjectError says what happened to an object. It ends a sentence.
type boundObjectError string

func (e boundObjectError) Error() string { return string(e) }

const (
	errDeleted   = boundObjectError("no longer exists")
	errRecreated = boundObjectError("was replaced by another one of that name")
)

// isFinal reports whether the token is permanently invalid: no object gets the UID of a
// previous one.
func isFinal(err error) bool {
	var gone boundObjectError
	return errors.As(err, &gone)
}

// matches treats an object that is being deleted as deleted: finalizers may keep it
// indefinitely.
func matches(wanted reference, object metav1.Object) error {
	switch {
	case string(object.GetUID()) != wanted.UID:
		return errRecreated
	case object.GetDeletionTimestamp() != nil:
		return errDeleted
	}
	return nil
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// boundObjectValidator checks that the objects named by tokens still exist.
type boundObjectValidator struct {
	serviceAccounts corev1listers.ServiceAccountLister
	secrets         corev1listers.SecretLister
	live            corev1client.CoreV1Interface
}

// validate returns an error unless the service account, and the Secret of a token that
// is bound to one, are those that the token was issued for.
func (b boundObjectValidator) validate(ctx context.Context, token *kubernetesClaims) error {
	err := checkReference(ctx, token.ServiceAccount, objectReader{
		cached: func(name string) (metav1.Object, error) {
			return b.serviceAccounts.ServiceAccounts(token.Namespace).Get(name)
		},
		live: func(ctx context.Context, name string) (metav1.Object, error) {
			return b.live.ServiceAccounts(token.Namespace).Get(ctx, name, metav1.GetOptions{})
		},
	})
	if err != nil {
		return fmt.Errorf("the service account %s/%s of the token %w", token.Namespace, token.ServiceAccount.Name, err)
	}
	if token.Secret == nil {
		return nil
	}
	err = checkReference(ctx, *token.Secret, objectReader{
		cached: func(name string) (metav1.Object, error) { return b.secrets.Secrets(token.Namespace).Get(name) },
		live: func(ctx context.Context, name string) (metav1.Object, error) {
			return b.live.Secrets(token.Namespace).Get(ctx, name, metav1.GetOptions{})
		},
	})
	if err != nil {
		return fmt.Errorf("the Secret %s/%s that the token is bound to %w", token.Namespace, token.Secret.Name, err)
	}
	return nil
}

// objectReader reads objects of one resource.
type objectReader struct {
	cached func(name string) (metav1.Object, error)
	live   func(ctx context.Context, name string) (metav1.Object, error)
}

// checkReference returns nil if the referenced object exists. If the cache lacks it,
// the cache may be behind, and the live object is read.
func checkReference(ctx context.Context, wanted reference, find objectReader) error {
	if object, err := find.cached(wanted.Name); err == nil && matches(wanted, object) == nil {
		return nil
	}
	object, err := find.live(ctx, wanted.Name)
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
	errDeleted   = boundObjectError("does not exist any more")
	errRecreated = boundObjectError("is another one of that name")
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

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

// bearers knows whether what tokens name still exists.
type bearers struct {
	serviceAccounts corev1listers.ServiceAccountLister
	secrets         corev1listers.SecretLister
	live            corev1client.CoreV1Interface
}

// check returns an error unless the service account, and the Secret if the token is
// bound to one, are those that the token was made for.
func (b bearers) check(ctx context.Context, token *kubernetesClaims) error {
	err := current(ctx, token.ServiceAccount, finder{
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
	err = current(ctx, *token.Secret, finder{
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

// finder reads objects of one resource.
type finder struct {
	cached func(name string) (metav1.Object, error)
	live   func(ctx context.Context, name string) (metav1.Object, error)
}

// current returns nil if the object exists and is the one that wanted means. A cache
// that says so is believed. One that does not may be behind, because the object was
// made just now, and the store is asked.
func current(ctx context.Context, wanted reference, find finder) error {
	if object, err := find.cached(wanted.Name); err == nil && isCurrent(wanted, object) == nil {
		return nil
	}
	object, err := find.live(ctx, wanted.Name)
	if apierrors.IsNotFound(err) {
		return errDeleted
	}
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return isCurrent(wanted, object)
}

// bearerError says what became of an object. It is the end of a sentence.
type bearerError string

func (e bearerError) Error() string { return string(e) }

const (
	errDeleted   = bearerError("does not exist any more")
	errRecreated = bearerError("is another one of that name")
)

// isFinal reports whether nothing can make it good again: no object gets the UID of
// one before.
func isFinal(err error) bool {
	var gone bearerError
	return errors.As(err, &gone)
}

// isCurrent takes an object that is being deleted for deleted: finalizers may keep it
// for as long as they like.
func isCurrent(wanted reference, object metav1.Object) error {
	switch {
	case string(object.GetUID()) != wanted.UID:
		return errRecreated
	case object.GetDeletionTimestamp() != nil:
		return errDeleted
	}
	return nil
}

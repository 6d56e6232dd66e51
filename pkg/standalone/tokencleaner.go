// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

// newTokenCleaner returns a controller that deletes the Secrets of bootstrap tokens that
// have expired.
func newTokenCleaner(annexSecrets corev1client.SecretInterface, informer cache.SharedIndexInformer) (*framework.Queue[string], error) {
	secrets := corev1listers.NewSecretLister(informer.GetIndexer()).Secrets(metav1.NamespaceSystem)
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: tokenCleanerName, Reconcile: func(ctx context.Context, name string) (framework.Result, error) {
		secret, err := framework.IgnoreNotFound(secrets.Get(name))
		if err != nil {
			return framework.Result{}, fmt.Errorf("read Secret %s: %w", name, err)
		}
		if secret == nil || secret.Type != bootstrapapi.SecretTypeBootstrapToken || secret.DeletionTimestamp != nil {
			return framework.Result{}, nil
		}
		return cleanToken(ctx, annexSecrets, secret)
	}})
	return queue, queue.Watch(framework.Source{Name: "secrets", Informer: informer, Handler: framework.Every(func(secret *corev1.Secret) {
		if secret.Namespace == metav1.NamespaceSystem && secret.Type == bootstrapapi.SecretTypeBootstrapToken {
			queue.Add(secret.Name)
		}
	})})
}

// cleanToken deletes a Secret whose token has expired, or requeues it for the expiration.
func cleanToken(ctx context.Context, annexSecrets corev1client.SecretInterface, secret *corev1.Secret) (framework.Result, error) {
	expiration := string(secret.Data[bootstrapapi.BootstrapTokenExpirationKey])
	if expiration == "" {
		return framework.Result{}, nil
	}
	expires, err := time.Parse(time.RFC3339, expiration)
	if err != nil {
		// Such a token cannot log in. An administrator may correct it.
		klog.FromContext(ctx).V(2).Info("The expiration of a bootstrap token is not a time, leaving it", "secret", klog.KObj(secret), "err", err)
		return framework.Result{}, nil
	}
	if left := time.Until(expires); left > 0 {
		return framework.Result{RequeueAfter: left}, nil
	}
	// The precondition keeps a token that is extended concurrently.
	err = annexSecrets.Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return framework.Result{}, fmt.Errorf("delete Secret %s of an expired bootstrap token: %w", secret.Name, err)
	}
	return framework.Result{}, nil
}

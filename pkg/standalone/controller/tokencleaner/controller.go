// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokencleaner deletes the Secrets of bootstrap tokens that have expired.
package tokencleaner

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

// ControllerName names the controller in logs and metrics.
const ControllerName = "tokencleaner"

// Config holds what the controller depends on.
type Config struct {
	AnnexSecrets corev1client.SecretsGetter

	Secrets cache.SharedIndexInformer
}

// reconciler deletes Secrets.
type reconciler struct {
	annexSecrets corev1client.SecretInterface
	secrets      corev1listers.SecretNamespaceLister
}

// New returns a controller that adds a handler to the informer of config. It does nothing
// before Run.
func New(config Config) (*framework.Queue[string], error) {
	r := &reconciler{
		annexSecrets: config.AnnexSecrets.Secrets(metav1.NamespaceSystem),
		secrets:      corev1listers.NewSecretLister(config.Secrets.GetIndexer()).Secrets(metav1.NamespaceSystem),
	}
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	return queue, queue.Watch(framework.Source{Name: "secrets", Informer: config.Secrets, Handler: framework.Every(func(secret *corev1.Secret) {
		if secret.Namespace == metav1.NamespaceSystem && secret.Type == bootstrapapi.SecretTypeBootstrapToken {
			queue.Add(secret.Name)
		}
	})})
}

// reconcile deletes a Secret whose token has expired, or requeues it for the expiration.
func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	secret, err := framework.IgnoreNotFound(r.secrets.Get(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read Secret %s: %w", name, err)
	}
	if secret == nil || secret.Type != bootstrapapi.SecretTypeBootstrapToken || secret.DeletionTimestamp != nil {
		return framework.Result{}, nil
	}
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
	err = r.annexSecrets.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return framework.Result{}, fmt.Errorf("delete Secret %s of an expired bootstrap token: %w", name, err)
	}
	return framework.Result{}, nil
}

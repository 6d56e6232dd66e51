// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serviceaccount creates a service account "default" in every namespace. Clients
// and charts for Kubernetes expect it.
package serviceaccount

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "serviceaccount"

	// defaultName is the service account that every namespace has.
	defaultName = "default"
)

// Config holds what the controller depends on.
type Config struct {
	AnnexServiceAccounts corev1client.ServiceAccountsGetter

	Namespaces, ServiceAccounts cache.SharedIndexInformer
}

// reconciler creates service accounts.
type reconciler struct {
	annexServiceAccounts corev1client.ServiceAccountsGetter
	namespaces           corev1listers.NamespaceLister
	serviceAccounts      corev1listers.ServiceAccountLister
}

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*framework.Queue[string], error) {
	r := &reconciler{
		annexServiceAccounts: config.AnnexServiceAccounts,
		namespaces:           corev1listers.NewNamespaceLister(config.Namespaces.GetIndexer()),
		serviceAccounts:      corev1listers.NewServiceAccountLister(config.ServiceAccounts.GetIndexer()),
	}
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile})
	return queue, queue.Watch(
		framework.Source{Name: "namespaces", Informer: config.Namespaces, Handler: framework.Every(func(namespace *corev1.Namespace) { queue.Add(namespace.Name) })},
		framework.Source{Name: "service accounts", Informer: config.ServiceAccounts, Handler: framework.Handler[*corev1.ServiceAccount]{
			Deleted: func(serviceAccount *corev1.ServiceAccount) {
				if serviceAccount.Name == defaultName {
					queue.Add(serviceAccount.Namespace)
				}
			},
		}},
	)
}

func (r *reconciler) reconcile(ctx context.Context, name string) (framework.Result, error) {
	namespace, err := framework.IgnoreNotFound(r.namespaces.Get(name))
	if err != nil {
		return framework.Result{}, fmt.Errorf("read namespace %s: %w", name, err)
	}
	if namespace == nil || namespace.DeletionTimestamp != nil {
		return framework.Result{}, nil
	}
	if _, err := r.serviceAccounts.ServiceAccounts(name).Get(defaultName); !apierrors.IsNotFound(err) {
		return framework.Result{}, err
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: defaultName}}
	_, err = r.annexServiceAccounts.ServiceAccounts(name).Create(ctx, serviceAccount, metav1.CreateOptions{})
	if err == nil || isSettled(err) {
		return framework.Result{}, nil
	}
	return framework.Result{}, fmt.Errorf("create the service account %s/%s: %w", name, defaultName, err)
}

// isSettled reports whether the caches lagged: there is no service account to create.
func isSettled(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

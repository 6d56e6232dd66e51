// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package namespace finishes the deletion of namespaces: it deletes their contents,
// custom resources included, and then removes the finalizer.
//
// A namespace must not go while it may still have contents, which would appear in the
// next namespace of that name. So if its contents are not completely known (discovery
// fails or is partial, a resource returns an error), the controller deletes what it
// knows, reports the failure in the namespace's conditions, and retries.
package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "namespace"

	// DefaultSettlePeriod is the minimum time from the request of the deletion to the
	// removal of the finalizer. Writes that were admitted before the request reach etcd
	// in that time, also from replicas whose watch lags. kube-controller-manager has the
	// same period.
	DefaultSettlePeriod = 5 * time.Second

	// maxBackoff bounds the wait after errors, such as partial discovery.
	maxBackoff = 8 * time.Second
)

// DiscoverFunc lists the namespaced resources in their preferred versions. It may return
// a partial list with an error.
type DiscoverFunc func(ctx context.Context) ([]*metav1.APIResourceList, error)

// Config holds what the controller depends on.
type Config struct {
	AnnexNamespaces corev1client.NamespaceInterface
	AnnexMetadata   metadata.Interface
	Discover        DiscoverFunc

	Namespaces coreinformers.NamespaceInformer
	// CustomResourceDefinitions supplements discovery, which may lack custom resources
	// after a start or the creation of a definition, without an error.
	CustomResourceDefinitions apiextensionsinformers.CustomResourceDefinitionInformer

	// SettlePeriod replaces DefaultSettlePeriod when positive.
	SettlePeriod time.Duration
}

// Controller empties the namespaces that are being deleted.
type Controller struct {
	queue  *framework.Queue[string]
	synced []cache.DoneChecker
}

// New returns a controller that adds handlers to the informers of config. It does nothing
// before Run.
func New(config Config) (*Controller, error) {
	settle := DefaultSettlePeriod
	if config.SettlePeriod > 0 {
		settle = config.SettlePeriod
	}
	definitions := config.CustomResourceDefinitions.Lister()
	contents := &contentDeleter{annexMetadata: config.AnnexMetadata, now: time.Now}
	r := &reconciler{
		getNamespace: func(ctx context.Context, name string) (*corev1.Namespace, error) {
			return config.AnnexNamespaces.Get(ctx, name, metav1.GetOptions{})
		},
		updateStatus: func(ctx context.Context, namespace *corev1.Namespace) (*corev1.Namespace, error) {
			return config.AnnexNamespaces.UpdateStatus(ctx, namespace, metav1.UpdateOptions{})
		},
		finalize: func(ctx context.Context, namespace *corev1.Namespace) (*corev1.Namespace, error) {
			return config.AnnexNamespaces.Finalize(ctx, namespace, metav1.UpdateOptions{})
		},
		discover:        config.Discover,
		listDefinitions: func() ([]*definition, error) { return definitions.List(labels.Everything()) },
		deleteContents:  contents.deleteAll,
		now:             time.Now,
		settle:          settle,
	}
	c := &Controller{
		queue: framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile, MaxBackoff: maxBackoff}),
	}
	registration, err := config.Namespaces.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.enqueue(nil, obj) },
		UpdateFunc: func(before, after any) {
			previous, _ := before.(*corev1.Namespace)
			c.enqueue(previous, after)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch namespaces: %w", err)
	}
	c.synced = []cache.DoneChecker{
		registration.HasSyncedChecker(),
		config.CustomResourceDefinitions.Informer().HasSyncedChecker(),
	}
	return c, nil
}

// Run deletes namespaces until ctx is done.
func (c *Controller) Run(ctx context.Context, workers int) {
	c.queue.Run(ctx, workers, c.synced...)
}

// enqueue queues a namespace that is being deleted.
func (c *Controller) enqueue(before *corev1.Namespace, obj any) {
	if after, ok := obj.(*corev1.Namespace); ok && canGoOn(before, after) {
		c.queue.Add(after.Name)
	}
}

// canGoOn reports whether a change begins a deletion or may let it continue. before is
// nil for a new namespace. Changes of only the status are the controller's own.
func canGoOn(before, after *corev1.Namespace) bool {
	if after.DeletionTimestamp.IsZero() {
		return false
	}
	return before == nil || before.UID != after.UID || before.DeletionTimestamp.IsZero() ||
		!slices.Equal(before.Spec.Finalizers, after.Spec.Finalizers)
}

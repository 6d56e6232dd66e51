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
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/annex-dev/annex/pkg/controller/framework"
)

const (
	// ControllerName names the controller in logs and metrics.
	ControllerName = "namespace"

	// settlePeriod is the minimum time from the request of the deletion to the
	// removal of the finalizer. Writes that were admitted before the request reach etcd
	// in that time, also from replicas whose watch lags. kube-controller-manager has the
	// same period.
	settlePeriod = 5 * time.Second

	// maxBackoff bounds the wait after errors, such as partial discovery.
	maxBackoff = 8 * time.Second
)

// DiscoverFunc lists the namespaced resources in their preferred versions. It may return
// a partial list with an error.
type DiscoverFunc func(ctx context.Context) ([]*metav1.APIResourceList, error)

// Contents are the objects of a resource in a namespace.
type Contents interface {
	List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)
	DeleteCollection(ctx context.Context, options metav1.DeleteOptions, listOptions metav1.ListOptions) error
}

// StoredObjectsFunc returns the objects of a custom resource in a namespace, also if no version
// is served.
type StoredObjectsFunc func(crd *apiextensionsv1.CustomResourceDefinition, namespace string) (Contents, error)

// Config holds what the controller depends on.
type Config struct {
	AnnexNamespaces corev1client.NamespaceInterface
	AnnexMetadata   metadata.Interface
	StoredObjects   StoredObjectsFunc
	Discover        DiscoverFunc

	Namespaces coreinformers.NamespaceInformer
	// CustomResourceDefinitions supplements discovery, which may lack custom resources
	// after a start or the creation of a definition, without an error.
	CustomResourceDefinitions apiextensionsinformers.CustomResourceDefinitionInformer
}

// New returns a controller that empties the namespaces that are being deleted. It adds a
// handler to the informer of config and does nothing before Run.
func New(config Config) (*framework.Queue[string], error) {
	definitions := config.CustomResourceDefinitions.Lister()
	contents := &contentDeleter{annexMetadata: config.AnnexMetadata, storedObjects: config.StoredObjects, now: time.Now}
	r := &reconciler{
		getNamespace:    config.AnnexNamespaces.Get,
		updateStatus:    config.AnnexNamespaces.UpdateStatus,
		finalize:        config.AnnexNamespaces.Finalize,
		discover:        config.Discover,
		listDefinitions: func() ([]*definition, error) { return definitions.List(labels.Everything()) },
		deleteContents:  contents.deleteAll,
		now:             time.Now,
	}
	queue := framework.NewQueue(framework.QueueConfig[string]{Name: ControllerName, Reconcile: r.reconcile, MaxBackoff: maxBackoff})
	queue.WaitFor(config.CustomResourceDefinitions.Informer().HasSyncedChecker())
	updated := func(before, after *corev1.Namespace) {
		if canGoOn(before, after) {
			queue.Add(after.Name)
		}
	}
	return queue, queue.Watch(framework.Source{Name: "namespaces", Informer: config.Namespaces.Informer(), Handler: framework.Handler[*corev1.Namespace]{
		Added: func(namespace *corev1.Namespace) { updated(nil, namespace) }, Updated: updated,
	}})
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

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"
)

// crdRegistration registers an APIService for every group version that a CRD serves,
// and removes it with the last such CRD.
type crdRegistration struct {
	crds         crdlisters.CustomResourceDefinitionLister
	crdsSynced   cache.InformerSynced
	registration autoregister.AutoAPIServiceRegistration
	compiledIn   sets.Set[string]
	queue        workqueue.TypedInterface[schema.GroupVersion]
	initialSync  chan struct{}
}

func newCRDRegistration(crds crdinformers.CustomResourceDefinitionInformer, registration autoregister.AutoAPIServiceRegistration) (*crdRegistration, error) {
	c := &crdRegistration{
		crds:         crds.Lister(),
		registration: registration,
		compiledIn:   CompiledInGroups(),
		queue:        workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[schema.GroupVersion]{Name: "crd-apiservice-registration"}),
		initialSync:  make(chan struct{}),
	}
	handler, err := crds.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue,
		UpdateFunc: func(old, updated any) {
			// An update may remove a version, so the old ones are checked too.
			c.enqueue(old)
			c.enqueue(updated)
		},
		DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("watch CRDs: %w", err)
	}
	c.crdsSynced = handler.HasSynced
	return c, nil
}

func (c *crdRegistration) enqueue(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || c.compiledIn.Has(crd.Spec.Group) {
		// Admission rejects the second. One that was stored before must not replace the
		// APIService of the group, nor remove it when it is deleted.
		return
	}
	for _, version := range crd.Spec.Versions {
		c.queue.Add(schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name})
	}
}

// Run maintains the registrations until ctx is done.
func (c *crdRegistration) Run(ctx context.Context) {
	defer c.queue.ShutDown()
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.crdsSynced) {
		return
	}
	// All CRDs that exist at the start are queued by now; the initial sync ends when
	// the queue is empty.
	for c.queue.Len() > 0 {
		c.processNext(ctx)
	}
	close(c.initialSync)
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.processNext(ctx) {
	}
}

// WaitForInitialSync returns true when every CRD that existed at the start is
// registered, and false when ctx is done first.
func (c *crdRegistration) WaitForInitialSync(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.initialSync:
		return true
	}
}

func (c *crdRegistration) processNext(ctx context.Context) bool {
	groupVersion, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(groupVersion)
	c.sync(ctx, groupVersion)
	return true
}

func (c *crdRegistration) sync(ctx context.Context, groupVersion schema.GroupVersion) {
	crds, err := c.crds.List(labels.Everything())
	if err != nil {
		// A lister reads memory and cannot fail.
		klog.FromContext(ctx).Error(err, "List CRDs from the cache")
		return
	}
	apiService := newAPIService(groupVersion, crdPriority)
	for _, crd := range crds {
		if crd.Spec.Group == groupVersion.Group && apiextensionshelpers.HasServedCRDVersion(crd, groupVersion.Version) {
			c.registration.AddAPIServiceToSync(apiService)
			return
		}
	}
	c.registration.RemoveAPIServiceToSync(apiService.Name)
}

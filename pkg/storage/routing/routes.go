// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/layer/limits"
)

// LiveFunc reads a HostedResource from the server.
type LiveFunc func(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error)

// route leads to the Store of a resource.
type route interface {
	// find returns the location of the resource, or an error from notPlaced.
	find() (location, error)
	// changed returns a channel that is closed when the result of find may have changed, or
	// nil if it never changes. It is called before find, so that no change is missed.
	changed() <-chan struct{}
	// limits returns the current limits.
	limits() limits.Limits
}

// location identifies the objects of a resource: equal locations have the same objects.
type location struct {
	// store is the name of the Store.
	store string
	// hosted is the UID of the HostedResource; empty for pinned resources.
	hosted types.UID
}

// routes reads the routes of all resources from HostedResources.
type routes struct {
	hosted hostinglisters.HostedResourceLister
	live   LiveFunc
	synced cache.DoneChecker

	mu sync.Mutex
	// changes has a channel for each resource whose changes are waited for, closed and removed at
	// the next.
	changes map[string]chan struct{}
}

func newRoutes(informer hostinginformers.HostedResourceInformer, live LiveFunc) (*routes, error) {
	r := &routes{hosted: informer.Lister(), live: live, changes: map[string]chan struct{}{}}
	registration, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: r.broadcast,
		UpdateFunc: func(old, updated any) {
			if isRerouted(old.(*hostingv1alpha1.HostedResource), updated.(*hostingv1alpha1.HostedResource)) {
				r.broadcast(updated)
			}
		},
		DeleteFunc: r.broadcast,
	})
	if err != nil {
		return nil, fmt.Errorf("watch hosted resources: %w", err)
	}
	r.synced = registration.HasSyncedChecker()
	return r, nil
}

// isRerouted reports whether an update may change the result of find. Most updates only
// change numbers in the status.
func isRerouted(old, updated *hostingv1alpha1.HostedResource) bool {
	return old.UID != updated.UID || old.Spec.StoreName != updated.Spec.StoreName ||
		old.Status.DefinitionUID != updated.Status.DefinitionUID ||
		!apiequality.Semantic.DeepEqual(
			meta.FindStatusCondition(old.Status.Conditions, hostingv1alpha1.HostedResourceScheduled),
			meta.FindStatusCondition(updated.Status.Conditions, hostingv1alpha1.HostedResourceScheduled))
}

// broadcast notifies the storage of the resource of a HostedResource.
func (r *routes) broadcast(hosted any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(hosted)
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("read the name of a HostedResource: %w", err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if change := r.changes[name]; change != nil {
		close(change)
		delete(r.changes, name)
	}
}

// changed implements route.
func (p *hostedRoute) changed() <-chan struct{} {
	if !cache.IsDone(p.synced) {
		return p.synced.Done()
	}
	name := p.resource.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changes[name] == nil {
		p.changes[name] = make(chan struct{})
	}
	return p.changes[name]
}

// hostedRoute is the route that a HostedResource sets, for one definition of the resource.
type hostedRoute struct {
	*routes
	resource   schema.GroupResource
	definition *apiextensionsv1.CustomResourceDefinition
	// terminating reports whether the definition is being deleted.
	terminating func() bool
}

// find implements route.
func (p *hostedRoute) find() (location, error) {
	if !cache.IsDone(p.synced) {
		return location{}, notPlaced(p.resource, "is not known yet, annex has just started", false)
	}
	hosted, err := p.hosted.Get(p.resource.String())
	switch {
	case apierrors.IsNotFound(err):
		return location{}, notPlaced(p.resource, "does not exist yet", false)
	case err != nil:
		return location{}, fmt.Errorf("read hosted resource %s: %w", p.resource, err)
	case hosted.Spec.StoreName == "":
		return location{}, unscheduled(p.resource, hosted)
	case hosted.Status.DefinitionUID != p.definition.UID && !hosted.DeletionTimestamp.IsZero():
		return location{}, notPlaced(p.resource, "is being deleted: once it is gone, one is made for the definition", false)
	case hosted.Status.DefinitionUID != p.definition.UID:
		return location{}, notPlaced(p.resource, "waits for annex to see the definition of the resource", false)
	}
	return location{store: hosted.Spec.StoreName, hosted: hosted.UID}, nil
}

// limits implements route.
func (p *hostedRoute) limits() limits.Limits {
	hosted, err := p.hosted.Get(p.resource.String())
	if err != nil {
		return limits.Unlimited()
	}
	return limits.Of(hosted)
}

// unscheduled returns why a resource has no Store.
func unscheduled(resource schema.GroupResource, hosted *hostingv1alpha1.HostedResource) error {
	scheduled := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
	if scheduled == nil || scheduled.Status != metav1.ConditionFalse {
		return notPlaced(resource, "has no Store yet", false)
	}
	return notPlaced(resource, "has no Store: "+scheduled.Message, true)
}

// neverPlaced reports whether the resource certainly has no objects: its definition is being
// deleted, and it still has no Store. It reads from the server, because a stale cache would leave
// objects behind.
func (p *hostedRoute) neverPlaced(ctx context.Context) bool {
	if !p.terminating() {
		return false
	}
	hosted, err := p.live(ctx, p.resource.String())
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return hosted.Spec.StoreName == ""
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	hostinginformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions/hosting/v1alpha1"
	hostinglisters "github.com/annex-dev/annex/pkg/generated/listers/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/limits"
)

// LiveFunc asks the server for a HostedResource.
type LiveFunc func(ctx context.Context, name string) (*hostingv1alpha1.HostedResource, error)

// route leads to the Store of a resource.
type route interface {
	// find returns the name of the Store, or an error from notPlaced.
	find() (store string, err error)
	// changed returns a channel that is closed when find may say something else, or
	// nil if it never will. To miss nothing, it is called before find.
	changed() <-chan struct{}
	// limits are those of the moment.
	limits() limits.Limits
}

// routes reads the routes of all resources off HostedResources.
type routes struct {
	hosted hostinglisters.HostedResourceLister
	live   LiveFunc
	synced cache.DoneChecker

	mu   sync.Mutex
	news chan struct{} // closed and replaced at every change
}

func newRoutes(informer hostinginformers.HostedResourceInformer, live LiveFunc) (*routes, error) {
	r := &routes{hosted: informer.Lister(), live: live, news: make(chan struct{})}
	registration, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { r.announce() },
		UpdateFunc: func(any, any) { r.announce() },
		DeleteFunc: func(any) { r.announce() },
	})
	if err != nil {
		return nil, fmt.Errorf("following hosted resources: %w", err)
	}
	r.synced = registration.HasSyncedChecker()
	return r, nil
}

// announce wakes all who wait for a route. Few do, and seldom: only between the
// making of a resource and its placing.
func (r *routes) announce() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.news)
	r.news = make(chan struct{})
}

func (r *routes) changed() <-chan struct{} {
	if !cache.IsDone(r.synced) {
		return r.synced.Done()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.news
}

// of returns the route of a resource, for one definition of it.
func (r *routes) of(resource schema.GroupResource, definition types.UID) *placement {
	return &placement{routes: r, resource: resource, definition: definition, terminating: func() bool { return false }}
}

// placement is the route that a HostedResource describes.
type placement struct {
	*routes
	resource   schema.GroupResource
	definition types.UID
	// terminating reports whether the definition is being deleted.
	terminating func() bool
}

// find implements route.
func (p *placement) find() (string, error) {
	if !cache.IsDone(p.synced) {
		return "", notPlaced(p.resource, "is not known yet, annex has just started", false)
	}
	hosted, err := p.hosted.Get(p.resource.String())
	switch {
	case apierrors.IsNotFound(err):
		return "", notPlaced(p.resource, "does not exist yet", false)
	case err != nil:
		return "", fmt.Errorf("reading hosted resource %s: %w", p.resource, err)
	case hosted.Spec.StoreName == "":
		return "", unscheduled(p.resource, hosted)
	case hosted.Status.DefinitionUID != p.definition:
		return "", notPlaced(p.resource, "waits for annex to see the definition of the resource", false)
	}
	return hosted.Spec.StoreName, nil
}

// limits implements route.
func (p *placement) limits() limits.Limits {
	hosted, err := p.hosted.Get(p.resource.String())
	if err != nil {
		return limits.Unlimited() // nothing says otherwise
	}
	return limits.Of(hosted)
}

// unscheduled says why a resource has no Store.
func unscheduled(resource schema.GroupResource, hosted *hostingv1alpha1.HostedResource) error {
	scheduled := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
	if scheduled == nil || scheduled.Status != metav1.ConditionFalse {
		return notPlaced(resource, "has no Store yet", false)
	}
	return notPlaced(resource, "has no Store: "+scheduled.Message, true)
}

// neverPlaced reports whether the resource certainly has no objects, because its
// definition is on its way out and it has no Store even now. It asks the server: who
// takes an old answer for the truth leaves objects behind.
func (p *placement) neverPlaced(ctx context.Context) bool {
	if !p.terminating() {
		return false
	}
	hosted, err := p.live(ctx, p.resource.String())
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return hosted.Spec.StoreName == ""
}

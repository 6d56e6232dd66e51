// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// buildInterval delays the documents of a group after a change, to collect more.
const buildInterval = 10 * time.Millisecond

// Upstream's priority of CustomResourceDefinitions.
const groupPriority, versionPriority = 1000, 100

// Discovery serves the discovery documents of CustomResourceDefinitions. For each event of a definition,
// upstream's controller builds the documents of a group version from all definitions. Discovery builds the
// documents of a group only from the group's definitions, at most every buildInterval.
type Discovery struct {
	informer   cache.SharedIndexInformer
	aggregated aggregated.ResourceManager
	queue      workqueue.TypedRateLimitingInterface[string]

	mu       sync.RWMutex
	groups   map[string]*discovery.APIGroupHandler
	versions map[schema.GroupVersion]*discovery.APIVersionHandler
	// built are the versions of a group that have documents.
	built map[string][]string
}

// NewDiscovery returns the discovery of the definitions of an informer with Indexers. aggregated gets
// the documents too.
func NewDiscovery(informer cache.SharedIndexInformer, aggregated aggregated.ResourceManager) (*Discovery, error) {
	c := &Discovery{
		informer: informer, aggregated: aggregated,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "DiscoveryController"}),
		groups: map[string]*discovery.APIGroupHandler{}, versions: map[schema.GroupVersion]*discovery.APIVersionHandler{},
		built: map[string][]string{},
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue, UpdateFunc: func(_, updated any) { c.enqueue(updated) }, DeleteFunc: c.enqueue,
	})
	if err != nil {
		return nil, fmt.Errorf("watch definitions: %w", err)
	}
	return c, nil
}

func (c *Discovery) enqueue(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if crd, ok := obj.(*definition); ok {
		c.queue.AddAfter(crd.Spec.Group, buildInterval)
	}
}

// Run keeps the documents current until ctx is done. It closes built when the documents of all existing
// definitions are served.
func (c *Discovery) Run(ctx context.Context, built chan<- struct{}) {
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	if !cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced) {
		return
	}
	for _, group := range c.informer.GetIndexer().ListIndexFuncValues(ByGroup) {
		c.build(group)
	}
	close(built)
	for {
		group, quit := c.queue.Get()
		if quit {
			return
		}
		c.build(group)
		c.queue.Done(group)
	}
}

// build builds the documents of a group. If it fails it is repeated.
func (c *Discovery) build(group string) {
	// The index exists, and reading memory cannot fail.
	found, _ := c.informer.GetIndexer().ByIndex(ByGroup, group)
	definitions := make([]*definition, 0, len(found))
	for _, obj := range found {
		if crd, ok := obj.(*definition); ok {
			definitions = append(definitions, crd)
		}
	}
	d, err := newDocuments(group, definitions)
	if err != nil {
		utilruntime.HandleError(err)
		c.queue.AddRateLimited(group)
		return
	}
	c.queue.Forget(group)
	c.set(group, d)
}

// set replaces the documents of a group.
func (c *Discovery) set(group string, d *documents) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.built[group]
	delete(c.built, group)
	if d == nil {
		delete(c.groups, group)
		c.aggregated.RemoveGroup(group)
		d = &documents{}
	} else {
		c.groups[group] = discovery.NewAPIGroupHandler(apiextensionsapiserver.Codecs, d.group)
	}
	for _, name := range before {
		if d.versions[name] == nil {
			delete(c.versions, schema.GroupVersion{Group: group, Version: name})
			c.aggregated.RemoveGroupVersion(metav1.GroupVersion{Group: group, Version: name})
		}
	}
	for name, of := range d.versions {
		version := d.groupVersion(name)
		c.built[group] = append(c.built[group], name)
		c.versions[version] = discovery.NewAPIVersionHandler(apiextensionsapiserver.Codecs, version,
			discovery.APIResourceListerFunc(func() []metav1.APIResource { return of.resources }))
		c.aggregated.AddGroupVersion(group, apidiscoveryv2.APIVersionDiscovery{
			Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Version: name, Resources: of.aggregated,
		})
		c.aggregated.SetGroupVersionPriority(metav1.GroupVersion(version), groupPriority, versionPriority)
	}
}

// Handler serves the documents in front of resources, which has the objects. Unknown groups and
// versions, and other paths, are for next.
func (c *Discovery) Handler(resources, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler := next
		if info, ok := request.RequestInfoFrom(r.Context()); !ok || info.IsResourceRequest {
			handler = resources
		} else if document := c.document(info.Path); document != nil {
			handler = document
		}
		handler.ServeHTTP(w, r)
	})
}

// document returns the handler of the document at a path: /apis/GROUP or /apis/GROUP/VERSION.
func (c *Discovery) document(path string) http.Handler {
	c.mu.RLock()
	defer c.mu.RUnlock()
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] != "apis" {
		return nil
	}
	switch len(parts) {
	case 2:
		if group := c.groups[parts[1]]; group != nil {
			return group
		}
	case 3:
		if version := c.versions[schema.GroupVersion{Group: parts[1], Version: parts[2]}]; version != nil {
			return version
		}
	}
	return nil
}

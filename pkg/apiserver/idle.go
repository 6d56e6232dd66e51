// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	crdlisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
)

const (
	// idleAfter is the time after the last request from which a custom resource without objects
	// is idle. Serving it again takes milliseconds.
	idleAfter = 15 * time.Second
	// idleInterval is the time between two checks.
	idleInterval = 5 * time.Second
	// manyResources take so much memory that it is worth a garbage collection.
	manyResources = 50
)

// idleResources makes upstream's handler release custom resources that are idle. The handler
// keeps the validators, schemas and storage of each resource after its first request, which are
// many times the size of the definition, until the definition changes.
type idleResources struct {
	definitions crdlisters.CustomResourceDefinitionLister
	// isEmpty reports whether a resource certainly has no objects, so that no watch cache is lost.
	isEmpty func(schema.GroupResource) bool
	now     func() time.Time
	// changed is the handler of changes of definitions of upstream's handler.
	changed cache.ResourceEventHandler

	mu sync.Mutex
	// used has the requested resources, by the names of their definitions.
	used map[string]*use
}

// use records the requests of a resource.
type use struct {
	requests int
	last     time.Time
}

// Handler counts the requests of each resource.
func (i *idleResources) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		name := info.Resource + "." + info.APIGroup
		if _, err := i.definitions.Get(name); err != nil {
			next.ServeHTTP(w, r)
			return
		}
		i.count(name, 1)
		defer i.count(name, -1)
		next.ServeHTTP(w, r)
	})
}

func (i *idleResources) count(name string, requests int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	u := i.used[name]
	if u == nil {
		u = &use{}
		i.used[name] = u
	}
	u.requests += requests
	u.last = i.now()
}

// Run releases idle resources until ctx is done. It returns the memory of many to the system an
// interval later, when their storage is closed: an idle server collects no garbage for minutes.
func (i *idleResources) Run(ctx context.Context) {
	unreturned := 0
	wait.UntilWithContext(ctx, func(context.Context) {
		released := i.release()
		if unreturned += released; released == 0 && unreturned >= manyResources {
			debug.FreeOSMemory()
			unreturned = 0
		}
	}, idleInterval)
}

// release releases the resources that are idle now. It returns their number.
func (i *idleResources) release() (released int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for name, u := range i.used {
		crd, err := i.definitions.Get(name)
		switch {
		case u.requests > 0:
		case err != nil:
			delete(i.used, name)
		case i.now().Sub(u.last) >= idleAfter && crd.DeletionTimestamp.IsZero() && i.isEmpty(schema.ParseGroupResource(name)):
			// The handler closes what it has of the resource when the spec changes, once requests that
			// came meanwhile are answered.
			i.changed.OnUpdate(crd, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: crd.ObjectMeta})
			delete(i.used, name)
			released++
		}
	}
	return released
}

// informer returns the informer for upstream's handler.
func (i *idleResources) informer(definitions crdinformers.CustomResourceDefinitionInformer) crdinformers.CustomResourceDefinitionInformer {
	return handlerInformer{definitions, i}
}

// handlerInformer keeps the handler of events that is added to an informer.
type handlerInformer struct {
	crdinformers.CustomResourceDefinitionInformer
	idle *idleResources
}

// Informer implements crdinformers.CustomResourceDefinitionInformer.
func (h handlerInformer) Informer() cache.SharedIndexInformer {
	return handlerEvents{h.CustomResourceDefinitionInformer.Informer(), h.idle}
}

type handlerEvents struct {
	cache.SharedIndexInformer
	idle *idleResources
}

// AddEventHandler implements cache.SharedInformer.
func (h handlerEvents) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.idle.changed = handler
	return h.SharedIndexInformer.AddEventHandler(handler)
}

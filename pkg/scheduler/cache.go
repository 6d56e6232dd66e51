// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// maxRemembered bounds for how many deleted resources the cache knows where they were.
const maxRemembered = 10_000

// storeCache is the Stores and what is placed on them, as the API says and as decisions
// assume that it will say soon.
type storeCache struct {
	mu        sync.Mutex
	stores    map[string]*framework.Store
	resources map[string]*framework.Resource
	// on is the Store that each resource is on, those that do not exist included;
	// assumed is the UID of those of which the API does not say so yet.
	on      map[string]string
	assumed map[string]types.UID
	// previous is where resources were that are deleted.
	previous map[string]string
}

func newStoreCache() *storeCache {
	return &storeCache{
		stores:    map[string]*framework.Store{},
		resources: map[string]*framework.Resource{},
		on:        map[string]string{},
		assumed:   map[string]types.UID{},
		previous:  map[string]string{},
	}
}

// setStore takes over what the API says of a Store.
func (s *storeCache) setStore(store *hostingv1alpha1.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.stores[store.Name]; found {
		known.Store = store
		return
	}
	added := framework.NewStore(store)
	for name, on := range s.on {
		if on == store.Name {
			added.Add(s.resources[name])
		}
	}
	s.stores[store.Name] = added
}

func (s *storeCache) removeStore(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stores, name)
}

// setResource takes over what the API says of a resource, and returns the Store on
// which others may fit because of it, if there is one.
func (s *storeCache) setResource(hosted *hostingv1alpha1.HostedResource) (relieved string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource := framework.NewResource(hosted)
	resource.Previous = s.previous[hosted.Name]
	before, known := s.resources[hosted.Name]
	s.resources[hosted.Name] = resource

	on := hosted.Spec.StoreName
	if uid, assumed := s.assumed[hosted.Name]; assumed && uid == hosted.UID && on == "" {
		on = s.on[hosted.Name]
	} else {
		delete(s.assumed, hosted.Name)
	}
	was := s.on[hosted.Name]
	s.put(resource, on)
	if was != "" && (was != on || known && (shrank(before, resource) || relabeled(before.HostedResource, hosted))) {
		return was
	}
	return ""
}

// shrank reports whether there is more room beside a resource than before.
func shrank(before, after *framework.Resource) bool {
	was, is := before.Expected(), after.Expected()
	return is.Storage < was.Storage || is.Objects < was.Objects
}

// removeResource forgets a resource but for the Store it was on, and returns that.
func (s *storeCache) removeResource(name string) (relieved string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.on[name]
	if resource, known := s.resources[name]; known {
		s.put(resource, "")
	}
	delete(s.resources, name)
	delete(s.assumed, name)
	if was == "" {
		return ""
	}
	if len(s.previous) >= maxRemembered {
		clear(s.previous)
	}
	s.previous[name] = was
	return was
}

// put places a resource on a Store, or with no name on none. The caller holds the lock.
func (s *storeCache) put(resource *framework.Resource, on string) {
	if was := s.stores[s.on[resource.Name]]; was != nil {
		was.Remove(resource.Name)
	}
	delete(s.on, resource.Name)
	if on == "" {
		return
	}
	s.on[resource.Name] = on
	if store := s.stores[on]; store != nil {
		store.Add(resource)
	}
}

// decide finds a Store for a resource that waits for one, and assumes that it will be
// placed there. It returns no resource if that does not wait any more.
func (s *storeCache) decide(name string, plugins *framework.Plugins) (*framework.Resource, framework.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, known := s.resources[name]
	if !known || s.on[name] != "" {
		return nil, nil
	}
	decision := plugins.Decide(resource, s.sorted())
	if best, ok := decision.Best(); ok {
		s.put(resource, best.Store)
		s.assumed[name] = resource.UID
	}
	return resource, decision
}

// forget takes an assumption back that did not come true, and returns the Store that
// was assumed. If the API spoke meanwhile there is nothing to take back.
func (s *storeCache) forget(resource *framework.Resource) (relieved string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, assumed := s.assumed[resource.Name]
	if !assumed || uid != resource.UID {
		return ""
	}
	was := s.on[resource.Name]
	delete(s.assumed, resource.Name)
	s.put(s.resources[resource.Name], "")
	return was
}

// reasons says why a resource cannot be placed on a Store; nothing if it can, or if one
// of them does not exist.
func (s *storeCache) reasons(name, storeName string, plugins *framework.Plugins) (reasons string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, store := s.resources[name], s.stores[storeName]
	if resource == nil || store == nil {
		return "", false
	}
	return framework.StoreResult{Reasons: plugins.Fits(resource, store)}.Message(), true
}

// placedOn is the Store that a resource is on, or is assumed to be.
func (s *storeCache) placedOn(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[name]
}

// sorted are the Stores by name. The caller holds the lock.
func (s *storeCache) sorted() []*framework.Store {
	stores := make([]*framework.Store, 0, len(s.stores))
	for _, store := range s.stores {
		stores = append(stores, store)
	}
	slices.SortFunc(stores, func(a, b *framework.Store) int { return cmp.Compare(a.Name, b.Name) })
	return stores
}

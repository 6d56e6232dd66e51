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

// maxRemembered bounds the number of deleted resources whose Store is remembered.
const maxRemembered = 10_000

// storeCache holds the Stores and the resources placed on them, observed or assumed.
type storeCache struct {
	mu        sync.Mutex
	stores    map[string]*framework.Store
	resources map[string]*framework.Resource
	// on has the Store of each placed resource; the Store may not exist.
	on map[string]string
	// moving has the Migration of each resource that is moved. It counts on both Stores.
	moving map[string]*hostingv1alpha1.Migration
	// assumed has the UIDs of resources whose placement was decided but not yet observed.
	assumed map[string]types.UID
	// previous has the Stores of deleted resources.
	previous map[string]string
	// unschedulable has the resources that fit on no Store.
	unschedulable map[string]*unschedulable
}

// unschedulable has the reasons for which a resource fits on no Store.
type unschedulable struct {
	// reasons are by Store.
	reasons map[string]string
	// changed is set once the reasons changed. The resource is decided again after a backoff.
	changed bool
}

func newStoreCache() *storeCache {
	return &storeCache{
		stores:    map[string]*framework.Store{},
		resources: map[string]*framework.Resource{},
		on:        map[string]string{},
		moving:    map[string]*hostingv1alpha1.Migration{},
		assumed:   map[string]types.UID{},
		previous:  map[string]string{},

		unschedulable: map[string]*unschedulable{},
	}
}

// setStore adds or updates a Store.
func (s *storeCache) setStore(store *hostingv1alpha1.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, found := s.stores[store.Name]; found {
		known.Store = store
		return
	}
	added := framework.NewStore(store)
	for name, resource := range s.resources {
		if slices.Contains(s.holders(name), store.Name) {
			added.Add(resource)
		}
	}
	s.stores[store.Name] = added
}

func (s *storeCache) removeStore(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stores, name)
}

// setResource adds or updates a resource. It returns the Store that has more room now, if
// any.
func (s *storeCache) setResource(hosted *hostingv1alpha1.HostedResource) (freed string) {
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
	s.place(resource, on)
	if was != "" && (was != on || known && (shrank(before, resource) || relabeled(before.HostedResource, hosted))) {
		return was
	}
	return ""
}

// shrank reports whether a resource leaves more room than before.
func shrank(before, after *framework.Resource) bool {
	was, is := before.Expected(), after.Expected()
	return is.Storage < was.Storage || is.Objects < was.Objects
}

// removeResource removes a resource, and remembers and returns its Store.
func (s *storeCache) removeResource(name string) (freed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.on[name]
	if resource, known := s.resources[name]; known {
		s.place(resource, "")
	}
	delete(s.resources, name)
	delete(s.assumed, name)
	delete(s.unschedulable, name)
	if was == "" {
		return ""
	}
	if len(s.previous) >= maxRemembered {
		clear(s.previous)
	}
	s.previous[name] = was
	return was
}

// place places a resource on a Store, or on none. It requires s.mu.
func (s *storeCache) place(resource *framework.Resource, on string) {
	s.count(resource.Name, nil)
	delete(s.on, resource.Name)
	if on == "" {
		return
	}
	delete(s.unschedulable, resource.Name)
	s.on[resource.Name] = on
	s.count(resource.Name, resource)
}

// count counts a resource on its Stores, or no longer if it is nil. It requires s.mu.
func (s *storeCache) count(name string, resource *framework.Resource) {
	for _, holder := range s.holders(name) {
		store := s.stores[holder]
		switch {
		case store == nil:
		case resource == nil:
			store.Remove(name)
		default:
			store.Add(resource)
		}
	}
}

// holders returns the Stores that a resource counts on: its own, and the source and the target of a
// Migration. It requires s.mu.
func (s *storeCache) holders(name string) []string {
	on, migration := s.on[name], s.moving[name]
	switch {
	case on == "":
		return nil
	case migration == nil:
		return []string{on}
	}
	return []string{on, migration.Status.FromStoreName, migration.Spec.StoreName}
}

// setMigration updates or, if exists is false, removes a Migration. It returns the Store that
// has more room now, if any.
func (s *storeCache) setMigration(migration *hostingv1alpha1.Migration, exists bool) (freed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := migration.Spec.Resource
	moves := exists && migration.Status.FromStoreName != "" && !migration.Status.Phase.Finished()
	if known := s.moving[name]; !moves && (known == nil || known.UID != migration.UID) {
		return ""
	}
	before := s.holders(name)
	s.count(name, nil)
	if moves {
		s.moving[name] = migration
	} else {
		delete(s.moving, name)
	}
	s.count(name, s.resources[name])
	for _, was := range before {
		if !slices.Contains(s.holders(name), was) {
			freed = was
		}
	}
	return freed
}

// decide finds a Store for a resource and assumes the placement, or remembers why it fits
// on none. It returns no resource if that no longer waits for a Store.
func (s *storeCache) decide(name string, waits func(*hostingv1alpha1.HostedResource) bool, plugins *framework.Plugins) (*framework.Resource, framework.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unschedulable, name)
	resource, known := s.resources[name]
	if !known || s.on[name] != "" || !waits(resource.HostedResource) {
		return nil, nil
	}
	decision := plugins.Decide(resource, s.sorted())
	if best, ok := decision.Best(); ok {
		s.place(resource, best.Store)
		s.assumed[name] = resource.UID
		return resource, decision
	}
	reasons := make(map[string]string, len(decision))
	for _, result := range decision {
		reasons[result.Store] = result.Message()
	}
	s.unschedulable[name] = &unschedulable{reasons: reasons}
	return resource, decision
}

// recheck runs the filters for a changed Store and all unschedulable resources. It returns
// those that fit now, and those whose reasons changed.
func (s *storeCache) recheck(storeName string, plugins *framework.Plugins) (fit, changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.stores[storeName]
	for name, waiting := range s.unschedulable {
		was, listed := waiting.reasons[storeName]
		is := ""
		if store != nil {
			is = framework.StoreResult{Reasons: plugins.Filter(s.resources[name], store)}.Message()
		}
		switch {
		case store != nil && is == "":
			delete(s.unschedulable, name)
			fit = append(fit, name)
		case !waiting.changed && (listed != (store != nil) || is != was):
			waiting.changed = true
			changed = append(changed, name)
		}
	}
	return fit, changed
}

// priority returns the priority of a resource.
func (s *storeCache) priority(name string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if resource := s.resources[name]; resource != nil {
		return resource.Spec.Priority
	}
	return 0
}

// waiting counts the resources that wait for a Store. forChange counts only the unschedulable ones, which
// wait for a change.
func (s *storeCache) waiting(waits func(*hostingv1alpha1.HostedResource) bool) (all, forChange int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, resource := range s.resources {
		if s.on[name] != "" || !waits(resource.HostedResource) {
			continue
		}
		all++
		if known := s.unschedulable[name]; known != nil && !known.changed {
			forChange++
		}
	}
	return all, forChange
}

// forget drops an assumption that failed, and returns the assumed Store. It returns "" if an
// observation has replaced the assumption.
func (s *storeCache) forget(resource *framework.Resource) (freed string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, assumed := s.assumed[resource.Name]
	if !assumed || uid != resource.UID {
		return ""
	}
	was := s.on[resource.Name]
	delete(s.assumed, resource.Name)
	s.place(s.resources[resource.Name], "")
	return was
}

// placedOn returns the observed or assumed Store of a resource.
func (s *storeCache) placedOn(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[name]
}

// sorted returns the Stores by name. It requires s.mu.
func (s *storeCache) sorted() []*framework.Store {
	stores := make([]*framework.Store, 0, len(s.stores))
	for _, store := range s.stores {
		stores = append(stores, store)
	}
	slices.SortFunc(stores, func(a, b *framework.Store) int { return cmp.Compare(a.Name, b.Name) })
	return stores
}

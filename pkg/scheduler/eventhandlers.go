// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"

	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// addEventHandlers updates the cache and the queue from the informers.
func (s *Scheduler) addEventHandlers() error {
	resources, err := s.config.HostedResources.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { s.resourceChanged(nil, obj) },
		UpdateFunc: func(before, after any) {
			previous, _ := before.(*hostingv1alpha1.HostedResource)
			s.resourceChanged(previous, after)
		},
		DeleteFunc: s.resourceDeleted,
	})
	if err != nil {
		return fmt.Errorf("watch hosted resources: %w", err)
	}
	stores, err := s.config.Stores.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.storeSet,
		UpdateFunc: func(_, after any) { s.storeSet(after) },
		DeleteFunc: s.storeDeleted,
	})
	if err != nil {
		return fmt.Errorf("watch stores: %w", err)
	}
	migrations, err := s.config.Migrations.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.migrationChanged(obj, true) },
		UpdateFunc: func(_, after any) { s.migrationChanged(after, true) },
		DeleteFunc: func(obj any) { s.migrationChanged(obj, false) },
	})
	if err != nil {
		return fmt.Errorf("watch migrations: %w", err)
	}
	s.synced = []cache.DoneChecker{resources.HasSyncedChecker(), stores.HasSyncedChecker(), migrations.HasSyncedChecker()}
	return nil
}

// responsibleFor reports whether a HostedResource waits for this scheduler.
func (s *Scheduler) responsibleFor(hosted *hostingv1alpha1.HostedResource) bool {
	return hosted.Spec.StoreName == "" && hosted.Spec.SchedulerName == s.config.Name && hosted.DeletionTimestamp.IsZero()
}

func (s *Scheduler) resourceChanged(before *hostingv1alpha1.HostedResource, obj any) {
	after, ok := obj.(*hostingv1alpha1.HostedResource)
	if !ok {
		return
	}
	freed := s.cache.setResource(after)
	switch {
	case !s.responsibleFor(after):
		s.queue.remove(after.Name)
	case s.cache.placedOn(after.Name) != "":
		// It is being bound.
	case before == nil || !s.responsibleFor(before) || before.UID != after.UID || before.Generation != after.Generation || relabeled(before, after):
		s.queue.add(after.Name, after.Spec.Priority)
	}
	if freed != "" {
		s.storeChanged(freed)
	}
}

// relabeled reports whether the labels or annotations changed, which plugins may use.
func relabeled(before, after *hostingv1alpha1.HostedResource) bool {
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

func (s *Scheduler) resourceDeleted(obj any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return
	}
	freed := s.cache.removeResource(name)
	s.queue.remove(name)
	if freed != "" {
		s.storeChanged(freed)
	}
}

func (s *Scheduler) storeSet(obj any) {
	if store, ok := obj.(*hostingv1alpha1.Store); ok {
		s.cache.setStore(store)
		s.storeChanged(store.Name)
	}
}

func (s *Scheduler) storeDeleted(obj any) {
	if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
		s.cache.removeStore(name)
		s.storeChanged(name)
	}
}

// storeChanged checks a changed Store against everything that waits.
func (s *Scheduler) storeChanged(storeName string) {
	s.queue.change(func(name string, before map[string]string) effect {
		reasons, known := s.cache.reasons(name, storeName, s.plugins)
		was, listed := before[storeName]
		switch {
		case known && reasons == "":
			return fits
		case known != listed || reasons != was:
			return reasonsChanged
		default:
			return unaffected
		}
	})
}

func (s *Scheduler) migrationChanged(obj any, exists bool) {
	if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = unknown.Obj
	}
	migration, ok := obj.(*hostingv1alpha1.Migration)
	if !ok {
		return
	}
	if freed := s.cache.setMigration(migration, exists); freed != "" {
		s.storeChanged(freed)
	}
}

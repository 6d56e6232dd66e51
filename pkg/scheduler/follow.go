// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"
	"maps"

	"k8s.io/client-go/tools/cache"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// follow has every change reach the cache, and what waits because of it the queue.
func (s *Scheduler) follow() error {
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
	s.synced = []cache.DoneChecker{resources.HasSyncedChecker(), stores.HasSyncedChecker()}
	return nil
}

// waits reports whether a HostedResource is this scheduler's to place.
func (s *Scheduler) waits(hosted *hostingv1alpha1.HostedResource) bool {
	return hosted.Spec.StoreName == "" && hosted.Spec.SchedulerName == s.config.Name && hosted.DeletionTimestamp.IsZero()
}

func (s *Scheduler) resourceChanged(before *hostingv1alpha1.HostedResource, obj any) {
	after, ok := obj.(*hostingv1alpha1.HostedResource)
	if !ok {
		return
	}
	relieved := s.cache.setResource(after)
	switch {
	case !s.waits(after):
		s.queue.remove(after.Name)
	case s.cache.placedOn(after.Name) != "":
		// It is being bound, and this is what others say of it meanwhile.
	case before == nil || !s.waits(before) || before.UID != after.UID || before.Generation != after.Generation || relabeled(before, after):
		s.queue.add(after.Name, after.Spec.Priority)
	}
	if relieved != "" {
		s.storeChanged(relieved)
	}
}

// relabeled reports whether a resource is described otherwise, for plugins that go by that.
func relabeled(before, after *hostingv1alpha1.HostedResource) bool {
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

func (s *Scheduler) resourceDeleted(obj any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return // what has no name was never known
	}
	relieved := s.cache.removeResource(name)
	s.queue.remove(name)
	if relieved != "" {
		s.storeChanged(relieved)
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

// storeChanged tries a Store anew on everything that waits.
func (s *Scheduler) storeChanged(storeName string) {
	s.queue.change(func(name string, before map[string]string) effect {
		reasons, known := s.cache.reasons(name, storeName, s.plugins)
		was, listed := before[storeName]
		switch {
		case known && reasons == "":
			return fits
		case known != listed || reasons != was:
			return messageChanged
		default:
			return unaffected
		}
	})
}

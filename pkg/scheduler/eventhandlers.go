// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller/framework"
)

// addEventHandlers updates the cache and the queue from the informers.
func (s *Scheduler) addEventHandlers() error {
	return s.Watch(
		framework.Source{Name: "hosted resources", Informer: s.config.HostedResources.Informer(), Handler: framework.Handler[*hostingv1alpha1.HostedResource]{
			Added:   func(hosted *hostingv1alpha1.HostedResource) { s.resourceChanged(nil, hosted) },
			Updated: s.resourceChanged,
			Deleted: s.resourceDeleted,
		}},
		framework.Source{Name: "stores", Informer: s.config.Stores.Informer(), Handler: framework.Handler[*hostingv1alpha1.Store]{
			Added:   s.storeSet,
			Updated: func(_, after *hostingv1alpha1.Store) { s.storeSet(after) },
			Deleted: func(store *hostingv1alpha1.Store) {
				s.cache.removeStore(store.Name)
				s.storeChanged(store.Name)
			},
		}},
		framework.Source{Name: "migrations", Informer: s.config.Migrations.Informer(), Handler: framework.Handler[*hostingv1alpha1.Migration]{
			Added:   func(migration *hostingv1alpha1.Migration) { s.migrationChanged(migration, true) },
			Updated: func(_, after *hostingv1alpha1.Migration) { s.migrationChanged(after, true) },
			Deleted: func(migration *hostingv1alpha1.Migration) { s.migrationChanged(migration, false) },
		}},
	)
}

// waitsHere reports whether a HostedResource waits for this scheduler.
func (s *Scheduler) waitsHere(hosted *hostingv1alpha1.HostedResource) bool {
	return hosted.Spec.StoreName == "" && hosted.Spec.SchedulerName == s.config.Name && hosted.DeletionTimestamp.IsZero()
}

func (s *Scheduler) resourceChanged(before, after *hostingv1alpha1.HostedResource) {
	freed := s.cache.setResource(after)
	switch {
	case !s.waitsHere(after):
		s.queue.Forget(after.Name)
	case s.cache.placedOn(after.Name) != "":
		// It is being bound.
	case before == nil || !s.waitsHere(before) || before.UID != after.UID || before.Generation != after.Generation || relabeled(before, after):
		s.queue.Forget(after.Name)
		s.queue.Add(after.Name)
	}
	s.storeChanged(freed)
}

// relabeled reports whether the labels or annotations changed, which plugins may use.
func relabeled(before, after *hostingv1alpha1.HostedResource) bool {
	return !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

func (s *Scheduler) resourceDeleted(hosted *hostingv1alpha1.HostedResource) {
	freed := s.cache.removeResource(hosted.Name)
	s.queue.Forget(hosted.Name)
	s.storeChanged(freed)
}

func (s *Scheduler) storeSet(store *hostingv1alpha1.Store) {
	s.cache.setStore(store)
	s.storeChanged(store.Name)
}

func (s *Scheduler) migrationChanged(migration *hostingv1alpha1.Migration, exists bool) {
	s.storeChanged(s.cache.setMigration(migration, exists))
}

// storeChanged checks a changed Store, if any, against all unschedulable resources.
func (s *Scheduler) storeChanged(storeName string) {
	if storeName == "" {
		return
	}
	fit, changed := s.cache.recheck(storeName, s.plugins)
	for _, name := range fit {
		s.queue.Add(name)
	}
	for _, name := range changed {
		s.queue.AddRateLimited(name)
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
	"github.com/annex-dev/annex/pkg/scheduler/plugins"
)

// Decide is what the scheduler would make of a resource that had no Store, beside all
// other resources where they are. Nothing is changed.
func Decide(hosted *hostingv1alpha1.HostedResource, resources []hostingv1alpha1.HostedResource, stores []hostingv1alpha1.Store) framework.Decision {
	s := newStoreCache()
	for i := range stores {
		s.setStore(&stores[i])
	}
	for i := range resources {
		if resources[i].Name != hosted.Name {
			s.setResource(&resources[i])
		}
	}
	unplaced := hosted.DeepCopy()
	unplaced.Spec.StoreName = ""
	s.setResource(unplaced)
	_, decision := s.decide(hosted.Name, plugins.All())
	return decision
}

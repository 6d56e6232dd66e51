// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package routing

import (
	"context"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/storage/etcd3/metrics"
)

// countJitter is upstream's, so that resources are not counted at the same moment.
const countJitter = 1.2

// count updates upstream's metrics of a resource, and the number of objects by which priority and
// fairness estimates the cost of lists. Upstream has a goroutine for that, which only upstream's own
// server ends.
func (s *lazyBackend) count() {
	resource := s.config.GroupResource
	defer metrics.DeleteStoreStats(resource)
	wait.JitterUntilWithContext(s.lifetime, func(ctx context.Context) {
		stats, err := s.Stats(ctx)
		metrics.UpdateStoreStats(resource, stats, err)
		if tracker := s.config.StorageObjectCountTracker; err == nil && tracker != nil {
			tracker.Set(resource.String(), stats)
		}
	}, s.config.CountMetricPollPeriod, countJitter, true)
}

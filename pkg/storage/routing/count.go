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
// fairness estimates the cost of lists. Upstream's own goroutine for that outlives the server: the
// handler of custom resources does not destroy what it has when it is not run by upstream's server.
func (s *lazyStorage) count() {
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

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// toleratedReverts is how often an APIService of annex may be given back to the main cluster by
	// another writer until annex takes it over in growing intervals only.
	toleratedReverts = 3
	// firstRevertDelay doubles each time, up to maxRevertDelay.
	firstRevertDelay = 2 * time.Second
	maxRevertDelay   = 5 * time.Minute
	// revertMemory is after which time without a revert the count begins anew.
	revertMemory = 10 * time.Minute
)

// reverts counts how often another writer, such as a GitOps controller, has given back the requests of
// a version to the main cluster, or deleted its APIService. annex takes them over again, because the
// main cluster may have a copy of the group that is not current, but it does not fight.
type reverts struct {
	mu   sync.Mutex
	seen map[schema.GroupVersion]revert
}

type revert struct {
	count int
	last  time.Time
}

// taken records that annex takes over requests for a version.
func (r *reverts) taken(version schema.GroupVersion, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, known := r.seen[version]
	switch {
	case !known || now.Sub(of.last) > revertMemory:
		of.count = 0
	default:
		of.count++
	}
	of.last = now
	r.seen[version] = of
}

// wait returns how long annex leaves the requests with the main cluster, and says why.
func (r *reverts) wait(version schema.GroupVersion, now time.Time) (time.Duration, status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.seen[version]
	if of.count < toleratedReverts {
		return 0, status{}
	}
	delay := min(firstRevertDelay<<min(of.count-toleratedReverts, 16), maxRevertDelay)
	left := delay - now.Sub(of.last)
	if left <= 0 {
		return 0, status{}
	}
	return left, notPublished(reasonReverted, fmt.Sprintf(
		"Another writer has given APIService %s back to the main cluster %d times. annex takes it over again at %s. Find what writes it: kubectl get apiservice %s -o yaml --show-managed-fields",
		apiServiceName(version), of.count+1, now.Add(left).UTC().Format(time.RFC3339), apiServiceName(version)))
}

// forget begins the count anew, for a version that annex may not serve.
func (r *reverts) forget(version schema.GroupVersion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, version)
}

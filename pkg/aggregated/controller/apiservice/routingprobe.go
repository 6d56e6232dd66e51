// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// routingProbeInterval is how often the main cluster is asked who answers for a version
// until annex does, which takes it milliseconds after it called it available.
const routingProbeInterval = 200 * time.Millisecond

// routedVersions remembers for which versions annex was seen to answer the main cluster's
// requests. That an APIService is available does not say so: the part of
// kube-apiserver that finds that out is not the part that sends requests, and until
// that has taken in a takeover, what somebody makes lands in the main cluster.
type routedVersions struct {
	mu   sync.Mutex
	seen map[schema.GroupVersion]bool
}

func (a *routedVersions) has(version schema.GroupVersion) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen[version]
}

func (a *routedVersions) set(version schema.GroupVersion, seen bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if seen {
		a.seen[version] = true
	} else {
		delete(a.seen, version)
	}
}

// probeRouting makes sure that what is called available is answered by annex, and
// returns how the version stands and when to come again.
func (r *reconciler) probeRouting(ctx context.Context, version schema.GroupVersion, stands status) (status, time.Duration) {
	if !stands.published {
		r.routed.set(version, false)
		return stands, 0
	}
	if r.routed.has(version) {
		return stands, 0
	}
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	publication := template{service: r.service}
	switch by, err := r.servedBy(asking, version); {
	case err != nil:
		return notPublished(reasonUnavailable, fmt.Sprintf("The main cluster does not reach annex: %v", err)), probeInterval
	case by == "":
		return notPublished(reasonUnavailable, "The main cluster still answers for it itself: it has not taken in the APIService yet"), routingProbeInterval
	case by != publication.publishedBy():
		return notPublished(reasonUnavailable, fmt.Sprintf("Another annex answers, the one behind Service %s", by)), probeInterval
	}
	r.routed.set(version, true)
	return stands, 0
}

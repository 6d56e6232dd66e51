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

// routingProbeInterval is the delay between probes until annex serves a version. That
// takes the main cluster milliseconds after it reports the APIService available.
const routingProbeInterval = 200 * time.Millisecond

// routedVersions holds the versions whose requests were observed to reach annex. An
// available APIService does not prove that: its controller in kube-apiserver is separate
// from the proxy, and until the proxy has observed a takeover, new objects are stored in
// the main cluster.
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

// probeRouting checks that annex serves the requests for an available version, and
// returns its status and when to retry.
func (r *reconciler) probeRouting(ctx context.Context, version schema.GroupVersion, result status) (status, time.Duration) {
	if !result.published {
		r.routed.set(version, false)
		return result, 0
	}
	if r.routed.has(version) {
		return result, 0
	}
	asking, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	tmpl := template{service: r.service}
	switch by, err := r.servedBy(asking, version); {
	case err != nil:
		return notPublished(reasonUnavailable, fmt.Sprintf("The main cluster does not reach annex: %v", err)), probeInterval
	case by == "":
		return notPublished(reasonUnavailable, "The main cluster still answers for it itself: it has not taken in the APIService yet"), routingProbeInterval
	case by != tmpl.publishedBy():
		return notPublished(reasonUnavailable, fmt.Sprintf("Another annex answers, the one behind Service %s", by)), probeInterval
	}
	r.routed.set(version, true)
	return result, 0
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var refusals = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace:      "annex",
	Subsystem:      "hostedresource",
	Name:           "limit_refusals_total",
	Help:           "Writes that were refused because they would have exceeded a limit of the HostedResource.",
	StabilityLevel: metrics.ALPHA,
}, []string{"hostedresource"})

// users counts the enforcers of each resource, one per version.
var users = struct {
	sync.Mutex
	of map[string]int
}{of: map[string]int{}}

// countEnforcer counts an enforcer. The metrics of a resource end with the release of the last
// one.
func countEnforcer(resource string) (release func()) {
	change := func(by int) {
		users.Lock()
		defer users.Unlock()
		if users.of[resource] += by; users.of[resource] == 0 {
			delete(users.of, resource)
			refusals.DeleteLabelValues(resource)
		}
	}
	change(1)
	return sync.OnceFunc(func() { change(-1) })
}

var register = sync.OnceFunc(func() { legacyregistry.MustRegister(refusals) })

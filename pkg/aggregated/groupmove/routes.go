// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// probes is how many responses in a row must come from one side, each on a connection of its
	// own, until all kube-apiservers behind a load balancer are taken to have the new route.
	probes = 6
	// routeTimeout is how long the main cluster gets to take in a route. It needs a fraction of a
	// second.
	routeTimeout = 20 * time.Second
	// refusedPeriod is how long annex gets to refuse the requests that were passed on to it before the main
	// cluster had the routes. They may wait for authorization, and it holds them for up to 5 s (holdTimeout in
	// pkg/storage/routing).
	refusedPeriod = 6 * time.Second
)

var errNotRouted = fmt.Errorf("the routes did not change within %s", routeTimeout)

// mainAPIServices returns the APIServices of the group in the main cluster.
func (r *Run) mainAPIServices(ctx context.Context) ([]*apiService, error) {
	all, err := r.config.MainAPIServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices of the main cluster: %w", err)
	}
	var of []*apiService
	for i := range all.Items {
		if all.Items[i].Spec.Group == r.group() {
			of = append(of, &all.Items[i])
		}
	}
	return of, nil
}

// isOurs reports whether an APIService leads to this annex.
func (r *Run) isOurs(current *apiService) bool {
	return current.Spec.Service != nil && current.Labels[hostingv1alpha1.PublishedByLabel] == r.config.PublishedBy
}

// untilRouted waits until the main cluster sends requests for all versions to annex, or serves all of
// them itself.
func (r *Run) untilRouted(ctx context.Context, versions []schema.GroupVersion, toAnnex bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, routeTimeout, errNotRouted)
	defer cancel()
	var last string
	err := until(ctx, func(ctx context.Context) (bool, error) {
		for range probes {
			if problem := r.routeProblem(ctx, versions, toAnnex); problem != "" {
				last = problem
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the routes of group %s: %w: %s", r.group(), err, last)
	}
	return nil
}

// routeProblem returns the versions that another side serves, or an empty string.
func (r *Run) routeProblem(ctx context.Context, versions []schema.GroupVersion, toAnnex bool) string {
	var wrong []string
	for _, version := range versions {
		by, err := r.config.ServedBy(ctx, version)
		switch {
		case err != nil:
			wrong = append(wrong, err.Error())
		case (by == r.config.PublishedBy) != toAnnex:
			wrong = append(wrong, fmt.Sprintf("%s is served by %q", version, by))
		}
	}
	return strings.Join(wrong, ", ")
}

// untilRefused waits until annex has refused the requests that were passed on to it before the routes changed.
// After that annex may have no objects: such a request would get 404, as if its object were deleted.
func untilRefused(ctx context.Context, routed time.Time) error {
	return until(ctx, func(context.Context) (bool, error) { return time.Since(routed) >= refusedPeriod, nil })
}

func compareVersions(a, b string) int {
	return apimachineryversion.CompareKubeAwareVersionStrings(b, a)
}

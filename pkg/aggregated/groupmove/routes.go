// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/aggregated/group"
)

const (
	// probes is the number of responses in a row that must come from one side, each on a connection of its
	// own, until all kube-apiservers behind a load balancer are taken to have the new route.
	probes = 6
	// routeTimeout bounds the time in which the main cluster takes in a route. It needs a fraction of a
	// second.
	routeTimeout = 20 * time.Second
	// refusedPeriod is the time in which annex refuses the requests that were passed on to it before the main
	// cluster had the routes. They may wait for authorization, and it holds them for up to 5 s (holdTimeout in
	// pkg/storage/routing).
	refusedPeriod = 6 * time.Second
)

var errNotRouted = fmt.Errorf("the routes did not change within %s", routeTimeout)

// state returns the group with its definitions in the main cluster, if they are given, and with what the APIs have
// now of its APIServices and HostedResources.
func (r *Run) state(ctx context.Context, definitions []*definition) (*group.State, error) {
	all, err := r.config.MainAPIServices.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list APIServices of the main cluster: %w", err)
	}
	of := group.Objects{Main: definitions}
	for i := range all.Items {
		of.APIServices = append(of.APIServices, &all.Items[i])
	}
	of.Hosted, err = r.hosted(ctx)
	return r.stateOf(of), err
}

func (r *Run) hosted(ctx context.Context) (of []*group.HostedResource, _ error) {
	all, err := r.config.AnnexHosting.HostedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list hosted resources: %w", err)
	}
	for i := range all.Items {
		of = append(of, &all.Items[i])
	}
	return of, nil
}

func (r *Run) stateOf(all group.Objects) *group.State {
	return group.New(r.group(), group.Identity{PublishedBy: r.config.PublishedBy}, all)
}

// isTakenOver reports whether a takeover of the group is recorded. Its routes may be lost.
func (r *Run) isTakenOver(ctx context.Context) (bool, error) {
	hosted, err := r.hosted(ctx)
	return err == nil && r.stateOf(group.Objects{Hosted: hosted}).IsTakenOver(), err
}

// isHosted reports whether the main cluster sends requests for the group to annex.
func (r *Run) isHosted(ctx context.Context) (bool, error) {
	s, err := r.state(ctx, nil)
	return err == nil && s.IsPublished(), err
}

// untilRouted waits until the main cluster sends requests for all versions to annex, or serves all of
// them itself.
func (r *Run) untilRouted(ctx context.Context, toAnnex bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, routeTimeout, errNotRouted)
	defer cancel()
	var definitions []*definition
	for _, of := range r.resources {
		definitions = append(definitions, of.main)
	}
	var last string
	err := until(ctx, func(ctx context.Context) (bool, error) {
		for range probes {
			if problem := r.routeProblem(ctx, versions(definitions...), toAnnex); problem != "" {
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

// mainRevision returns the revision of the main cluster's etcd. APIServices are small, unlike definitions.
func (r *Run) mainRevision(ctx context.Context) (int64, error) {
	list, err := r.config.MainAPIServices.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("read the revision of the main cluster: %w", err)
	}
	revision, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	return revision, wrap(err, "read the revision of the main cluster")
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

const (
	// discoveryPeriod is longer than twice the interval at which kube-apiserver refreshes the discovery of a
	// version (discoveryRefreshInterval in k8s.io/kube-aggregator): the first refresh after annex has forgotten
	// the group may use a document that was fetched for another version almost an interval before.
	discoveryPeriod = 130 * time.Second
	// discoveryInterval is the time between two checks. kube-apiserver discovers a version again meanwhile: a
	// check that comes too early would find it missing, and delete the APIService once more.
	discoveryInterval = 10 * time.Second
	// discoveryProbes is how many responses must be complete: a load balancer that chooses one of three
	// kube-apiservers at random misses one of them once in 17,000 times.
	discoveryProbes = 24
	// parallelProbes bounds how many are decoded at a time: each has all resources of the main cluster.
	parallelProbes = 4
)

// untilDiscovered checks the discovery of all kube-apiservers until it must have the main cluster's
// resources. One that learns of the deletion of annex's APIService and of the new local one together keeps
// what it discovered in annex, which is nothing once annex has forgotten the group: kubectl and the garbage
// collector would not know the resources. It gets the deletion again.
func (r *rollback) untilDiscovered(ctx context.Context) error {
	check := &discoveryCheck{missing: r.undiscovered, renew: r.renew, ends: time.Now().Add(discoveryPeriod)}
	return r.untilReported(ctx, check.problem)
}

// discoveryCheck checks the discovery of the main cluster at intervals.
type discoveryCheck struct {
	// missing returns the versions that lack resources in discovery.
	missing func(context.Context) (versions []string, err error)
	// renew makes the main cluster discover them again.
	renew func(ctx context.Context, versions []string) error
	// ends is when the last check may begin.
	ends time.Time

	next  time.Time
	found string
}

// problem returns an empty string after the last check, if nothing was missing.
func (c *discoveryCheck) problem(ctx context.Context) (string, error) {
	now := time.Now()
	if now.Before(c.next) {
		return c.found, nil
	}
	missing, err := c.missing(ctx)
	switch {
	case err != nil:
		c.found = fmt.Sprintf("Trying again to check the main cluster's discovery: %v", err)
	case len(missing) > 0:
		c.found = fmt.Sprintf("The main cluster's discovery lacks resources of %s: its APIServices are made again", strings.Join(missing, ", "))
		if err := c.renew(ctx, missing); err != nil {
			return "", err
		}
	case now.Before(c.ends):
		c.found = "The main cluster serves the group; its discovery is checked until it has read annex's again, for two minutes"
	default:
		return "", nil
	}
	c.next = time.Now().Add(discoveryInterval)
	return c.found, nil
}

// undiscovered returns the versions of the group that lack a resource in a response of discovery.
func (r *rollback) undiscovered(ctx context.Context) ([]string, error) {
	definitions, err := r.mainDefinitions(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	missing := sets.New[string]()
	probing, ctx := errgroup.WithContext(ctx)
	probing.SetLimit(parallelProbes)
	for range discoveryProbes {
		probing.Go(func() error {
			discovered, err := r.config.Discovered(ctx, r.group())
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				missing.Insert(lacking(definitions, discovered)...)
			}
			return err
		})
	}
	err = probing.Wait()
	return sets.List(missing), err
}

func lacking(definitions []*definition, discovered map[string][]string) []string {
	var missing []string
	for _, crd := range definitions {
		if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, version := range versions([]*definition{crd}) {
			if !slices.Contains(discovered[version.Version], crd.Spec.Names.Plural) && !slices.Contains(missing, version.Version) {
				missing = append(missing, version.Version)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// renew deletes local APIServices, which kube-apiserver makes again.
func (r *rollback) renew(ctx context.Context, versions []string) error {
	for _, version := range versions {
		name := version + "." + r.group()
		current, err := r.config.MainAPIServices.Get(ctx, name, metav1.GetOptions{})
		if err == nil && current.Spec.Service != nil {
			err = fmt.Errorf("it leads to Service %s/%s", current.Spec.Service.Namespace, current.Spec.Service.Name)
		}
		if err == nil {
			err = r.config.MainAPIServices.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{
				UID: ptr.To(current.UID), ResourceVersion: ptr.To(current.ResourceVersion),
			}})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("make APIService %s of the main cluster again: %w", name, err)
		}
	}
	return nil
}

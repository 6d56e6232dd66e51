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
)

const (
	// discoveryInterval is the time between two checks. kube-apiserver discovers a version again meanwhile: a
	// check that comes too early would find it missing, and delete the APIService once more.
	discoveryInterval = 10 * time.Second
	// discoveryProbes is the number of responses that must be complete: a load balancer that chooses one of three
	// kube-apiservers at random misses one of them once in 17,000 times.
	discoveryProbes = 24
	// parallelProbes bounds how many are decoded at a time: each has all resources of the main cluster.
	parallelProbes = 4
)

// untilDiscovered waits until all kube-apiservers discover the group in the main cluster. One that learns of the
// deletion of annex's APIService and of the new local one together continues to discover it in annex: once annex
// has forgotten the group, kubectl and the garbage collector would not know its resources. It gets the
// deletion again.
func untilDiscovered(
	ctx context.Context, missing func(context.Context) (versions []string, err error),
	renew func(ctx context.Context, versions []string) error, report func(ctx context.Context, message string) error,
) error {
	return untilEvery(ctx, discoveryInterval, func(ctx context.Context) (bool, error) {
		versions, err := missing(ctx)
		switch {
		case err != nil:
			return false, report(ctx, fmt.Sprintf("Trying again to check the main cluster's discovery: %v", err))
		case len(versions) == 0:
			return true, nil
		}
		if err := renew(ctx, versions); err != nil {
			return false, err
		}
		return false, report(ctx, fmt.Sprintf("The main cluster's discovery lacks its own resources of %s: its APIServices are made again", strings.Join(versions, ", ")))
	})
}

// undiscovered returns the versions of the group that lack a resource of the main cluster in a response of
// discovery.
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
				missing = missing.Union(lacking(definitions, discovered))
			}
			return err
		})
	}
	err = probing.Wait()
	return sets.List(missing), err
}

func lacking(definitions []*definition, discovered map[string][]string) sets.Set[string] {
	missing := sets.New[string]()
	for _, crd := range definitions {
		if !apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, version := range versions(crd) {
			if !slices.Contains(discovered[version.Version], crd.Spec.Names.Plural) {
				missing.Insert(version.Version)
			}
		}
	}
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
				UID: new(current.UID), ResourceVersion: new(current.ResourceVersion),
			}})
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("make APIService %s of the main cluster again: %w", name, err)
		}
	}
	return nil
}

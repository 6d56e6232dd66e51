// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package staticobjects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Discovery discovers what annex serves. A discovery.DiscoveryInterface is one.
type Discovery interface {
	ServerGroupsWithContext(ctx context.Context) (*metav1.APIGroupList, error)
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// errUnserved is the error of a kind or a resource that annex does not serve now.
var errUnserved = errors.New("annex does not serve it")

// requiredVerbs are the verbs that a resource with mirrors needs.
var requiredVerbs = []string{"create", "delete", "get", "list", "patch", "watch"}

// target is a resource with its kind.
type target struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
	// manageable is false if it lacks one of requiredVerbs.
	manageable bool
}

// resolver finds the resource of a kind. It caches discovery until forget is called.
type resolver struct {
	discovery Discovery

	mu       sync.Mutex
	versions map[schema.GroupVersion]version
}

// version has the discovered resources of a group version.
type version struct {
	targets []target
	at      time.Time
}

// A kind that is not served is searched again after rediscoverPeriod at the earliest: many
// objects may wait for it.
const rediscoverPeriod = 200 * time.Millisecond

func newResolver(discovery Discovery) *resolver {
	return &resolver{discovery: discovery, versions: map[schema.GroupVersion]version{}}
}

// forget drops the cached versions of a group.
func (r *resolver) forget(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.versions, func(known schema.GroupVersion, _ version) bool { return known.Group == group })
}

// byKind returns the resource of a kind, or errUnserved.
func (r *resolver) byKind(ctx context.Context, kind schema.GroupVersionKind) (target, error) {
	return r.find(ctx, kind.GroupVersion(), func(t target) bool { return t.kind == kind.Kind })
}

// inGroup returns the target in a served version of a group, or errUnserved.
func (r *resolver) inGroup(ctx context.Context, group string, is func(target) bool) (target, error) {
	groups := &metav1.APIGroupList{Groups: []metav1.APIGroup{{Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}}}}}
	if group != "" {
		var err error
		if groups, err = r.discovery.ServerGroupsWithContext(ctx); err != nil {
			return target{}, fmt.Errorf("discover the groups: %w", err)
		}
	}
	for _, served := range groups.Groups {
		if served.Name != group {
			continue
		}
		for _, version := range served.Versions {
			found, err := r.find(ctx, schema.GroupVersion{Group: group, Version: version.Version}, is)
			if !errors.Is(err, errUnserved) {
				return found, err
			}
		}
	}
	return target{}, errUnserved
}

// find discovers a version again if it does not have what is searched.
func (r *resolver) find(ctx context.Context, wanted schema.GroupVersion, is func(target) bool) (target, error) {
	r.mu.Lock()
	known := r.versions[wanted]
	r.mu.Unlock()
	if i := slices.IndexFunc(known.targets, is); i >= 0 {
		return known.targets[i], nil
	}
	if time.Since(known.at) < rediscoverPeriod {
		return target{}, errUnserved
	}
	list, err := r.discovery.ServerResourcesForGroupVersionWithContext(ctx, wanted.String())
	switch {
	case apierrors.IsNotFound(err):
		list = &metav1.APIResourceList{}
	case err != nil:
		return target{}, fmt.Errorf("discover %s: %w", wanted, err)
	}
	targets := targetsOf(wanted, list.APIResources)
	r.mu.Lock()
	r.versions[wanted] = version{targets, time.Now()}
	r.mu.Unlock()
	if i := slices.IndexFunc(targets, is); i >= 0 {
		return targets[i], nil
	}
	return target{}, errUnserved
}

func targetsOf(version schema.GroupVersion, resources []metav1.APIResource) []target {
	var targets []target
	for _, resource := range resources {
		if strings.Contains(resource.Name, "/") {
			continue
		}
		if slices.Contains(resource.Verbs, "delete") && !slices.Contains(resource.Verbs, "create") {
			continue // its definition is being deleted
		}
		manageable := !slices.ContainsFunc(requiredVerbs, func(verb string) bool { return !slices.Contains(resource.Verbs, verb) })
		targets = append(targets, target{
			GroupVersionResource: version.WithResource(resource.Name), kind: resource.Kind,
			namespaced: resource.Namespaced, manageable: manageable,
		})
	}
	return targets
}

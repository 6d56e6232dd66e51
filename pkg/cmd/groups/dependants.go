// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// dependants returns the resources of the main cluster, outside of the group, that have objects
// owned by objects of the group. The names of those that could not be listed are returned too.
func (s *session) dependants(ctx context.Context) (found []schema.GroupResource, unknown []string, err error) {
	served, err := discovery.ServerPreferredResources(s.main.Discovery())
	switch failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err); {
	case partly:
		for version := range failed {
			unknown = append(unknown, version.String())
		}
	case err != nil:
		return nil, nil, fmt.Errorf("discover the resources of %s: %w", s.server, err)
	}
	for _, resource := range listable(served, func(group string) bool { return group != s.group }) {
		owned, err := s.hasDependant(ctx, resource)
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case err != nil:
			unknown = append(unknown, resource.GroupResource().String())
		case owned:
			found = append(found, resource.GroupResource())
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	slices.Sort(unknown)
	return found, unknown, nil
}

// listable returns the resources of some groups that have owner references to change.
func listable(served []*metav1.APIResourceList, of func(group string) bool) []schema.GroupVersionResource {
	var resources []schema.GroupVersionResource
	for _, list := range served {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !of(version.Group) {
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "patch") {
				resources = append(resources, version.WithResource(resource.Name))
			}
		}
	}
	return resources
}

// hasDependant reports whether an object of a resource has an owner of the group.
func (s *session) hasDependant(ctx context.Context, resource schema.GroupVersionResource) (owned bool, err error) {
	err = eachPage(ctx, s.metadata.Resource(resource), func(page *metav1.PartialObjectMetadataList) bool {
		owned = slices.ContainsFunc(page.Items, func(object metav1.PartialObjectMetadata) bool {
			return slices.ContainsFunc(object.OwnerReferences, func(owner metav1.OwnerReference) bool {
				return strings.HasPrefix(owner.APIVersion, s.group+"/")
			})
		})
		return !owned
	})
	return owned, err
}

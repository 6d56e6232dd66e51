// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groups

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// dependantRights are the resources whose owner references a rollback changes.
type dependantRights struct{ resources []schema.GroupResource }

// findDependants also warns of resources that cannot be searched.
func (s *session) findDependants(ctx context.Context) (*dependantRights, error) {
	found, unknown, err := s.dependants(ctx)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		_, _ = fmt.Fprintf(s.errOut, "annex: warning: cannot find dependants of %s among %s\n", s.group, strings.Join(unknown, ", "))
	}
	return &dependantRights{found}, nil
}

func (d *dependantRights) print(s *session) {
	if len(d.resources) == 0 {
		return
	}
	names := make([]string, 0, len(d.resources))
	for _, resource := range d.resources {
		names = append(names, resource.String())
	}
	s.print("Objects of %s own others. To change their owner references, annex gets the right to get, list and patch all\n"+
		"of these until the end: %s\n", s.group, strings.Join(names, ", "))
}

// agreeToSecrets returns an error unless the user agrees that annex gets rights for all Secrets of the cluster.
func (s *session) agreeToSecrets(ctx context.Context, o rollbackFlags, found *dependantRights) error {
	secrets := schema.GroupResource{Resource: "secrets"}
	if o.yes || o.printRights || !slices.Contains(found.resources, secrets) || s.mayPatchSecrets(ctx) {
		return nil
	}
	answer, err := s.ask("Let annex get, list and patch all Secrets of the cluster until the end of the rollback? [y/N] ")
	if err != nil {
		return err
	}
	if answer := strings.ToLower(answer); answer == "y" || answer == "yes" {
		return nil
	}
	s.print("")
	return fmt.Errorf("rollback %s: not confirmed: without rights for Secrets, those are deleted whose owners were created in annex: answer y, or give --yes", s.group)
}

// mayPatchSecrets reports whether the group's role has the right already.
func (s *session) mayPatchSecrets(ctx context.Context) bool {
	role, err := s.main.RbacV1().ClusterRoles().Get(ctx, hostingv1alpha1.HostedRoleName(s.group), metav1.GetOptions{})
	return err == nil && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.APIGroups, "") && slices.Contains(rule.Resources, "secrets") && slices.Contains(rule.Verbs, "patch")
	})
}

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

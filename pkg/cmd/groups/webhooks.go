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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const exemptUsage = "Exempt annex's account from the webhooks and policies of the main cluster that match the group, while a rollback writes the objects there."

// annexUser returns annex's account in the main cluster.
func (s *session) annexUser(ctx context.Context) string {
	subject := s.subjects(ctx)[0]
	if subject.Kind == rbacv1.ServiceAccountKind {
		return "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	}
	return subject.Name
}

// resources returns the resources of the group, and the version in which the main cluster prefers each.
func (s *session) resources() ([]mainadmission.Resource, map[schema.GroupResource]string, error) {
	_, served, err := s.main.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, nil, fmt.Errorf("discover the resources of %s: %w", s.server, err)
	}
	var found []mainadmission.Resource
	preferred := map[schema.GroupResource]string{}
	for _, list := range served {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || version.Group != s.group || version.Version == hostingv1alpha1.MainCopyVersion {
			continue
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue
			}
			of := schema.GroupResource{Group: s.group, Resource: resource.Name}
			i := slices.IndexFunc(found, func(r mainadmission.Resource) bool { return r.GroupResource == of })
			if i < 0 {
				i = len(found)
				found = append(found, mainadmission.Resource{GroupResource: of, Kind: resource.Kind, Namespaced: resource.Namespaced})
				preferred[of] = version.Version
			}
			found[i].Versions = append(found[i].Versions, version.Version)
		}
	}
	if err != nil && len(found) == 0 {
		return nil, nil, fmt.Errorf("discover the resources of %s in %s: %w", s.group, s.server, err)
	}
	return found, preferred, nil
}

// hooks returns all webhooks and policies, and those that apply to what annex writes of the group.
func (s *session) hooks(ctx context.Context) (all []mainadmission.Hook, matches []mainadmission.Match, err error) {
	resources, _, err := s.resources()
	if err != nil {
		return nil, nil, err
	}
	all, err = mainadmission.Read(ctx, s.main)
	if err != nil {
		return nil, nil, fmt.Errorf("read the webhooks and policies of %s: %w", s.server, err)
	}
	return all, mainadmission.Matching(all, mainadmission.Account(s.annexUser(ctx)), resources), nil
}

// exemptionRules let annex exempt itself from the hooks that match, and end an exemption that was left.
func (s *session) exemptionRules(ctx context.Context) (rules, error) {
	all, matches, err := s.hooks(ctx)
	if err != nil {
		return nil, err
	}
	named := mainadmission.Exempted(all, s.group)
	for _, match := range matches {
		named = append(named, match.Hook)
	}
	return mainadmission.Rules(named), nil
}

// planHooks prints the webhooks and policies that apply to what a rollback writes, and returns them. Users that may not read
// them can move a group nevertheless.
func (s *session) planHooks(ctx context.Context, exempt bool) []mainadmission.Match {
	_, matches, err := s.hooks(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(s.errOut, "annex: warning: %v\n", err)
	}
	if len(matches) == 0 {
		return nil
	}
	s.print("These webhooks and policies apply to what a rollback writes to the main cluster:\n")
	w := newTable(s.out)
	fmt.Fprintln(w, "NAME\tRESOURCES\tONLY")
	for _, match := range matches {
		var plurals []string
		for _, name := range match.Resources {
			plurals = append(plurals, strings.TrimSuffix(name, "."+s.group))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", match.Hook, strings.Join(plurals, ","), match.Restrictions())
	}
	_ = w.Flush() // like print
	if exempt {
		s.print("\nA rollback exempts %s from them until its end, by the match condition %s.\n", s.annexUser(ctx), mainadmission.ConditionName(s.group))
	} else {
		s.print("\nIf one of them denies or changes these writes, a rollback waits until it is given --exempt-webhooks.\n")
	}
	return matches
}

// probeHooks returns why a rollback could not create objects in the main cluster, which serves the group now.
func (s *session) probeHooks(ctx context.Context, matches []mainadmission.Match) []string {
	resources, preferred, err := s.resources()
	if err != nil {
		return nil // planHooks has said so
	}
	var blocked []string
	for _, resource := range resources {
		applies := func(match mainadmission.Match) bool { return slices.Contains(match.Resources, resource.String()) }
		if !slices.ContainsFunc(matches, applies) {
			continue
		}
		err := s.probe(ctx, resource.WithVersion(preferred[resource.GroupResource]))
		switch {
		case maincopy.IsChanged(err) || maincopy.IsDenied(err):
			blocked = append(blocked, fmt.Sprintf("%s: %v", resource, err))
		case err != nil:
			s.print("%s was not probed: %v", resource, err)
		}
	}
	return blocked
}

// probeWith returns what creates a copy of an object of a resource as a dry run.
func probeWith(client dynamic.Interface) func(ctx context.Context, resource schema.GroupVersionResource) error {
	return func(ctx context.Context, resource schema.GroupVersionResource) error {
		page, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(page.Items) == 0 {
			return err
		}
		object := &page.Items[0]
		var objects dynamic.ResourceInterface = client.Resource(resource)
		if namespace := object.GetNamespace(); namespace != "" {
			objects = client.Resource(resource).Namespace(namespace)
		}
		return maincopy.ProbeCreation(ctx, objects, object, resource.Version)
	}
}

// exempt lets the Rollback that is under way exempt annex.
func (s *session) exempt(ctx context.Context, name string) (*hostingv1alpha1.Migration, error) {
	migration, err := s.annex.Migrations().Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"exemptWebhooks":true}}`), metav1.PatchOptions{})
	if err != nil {
		return nil, s.noAnswer(fmt.Errorf("exempt annex from webhooks in the Migration %s: %w", name, err))
	}
	s.print("%s exempts annex from webhooks and policies", named(migration))
	return migration, nil
}

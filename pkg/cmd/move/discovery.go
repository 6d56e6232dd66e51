// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// each calls use with the metadata of all objects of a resource, until it returns an error.
func (s *session) each(ctx context.Context, resource schema.GroupVersionResource, use func(*metav1.PartialObjectMetadata) error) error {
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return s.Metadata.Resource(resource).List(ctx, options)
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		return use(item.(*metav1.PartialObjectMetadata))
	})
}

// allDefinitions returns the metadata of all definitions in the main cluster. Their schemas, which may
// have megabytes, are not read.
func (s *session) allDefinitions(ctx context.Context) (all []metav1.ObjectMeta, err error) {
	err = s.each(ctx, definitionsResource, func(of *metav1.PartialObjectMetadata) error {
		all = append(all, of.ObjectMeta)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the CustomResourceDefinitions of %s: %w", s.server, err)
	}
	return all, nil
}

func (s *session) definitions(ctx context.Context) ([]string, error) {
	all, err := s.allDefinitions(ctx)
	var names []string
	for i := range all {
		if groupOf(all[i].Name) == s.group {
			names = append(names, all[i].Name)
		}
	}
	slices.Sort(names)
	return names, err
}

// groupOf returns the group in the name of a definition or HostedResource, "<plural>.<group>".
func groupOf(name string) string { return schema.ParseGroupResource(name).Group }

// served returns the resources that can be listed and patched of some groups of the main cluster. The first of their
// versions is the preferred one. What cannot be discovered is unknown.
func (s *session) served(of func(group string) bool) (found []mainadmission.Resource, unknown []string, err error) {
	_, lists, err := s.Kube.Discovery().ServerGroupsAndResources()
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return nil, nil, fmt.Errorf("discover the resources of %s: %w", s.server, err)
	}
	for version := range failed {
		unknown = append(unknown, version.String())
	}
	at := map[schema.GroupResource]int{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "patch"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || !of(version.Group) || version.Version == hostingv1alpha1.MainCopyVersion {
			continue
		}
		for _, resource := range list.APIResources {
			of := schema.GroupResource{Group: version.Group, Resource: resource.Name}
			i, seen := at[of]
			if !seen {
				i, at[of] = len(found), len(found)
				found = append(found, mainadmission.Resource{GroupResource: of, Kind: resource.Kind, Namespaced: resource.Namespaced})
			}
			found[i].Versions = append(found[i].Versions, version.Version)
		}
	}
	return found, unknown, nil
}

func (s *session) ofGroup() ([]mainadmission.Resource, error) {
	found, unknown, err := s.served(func(group string) bool { return group == s.group })
	if err == nil && len(found) == 0 && len(unknown) > 0 {
		err = fmt.Errorf("discover the resources of %s in %s: no answer for %s", s.group, s.server, strings.Join(unknown, ", "))
	}
	return found, err
}

func preferred(of mainadmission.Resource) schema.GroupVersionResource {
	return of.WithVersion(of.Versions[0])
}

// hooks returns all webhooks and policies, and those that apply to what annex writes of the group.
func (s *session) hooks(ctx context.Context) (all []mainadmission.Hook, matches []mainadmission.Match, err error) {
	resources, err := s.ofGroup()
	if err != nil {
		return nil, nil, err
	}
	all, err = mainadmission.Read(ctx, s.Kube)
	if err != nil {
		return nil, nil, fmt.Errorf("read the webhooks and policies of %s: %w", s.server, err)
	}
	return all, mainadmission.Matching(all, mainadmission.AccountOf(s.subjects(ctx)), resources), nil
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
		s.warn(err)
	}
	if len(matches) == 0 {
		return nil
	}
	s.print("These webhooks and policies apply to what a rollback writes:\n")
	for _, match := range matches {
		s.print("  %s", match.Hook)
		only := strings.ReplaceAll(strings.Join(match.Resources, ", "), "."+s.group, "")
		if restrictions := match.Restrictions(); restrictions != "" {
			only += "; only " + restrictions
		}
		s.say("      %s", only)
	}
	s.print("")
	if exempt {
		s.print("A rollback exempts %s from them,\nby the match condition %s.", cmp.Or(mainadmission.AccountOf(s.subjects(ctx)).GetName(), "annex"), mainadmission.ConditionName(s.group))
	} else {
		s.print("If one denies or changes these writes, a rollback waits for --exempt-webhooks.")
	}
	s.print("")
	return matches
}

// probeHooks returns why a rollback could not create objects in the main cluster, which serves the group now.
func (s *session) probeHooks(ctx context.Context, matches []mainadmission.Match) []string {
	resources, err := s.ofGroup()
	if err != nil {
		return nil // planHooks has reported it
	}
	var blocked []string
	for _, resource := range resources {
		applies := func(match mainadmission.Match) bool { return slices.Contains(match.Resources, resource.String()) }
		if !slices.ContainsFunc(matches, applies) {
			continue
		}
		err := s.probe(ctx, preferred(resource))
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
		return maincopy.ProbeCreation(ctx, client.Resource(resource).Namespace(object.GetNamespace()), object, resource.Version)
	}
}

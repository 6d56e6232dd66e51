// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// checkGroupsRBAC checks whether annex may move the groups that it is to take over, and read the parameters of admission policies.
func checkGroupsRBAC(ctx context.Context, e *environment) []finding {
	definitions, err := e.hostedDefinitions(ctx)
	if err != nil {
		return []finding{warn(canI("list", "customresourcedefinitions", ""), "the definitions labelled %s cannot be read: %v", hostingv1alpha1.HostedLabel, err)}
	}
	published, err := e.published(ctx)
	if err != nil {
		return []finding{warn(canI("list", "apiservices", ""), "%v", err)}
	}
	ours := map[string]bool{}
	for _, a := range published {
		ours[a.Spec.Group] = true
	}
	var findings []finding
	for _, group := range groupsOf(definitions) {
		if ours[group] {
			continue
		}
		missing, err := e.denied(ctx, moveRights(group, definitions))
		switch {
		case err != nil:
			return []finding{warn(canI("create", "subjectaccessreviews.authorization.k8s.io", ""), "%v", err)}
		case len(missing) == 0:
			findings = append(findings, ok("annex may move %s", group))
		default:
			findings = append(findings, fail(hostingv1alpha1.RightsCommand(group), "annex may not %s, and so cannot take over %s", listRights(missing), group))
		}
	}
	findings = append(findings, e.checkParameters(ctx)...)
	if len(findings) == 0 {
		findings = append(findings, ok("no definition that is labelled %s=true waits for rights", hostingv1alpha1.HostedLabel))
	}
	return findings
}

// hostedDefinitions lists the definitions that annex is to take over.
func (e *environment) hostedDefinitions(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinition, error) {
	list, err := e.mainAPIExtensions.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{LabelSelector: hostingv1alpha1.HostedLabel + "=true"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func groupsOf(definitions []apiextensionsv1.CustomResourceDefinition) []string {
	groups := map[string]bool{}
	for _, crd := range definitions {
		groups[crd.Spec.Group] = true
	}
	return slices.Sorted(maps.Keys(groups))
}

func listAndWatch(of schema.GroupResource) []right {
	var rights []right
	for _, verb := range []string{"list", "watch"} {
		rights = append(rights, right{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: verb, Group: of.Group, Resource: of.Resource}})
	}
	return rights
}

// moveRights are the rights to take over a group.
func moveRights(group string, definitions []apiextensionsv1.CustomResourceDefinition) []right {
	of := func(verb, group, resource, name string) right {
		return right{ResourceAttributes: authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Name: name}}
	}
	rights := []right{
		of("create", admissionregistrationv1.GroupName, "validatingadmissionpolicies", ""),
		of("create", admissionregistrationv1.GroupName, "validatingadmissionpolicybindings", ""),
	}
	for _, crd := range definitions {
		if crd.Spec.Group == group {
			rights = append(rights, of("update", apiextensionsv1.GroupName, "customresourcedefinitions", crd.Name))
			rights = append(rights, listAndWatch(schema.GroupResource{Group: group, Resource: crd.Spec.Names.Plural})...)
		}
	}
	return rights
}

// checkParameters checks whether annex can read the parameters of admission policies. A
// policy whose parameters it cannot read rejects all requests that it matches.
func (e *environment) checkParameters(ctx context.Context) []finding {
	policies, err := e.main.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []finding{warn(canI("list", "validatingadmissionpolicies", ""), "the admission policies cannot be read: %v", err)}
	}
	kinds := map[admissionregistrationv1.ParamKind][]string{}
	for _, policy := range policies.Items {
		if kind := policy.Spec.ParamKind; kind != nil {
			kinds[*kind] = append(kinds[*kind], policy.Name)
		}
	}
	// Not every main cluster serves MutatingAdmissionPolicies.
	if mutating, err := e.main.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{}); err == nil {
		for _, policy := range mutating.Items {
			if kind := policy.Spec.ParamKind; kind != nil {
				kinds[*kind] = append(kinds[*kind], policy.Name)
			}
		}
	}
	var findings []finding
	inOrder := slices.SortedFunc(maps.Keys(kinds), func(a, b admissionregistrationv1.ParamKind) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind))
	})
	for _, kind := range inOrder {
		names := kinds[kind]
		resource, found := e.resourceOf(kind)
		if !found {
			continue
		}
		missing, err := e.denied(ctx, listAndWatch(resource))
		if err == nil && len(missing) > 0 {
			role := "annex-parameters-" + strings.ReplaceAll(resource.String(), "/", ".")
			fix := fmt.Sprintf("kubectl create clusterrole %s --verb=list,watch --resource=%s && kubectl label clusterrole %s %s=true",
				role, resource, role, hostingv1alpha1.AggregateLabel)
			findings = append(findings, warn(fix, "annex may not %s: the parameters of admission policies %s. Those that match annex's objects refuse them", listRights(missing), strings.Join(names, ", ")))
		}
	}
	return findings
}

// resourceOf finds the resource of a kind of parameters.
func (e *environment) resourceOf(kind admissionregistrationv1.ParamKind) (schema.GroupResource, bool) {
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return schema.GroupResource{}, false
	}
	served, err := e.main.Discovery().ServerResourcesForGroupVersion(kind.APIVersion)
	if err != nil {
		return schema.GroupResource{}, false
	}
	for _, resource := range served.APIResources {
		if resource.Kind == kind.Kind && !strings.Contains(resource.Name, "/") {
			return schema.GroupResource{Group: version.Group, Resource: resource.Name}, true
		}
	}
	return schema.GroupResource{}, false
}

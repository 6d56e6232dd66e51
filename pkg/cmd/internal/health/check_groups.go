// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/admission"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/footprint"
)

// checkGroupsRBAC checks whether annex may move the groups that it is to take over, and read the parameters of admission policies.
func checkGroupsRBAC(ctx context.Context, e *environment) []Finding {
	plurals := map[string][]string{}
	for _, crd := range e.hostedDefinitions() {
		plurals[crd.Spec.Group] = append(plurals[crd.Spec.Group], crd.Spec.Names.Plural)
	}
	for _, route := range e.published() {
		delete(plurals, route.Spec.Group)
	}
	var findings []Finding
	for _, group := range slices.Sorted(maps.Keys(plurals)) {
		missing, err := e.missing(ctx, moveRights(group, plurals[group]))
		switch {
		case err != nil:
			return []Finding{warn(canReview, "%v", err)}
		case len(missing) == 0:
			findings = append(findings, ok("annex may move %s", group))
		default:
			findings = append(findings, fail(hostingv1alpha1.RightsCommand(group), "annex may not %s, and so cannot take over %s", footprint.ListRights(missing), group))
		}
	}
	return orOK(append(findings, e.checkParameters(ctx)...), "no definition that is labelled %s=true waits for rights", hostingv1alpha1.HostedLabel)
}

// hostedDefinitions returns the definitions that annex is to take over.
func (e *environment) hostedDefinitions() (labelled []apiextensionsv1.CustomResourceDefinition) {
	for _, crd := range e.crds {
		if crd.Labels[hostingv1alpha1.HostedLabel] == "true" {
			labelled = append(labelled, crd)
		}
	}
	return labelled
}

func listAndWatch(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list", "watch"}}
}

func moveRights(group string, plurals []string) []footprint.Right {
	update := rbacv1.PolicyRule{APIGroups: []string{apiextensionsv1.GroupName}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"update"}}
	for _, plural := range plurals {
		update.ResourceNames = append(update.ResourceNames, plural+"."+group)
	}
	return footprint.RightsOf("", listAndWatch(group, plurals...), update, rbacv1.PolicyRule{
		APIGroups: []string{admissionregistrationv1.GroupName}, Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"},
		Verbs: []string{"create"},
	})
}

// checkParameters checks whether annex can read the parameters of admission policies. A
// policy whose parameters it cannot read rejects all requests that it matches.
func (e *environment) checkParameters(ctx context.Context) []Finding {
	policies, err := e.Kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []Finding{warn(canI("list", "validatingadmissionpolicies", ""), "the admission policies cannot be read: %v", err)}
	}
	kinds := map[admissionregistrationv1.ParamKind][]string{}
	add := func(kind *admissionregistrationv1.ParamKind, policy string) {
		if kind != nil {
			kinds[*kind] = append(kinds[*kind], policy)
		}
	}
	for _, policy := range policies.Items {
		add(policy.Spec.ParamKind, policy.Name)
	}
	// Not every main cluster serves MutatingAdmissionPolicies.
	if mutating, err := e.Kube.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{}); err == nil {
		for _, policy := range mutating.Items {
			add(policy.Spec.ParamKind, policy.Name)
		}
	}
	var findings []Finding
	inOrder := slices.SortedFunc(maps.Keys(kinds), func(a, b admissionregistrationv1.ParamKind) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind))
	})
	for _, kind := range inOrder {
		resource, found := e.resourceOf(kind)
		if !found {
			continue
		}
		missing, err := e.missing(ctx, footprint.RightsOf("", listAndWatch(resource.Group, resource.Resource)))
		if err == nil && len(missing) > 0 {
			role := "annex-parameters-" + strings.ReplaceAll(resource.String(), "/", ".")
			fix := fmt.Sprintf("kubectl create clusterrole %s --verb=list,watch --resource=%s && kubectl label clusterrole %s %s=true",
				role, resource, role, hostingv1alpha1.AggregateLabel)
			findings = append(findings, warn(fix, "annex may not %s: the parameters of admission policies %s. Those that match annex's objects refuse them", footprint.ListRights(missing), strings.Join(kinds[kind], ", ")))
		}
	}
	return findings
}

// resourceOf finds the resource of a kind of parameters.
func (e *environment) resourceOf(kind admissionregistrationv1.ParamKind) (schema.GroupResource, bool) {
	version, err := schema.ParseGroupVersion(kind.APIVersion)
	served, notServed := e.Kube.Discovery().ServerResourcesForGroupVersion(kind.APIVersion)
	if err != nil || notServed != nil {
		return schema.GroupResource{}, false
	}
	for _, resource := range served.APIResources {
		if resource.Kind == kind.Kind && !strings.Contains(resource.Name, "/") {
			return schema.GroupResource{Group: version.Group, Resource: resource.Name}, true
		}
	}
	return schema.GroupResource{}, false
}

// checkPolicies warns of kinds of policies that an older main cluster lacks, and annex so does not apply.
func checkPolicies(ctx context.Context, e *environment) []Finding {
	const fix = "kubectl api-resources --api-group=admissionregistration.k8s.io"
	unserved, err := admission.Unserved(ctx, e.Kube.Discovery())
	if err != nil {
		return []Finding{fail(fix, "%v", err)}
	}
	if len(unserved) > 0 {
		return []Finding{warn(fix, "the main cluster does not serve %s in admissionregistration.k8s.io/v1: annex applies no policies of this kind, not those of v1beta1 either", strings.Join(sets.List(unserved), " and "))}
	}
	return []Finding{ok("the main cluster serves all kinds of policies that annex applies")}
}

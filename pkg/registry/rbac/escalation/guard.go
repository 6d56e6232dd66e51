// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package escalation prevents privilege escalation: users cannot grant rights that they do
// not have.
package escalation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/klog/v2"

	annexvalidation "github.com/annex-dev/annex/pkg/apis/rbac/validation"
	"github.com/annex-dev/annex/pkg/standalone/authorization/rbac"
)

// fullAuthority is the most that an aggregation rule can grant.
var fullAuthority = []rbacv1.PolicyRule{
	{Verbs: []string{rbacv1.VerbAll}, APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}},
	{Verbs: []string{rbacv1.VerbAll}, NonResourceURLs: []string{rbacv1.NonResourceAll}},
}

const (
	// maxRights bounds the rights that rules grant: each verb on each resource of each group by each name.
	// Upstream breaks rules down to them, so the work for a rule grows with the product of its lists.
	maxRights = 100_000
	// maxComparisons bounds the rights times the values in the caller's rules.
	maxComparisons = 50_000_000
)

// rightsIn returns how many rights rules grant.
func rightsIn(rules []rbacv1.PolicyRule) (count float64) {
	for i := range rules {
		r := &rules[i]
		objects := float64(len(r.APIGroups))*float64(len(r.Resources))*float64(max(1, len(r.ResourceNames))) + float64(len(r.NonResourceURLs))
		count += objects * float64(len(r.Verbs))
	}
	return count
}

// valuesIn returns how many values rules have. A rule itself counts too.
func valuesIn(rules []rbacv1.PolicyRule) (count float64) {
	for i := range rules {
		r := &rules[i]
		count += float64(1 + len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs))
	}
	return count
}

// Guard checks whether the caller may write a role or a binding. Its methods are Checks.
type Guard struct {
	// Authorizer authorizes the verbs `escalate` and `bind`, which allow callers to grant
	// rights that they do not have.
	Authorizer authorizer.UnconditionalAuthorizer
	// Resolver reads roles and bindings from storage: informers may have roles that are revoked
	// already.
	Resolver rbac.Resolver
}

// Role checks a role.
func (g Guard) Role(ctx context.Context, object, _ runtime.Object) error {
	role := object.(*rbacv1.Role)
	resource := rbacv1.Resource("roles")
	if g.allowed(ctx, "escalate", resource, genericapirequest.NamespaceValue(ctx), requestedName(ctx)) {
		return nil
	}
	if err := g.holds(ctx, genericapirequest.NamespaceValue(ctx), role.Rules); err != nil {
		return apierrors.NewForbidden(resource, role.Name, err)
	}
	return nil
}

// ClusterRole checks a cluster role. An aggregation rule may add any rules later, and
// reverts changes of the rules by others.
func (g Guard) ClusterRole(ctx context.Context, object, old runtime.Object) error {
	role := object.(*rbacv1.ClusterRole)
	resource := rbacv1.Resource("clusterroles")
	if g.allowed(ctx, "escalate", resource, "", requestedName(ctx)) {
		return nil
	}
	if err := g.holds(ctx, "", role.Rules); err != nil {
		return apierrors.NewForbidden(resource, role.Name, err)
	}
	if !aggregates(object) && !aggregates(old) {
		return nil
	}
	if err := g.holds(ctx, "", fullAuthority); err != nil {
		return apierrors.NewForbidden(resource, role.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

// aggregates reports whether an object is a cluster role with an aggregation rule.
func aggregates(object runtime.Object) bool {
	role, ok := object.(*rbacv1.ClusterRole)
	return ok && role != nil && role.AggregationRule != nil && len(role.AggregationRule.ClusterRoleSelectors) > 0
}

// RoleBinding checks a role binding.
func (g Guard) RoleBinding(ctx context.Context, object, _ runtime.Object) error {
	namespace := genericapirequest.NamespaceValue(ctx)
	if namespace == "" {
		return apierrors.NewBadRequest("namespace is required")
	}
	binding := object.(*rbacv1.RoleBinding)
	return g.binding(ctx, "RoleBinding", binding.Name, binding.RoleRef, namespace)
}

// ClusterRoleBinding checks a cluster role binding.
func (g Guard) ClusterRoleBinding(ctx context.Context, object, _ runtime.Object) error {
	binding := object.(*rbacv1.ClusterRoleBinding)
	return g.binding(ctx, "ClusterRoleBinding", binding.Name, binding.RoleRef, "")
}

// binding checks a binding in a namespace, or everywhere.
func (g Guard) binding(ctx context.Context, kind, name string, ref rbacv1.RoleRef, namespace string) error {
	if g.allowed(ctx, "bind", rbacv1.Resource(strings.ToLower(ref.Kind)+"s"), namespace, ref.Name) {
		return nil
	}
	// Otherwise resolving the role fails with a worse error.
	if errs := annexvalidation.ValidateRoleRef(ref, namespace != ""); len(errs) > 0 {
		return apierrors.NewInvalid(rbacv1.SchemeGroupVersion.WithKind(kind).GroupKind(), name, errs)
	}
	rules, err := g.Resolver.RoleRules(ctx, ref, namespace)
	if err != nil {
		return err
	}
	if err := g.holds(ctx, namespace, rules); err != nil {
		return apierrors.NewForbidden(rbacv1.Resource(strings.ToLower(kind)+"s"), name, err)
	}
	return nil
}

// requestedName is the name in the request's path. A POST has none, so escalating a new
// role requires the right for all roles.
func requestedName(ctx context.Context) string {
	if info, ok := genericapirequest.RequestInfoFrom(ctx); ok {
		return info.Name
	}
	return ""
}

// allowed reports whether the caller has a verb on a role, or is privileged.
func (g Guard) allowed(ctx context.Context, verb string, resource schema.GroupResource, namespace, name string) bool {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return false
	}
	if slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	decision, _, err := g.Authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: caller, Verb: verb, APIGroup: resource.Group, APIVersion: "*", Resource: resource.Resource,
		Namespace: namespace, Name: name, ResourceRequest: true,
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Authorizing privilege escalation failed", "user", caller.GetName(), "verb", verb, "resource", resource, "namespace", namespace, "name", name)
	}
	return decision == authorizer.DecisionAllow
}

// holds returns an error that lists the rules that the caller does not have.
func (g Guard) holds(ctx context.Context, namespace string, rules []rbacv1.PolicyRule) error {
	caller, ok := genericapirequest.UserFrom(ctx)
	if !ok {
		return errors.New("no user on context")
	}
	// On errors these are the rules that were found.
	own, resolveErr := g.Resolver.RulesFor(ctx, caller, namespace)
	granted := rightsIn(rules)
	if granted > maxRights || granted*valuesIn(own) > maxComparisons {
		return fmt.Errorf("the rules grant %.0f rights, too many to compare with those of user %q: the limits are %d rights, and %d comparisons with the values in the user's rules; "+
			"use wildcards or several roles, or the verb escalate or bind", granted, caller.GetName(), maxRights, maxComparisons)
	}
	covered, missing := validation.Covers(own, rules)
	if covered {
		return nil
	}
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		caller.GetName(), caller.GetGroups(), strings.Join(describe(missing), "\n"))
	if resolveErr != nil {
		message += fmt.Sprintf("; resolution errors: [%v]", resolveErr)
	}
	return errors.New(message)
}

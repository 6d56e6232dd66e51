// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac authorizes requests by roles and bindings.
package rbac

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	"k8s.io/klog/v2"
)

// Authorizer allows what the bindings in informers grant. It has no opinion on the
// rest.
type Authorizer struct {
	resolver  Resolver
	hasSynced func() bool
}

var (
	_ authorizer.Authorizer   = &Authorizer{}
	_ authorizer.RuleResolver = &Authorizer{}
)

// New returns an Authorizer on informers, which their owner starts afterwards. Until
// HasSynced it may have only some of the grants, and allows no more than those.
func New(informers rbacinformers.Interface) (*Authorizer, error) {
	source, hasSynced, err := newInformerSource(informers)
	if err != nil {
		return nil, err
	}
	return &Authorizer{resolver: Resolver{Source: source}, hasSynced: hasSynced}, nil
}

// HasSynced reports whether all roles and bindings that existed at the start are known.
func (a *Authorizer) HasSynced() bool { return a.hasSynced() }

// Authorize implements authorizer.Authorizer. The reason of what is allowed names
// the binding; the reason of the rest is a binding that leads nowhere, if the
// caller has one.
func (a *Authorizer) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	var by grant
	var errs []error
	for from, err := range a.resolver.grants(ctx, attributes.GetUser(), attributes.GetNamespace()) {
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.ContainsFunc(from.rules, func(rule rbacv1.PolicyRule) bool { return allows(rule, attributes) }) {
			by = from
			break
		}
	}
	if by.rules != nil {
		return authorizer.DecisionAllow, "RBAC: allowed by " + by.String(), nil
	}
	if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
		logger.Info("RBAC: no rule allows the request", "user", attributes.GetUser().GetName(), "groups", attributes.GetUser().GetGroups(),
			"verb", attributes.GetVerb(), "apiGroup", attributes.GetAPIGroup(), "resource", attributes.GetResource(), "subresource", attributes.GetSubresource(),
			"namespace", attributes.GetNamespace(), "name", attributes.GetName(), "path", attributes.GetPath())
	}
	if len(errs) > 0 {
		return authorizer.DecisionNoOpinion, "RBAC: " + utilerrors.NewAggregate(errs).Error(), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// ConditionsAwareAuthorize implements authorizer.Authorizer: RBAC has no conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attributes))
}

// EvaluateConditions implements authorizer.Authorizer.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver. The error names bindings of unknown roles;
// the rules are complete without these.
func (a *Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, urls []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	rules, err := a.resolver.RulesFor(ctx, who, namespace)
	for i := range rules {
		rule := &rules[i]
		if len(rule.Resources) > 0 {
			resources = append(resources, resourceRule(rule))
		}
		if len(rule.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, urls, false, err
}

func resourceRule(rule *rbacv1.PolicyRule) authorizer.ResourceRuleInfo {
	return &authorizer.DefaultResourceRuleInfo{
		Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames,
	}
}

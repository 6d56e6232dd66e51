// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mainadmission finds the webhooks and admission policies of the main cluster that apply to
// what annex writes of a group there, and exempts annex from them with match conditions.
//
// The name of a match condition has the group, which identifies the Rollback that added it: nothing else
// records that. Groups that are rolled back at the same time have conditions of their own.
package mainadmission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Hook is a webhook, or an admission policy that a binding puts into force.
type Hook struct {
	// Kind and Object are the kind and name of the configuration or policy.
	Kind, Object string
	// Webhook is the name of the webhook in the configuration, empty for a policy.
	Webhook string
	// Mutating reports whether it changes objects.
	Mutating bool

	// resource is the plural of Kind.
	resource string
	// all have to match a request, and any of bindings.
	all, bindings   []admissionregistrationv1.MatchResources
	conditions      []admissionregistrationv1.MatchCondition
	resourceVersion string
	// path leads to conditions in the object.
	path  string
	patch func(ctx context.Context, patch []byte) error
}

// String names the hook.
func (h Hook) String() string {
	if h.Webhook == "" {
		return h.Kind + " " + h.Object
	}
	return fmt.Sprintf("%s %s (%s)", h.Kind, h.Object, h.Webhook)
}

// Restrictions describes what narrows the requests that the hook applies to, besides its rules.
func (h Hook) Restrictions() string {
	var found []string
	for _, of := range slices.Concat(h.all, h.bindings) {
		if selector := of.NamespaceSelector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
			found = append(found, "namespaces "+metav1.FormatLabelSelector(selector))
		}
		if selector := of.ObjectSelector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
			found = append(found, "objects "+metav1.FormatLabelSelector(selector))
		}
	}
	if len(h.conditions) > 0 {
		found = append(found, "match conditions")
	}
	return strings.Join(found, ", ")
}

// Read returns all hooks of a cluster, in the order of their kinds and names.
func Read(ctx context.Context, client kubernetes.Interface) ([]Hook, error) {
	var all []Hook
	for _, read := range []func(context.Context, kubernetes.Interface) ([]Hook, error){readMutating, readValidating, readPolicies, readMutatingPolicies} {
		hooks, err := read(ctx, client)
		if err != nil {
			return nil, err
		}
		all = append(all, hooks...)
	}
	return all, nil
}

func readMutating(ctx context.Context, client kubernetes.Interface) ([]Hook, error) {
	configurations := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	list, err := configurations.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MutatingWebhookConfigurations: %w", err)
	}
	var hooks []Hook
	for _, of := range list.Items {
		for i, webhook := range of.Webhooks {
			h := newWebhook(&of, i, webhook.Rules, webhook.MatchPolicy, webhook.NamespaceSelector, webhook.ObjectSelector)
			h.Kind, h.resource, h.Webhook, h.Mutating = "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", webhook.Name, true
			h.conditions = webhook.MatchConditions
			h.patch = patchWith(of.Name, configurations.Patch)
			hooks = append(hooks, h)
		}
	}
	return hooks, nil
}

func readValidating(ctx context.Context, client kubernetes.Interface) ([]Hook, error) {
	configurations := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	list, err := configurations.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ValidatingWebhookConfigurations: %w", err)
	}
	var hooks []Hook
	for _, of := range list.Items {
		for i, webhook := range of.Webhooks {
			h := newWebhook(&of, i, webhook.Rules, webhook.MatchPolicy, webhook.NamespaceSelector, webhook.ObjectSelector)
			h.Kind, h.resource, h.Webhook = "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", webhook.Name
			h.conditions = webhook.MatchConditions
			h.patch = patchWith(of.Name, configurations.Patch)
			hooks = append(hooks, h)
		}
	}
	return hooks, nil
}

func newWebhook(of metav1.Object, index int, rules []admissionregistrationv1.RuleWithOperations, policy *admissionregistrationv1.MatchPolicyType, namespaces, objects *metav1.LabelSelector) Hook {
	h := Hook{Object: of.GetName(), resourceVersion: of.GetResourceVersion(), path: fmt.Sprintf("/webhooks/%d/matchConditions", index)}
	constraints := admissionregistrationv1.MatchResources{MatchPolicy: policy, NamespaceSelector: namespaces, ObjectSelector: objects}
	for _, rule := range rules {
		constraints.ResourceRules = append(constraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
	}
	// To a policy, no rules are all requests.
	if len(rules) > 0 {
		h.all, h.bindings = []admissionregistrationv1.MatchResources{constraints}, []admissionregistrationv1.MatchResources{{}}
	}
	return h
}

func readPolicies(ctx context.Context, client kubernetes.Interface) ([]Hook, error) {
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	list, err := policies.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ValidatingAdmissionPolicies: %w", err)
	}
	bindings, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list ValidatingAdmissionPolicyBindings: %w", err)
	}
	bound := map[string][]admissionregistrationv1.MatchResources{}
	for _, binding := range bindings.Items {
		// Others only warn or audit.
		if slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
			bound[binding.Spec.PolicyName] = append(bound[binding.Spec.PolicyName], orAll(binding.Spec.MatchResources))
		}
	}
	var hooks []Hook
	for _, of := range list.Items {
		h := newPolicy(&of, of.Spec.MatchConstraints, of.Spec.MatchConditions, bound[of.Name])
		h.Kind, h.resource = "ValidatingAdmissionPolicy", "validatingadmissionpolicies"
		h.patch = patchWith(of.Name, policies.Patch)
		hooks = append(hooks, h)
	}
	return hooks, nil
}

func newPolicy(of metav1.Object, constraints *admissionregistrationv1.MatchResources, conditions []admissionregistrationv1.MatchCondition, bindings []admissionregistrationv1.MatchResources) Hook {
	h := Hook{Object: of.GetName(), resourceVersion: of.GetResourceVersion(), path: "/spec/matchConditions", conditions: conditions, bindings: bindings}
	if constraints != nil {
		h.all = append(h.all, *constraints)
	}
	return h
}

func orAll(resources *admissionregistrationv1.MatchResources) admissionregistrationv1.MatchResources {
	if resources == nil {
		return admissionregistrationv1.MatchResources{}
	}
	return *resources
}

// readMutatingPolicies reads those of v1, or of v1beta1 where the cluster does not serve v1. Kubernetes
// before 1.34 serves neither by default.
func readMutatingPolicies(ctx context.Context, client kubernetes.Interface) ([]Hook, error) {
	policies := client.AdmissionregistrationV1().MutatingAdmissionPolicies()
	list, err := policies.List(ctx, metav1.ListOptions{})
	if err == nil {
		bindings, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list MutatingAdmissionPolicyBindings: %w", err)
		}
		return mutatingPolicies(list, bindings, func(name string) patcher { return patchWith(name, policies.Patch) }), nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list MutatingAdmissionPolicies: %w", err)
	}
	older := client.AdmissionregistrationV1beta1().MutatingAdmissionPolicies()
	olderList, err := older.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list MutatingAdmissionPolicies: %w", err)
	}
	olderBindings, err := client.AdmissionregistrationV1beta1().MutatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MutatingAdmissionPolicyBindings: %w", err)
	}
	var bindings admissionregistrationv1.MutatingAdmissionPolicyBindingList
	list = &admissionregistrationv1.MutatingAdmissionPolicyList{}
	if err := errors.Join(convert(olderList, list), convert(olderBindings, &bindings)); err != nil {
		return nil, fmt.Errorf("convert MutatingAdmissionPolicies: %w", err)
	}
	return mutatingPolicies(list, &bindings, func(name string) patcher { return patchWith(name, older.Patch) }), nil
}

func mutatingPolicies(list *admissionregistrationv1.MutatingAdmissionPolicyList, bindings *admissionregistrationv1.MutatingAdmissionPolicyBindingList, patch func(name string) patcher) []Hook {
	bound := map[string][]admissionregistrationv1.MatchResources{}
	for _, binding := range bindings.Items {
		bound[binding.Spec.PolicyName] = append(bound[binding.Spec.PolicyName], orAll(binding.Spec.MatchResources))
	}
	var hooks []Hook
	for _, of := range list.Items {
		h := newPolicy(&of, of.Spec.MatchConstraints, of.Spec.MatchConditions, bound[of.Name])
		h.Kind, h.resource, h.Mutating = "MutatingAdmissionPolicy", "mutatingadmissionpolicies", true
		h.patch = patch(of.Name)
		hooks = append(hooks, h)
	}
	return hooks
}

// patcher patches an object.
type patcher = func(ctx context.Context, patch []byte) error

func patchWith[T any](name string, patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (T, error)) patcher {
	return func(ctx context.Context, data []byte) error {
		_, err := patch(ctx, name, types.JSONPatchType, data, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	}
}

// convert copies between versions that have the same fields.
func convert(from, to any) error {
	encoded, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, to)
}

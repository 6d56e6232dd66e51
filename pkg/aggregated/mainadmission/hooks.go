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
	"k8s.io/utils/ptr"
)

// Hook is a webhook, or an admission policy that a binding puts into force.
type Hook struct {
	// Kind and Object are the kind and name of the configuration or policy.
	Kind, Object string
	// Webhook is the name of the webhook in the configuration, empty for a policy.
	Webhook string
	// Mutating reports whether it changes objects.
	Mutating bool

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
	add := func(what string, selector *metav1.LabelSelector) {
		if selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
			found = append(found, what+" "+metav1.FormatLabelSelector(selector))
		}
	}
	for _, of := range slices.Concat(h.all, h.bindings) {
		add("namespaces", of.NamespaceSelector)
		add("objects", of.ObjectSelector)
	}
	if len(h.conditions) > 0 {
		found = append(found, "match conditions")
	}
	return strings.Join(found, ", ")
}

// Read returns all hooks of a cluster, in the order of their kinds and names. It reads MutatingAdmissionPolicies of
// v1beta1 where the cluster does not serve v1. Kubernetes before 1.34 serves neither by default.
func Read(ctx context.Context, client kubernetes.Interface) ([]Hook, error) {
	v1, older := client.AdmissionregistrationV1(), client.AdmissionregistrationV1beta1()
	var hooks [4][]Hook
	var errs [4]error
	hooks[0], errs[0] = readWebhooks(ctx, "MutatingWebhookConfiguration", v1.MutatingWebhookConfigurations())
	hooks[1], errs[1] = readWebhooks(ctx, "ValidatingWebhookConfiguration", v1.ValidatingWebhookConfigurations())
	hooks[2], errs[2] = readPolicies(ctx, "ValidatingAdmissionPolicy", v1.ValidatingAdmissionPolicies(), v1.ValidatingAdmissionPolicyBindings())
	hooks[3], errs[3] = readPolicies(ctx, "MutatingAdmissionPolicy", v1.MutatingAdmissionPolicies(), v1.MutatingAdmissionPolicyBindings())
	if apierrors.IsNotFound(errs[3]) {
		hooks[3], errs[3] = readPolicies(ctx, "MutatingAdmissionPolicy", older.MutatingAdmissionPolicies(), older.MutatingAdmissionPolicyBindings())
		if apierrors.IsNotFound(errs[3]) {
			errs[3] = nil
		}
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return slices.Concat(hooks[:]...), nil
}

type lister[L any] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
}

type kindClient[L, T any] interface {
	lister[L]
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}

// list reads all objects of a kind into a list of another kind that has the same fields.
func list[L any](ctx context.Context, client lister[L], into any) error {
	found, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	encoded, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, into)
}

func newHook[L, T any](kind string, of metav1.ObjectMeta, client kindClient[L, T]) Hook {
	return Hook{Kind: kind, Object: of.Name, Mutating: strings.HasPrefix(kind, "Mutating"), resourceVersion: of.ResourceVersion,
		patch: func(ctx context.Context, patch []byte) error {
			_, err := client.Patch(ctx, of.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
			return err
		}}
}

func readWebhooks[L, T any](ctx context.Context, kind string, client kindClient[L, T]) ([]Hook, error) {
	var configurations admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := list(ctx, client, &configurations); err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	var hooks []Hook
	for _, of := range configurations.Items {
		for i, webhook := range of.Webhooks {
			h := newHook(kind, of.ObjectMeta, client)
			h.Webhook, h.conditions, h.path = webhook.Name, webhook.MatchConditions, fmt.Sprintf("/webhooks/%d/matchConditions", i)
			matches := admissionregistrationv1.MatchResources{MatchPolicy: webhook.MatchPolicy, NamespaceSelector: webhook.NamespaceSelector, ObjectSelector: webhook.ObjectSelector}
			for _, rule := range webhook.Rules {
				matches.ResourceRules = append(matches.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: rule})
			}
			// To a policy, no rules are all requests.
			if len(webhook.Rules) > 0 {
				h.all, h.bindings = []admissionregistrationv1.MatchResources{matches}, []admissionregistrationv1.MatchResources{{}}
			}
			hooks = append(hooks, h)
		}
	}
	return hooks, nil
}

func readPolicies[L, T, B any](ctx context.Context, kind string, client kindClient[L, T], bindingClient lister[B]) ([]Hook, error) {
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := errors.Join(list(ctx, client, &policies), list(ctx, bindingClient, &bindings)); err != nil {
		return nil, fmt.Errorf("list %s objects and bindings: %w", kind, err)
	}
	var hooks []Hook
	for _, of := range policies.Items {
		h := newHook(kind, of.ObjectMeta, client)
		h.conditions, h.path = of.Spec.MatchConditions, "/spec/matchConditions"
		if of.Spec.MatchConstraints != nil {
			h.all = append(h.all, *of.Spec.MatchConstraints)
		}
		for _, binding := range bindings.Items {
			// Others only warn or audit.
			if binding.Spec.PolicyName == of.Name && (h.Mutating || slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny)) {
				h.bindings = append(h.bindings, ptr.Deref(binding.Spec.MatchResources, admissionregistrationv1.MatchResources{}))
			}
		}
		hooks = append(hooks, h)
	}
	return hooks, nil
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of admissionregistration.k8s.io/v1.
package v1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

const (
	defaultTimeoutSeconds = 10
	defaultServicePort    = 443
)

var schemeBuilder = runtime.NewSchemeBuilder(admissionregistrationv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	add(scheme, SetDefaultsValidatingWebhookConfiguration, func(list *admissionregistrationv1.ValidatingWebhookConfigurationList) []admissionregistrationv1.ValidatingWebhookConfiguration {
		return list.Items
	})
	add(scheme, SetDefaultsMutatingWebhookConfiguration, func(list *admissionregistrationv1.MutatingWebhookConfigurationList) []admissionregistrationv1.MutatingWebhookConfiguration {
		return list.Items
	})
	add(scheme, SetDefaultsValidatingAdmissionPolicy, func(list *admissionregistrationv1.ValidatingAdmissionPolicyList) []admissionregistrationv1.ValidatingAdmissionPolicy {
		return list.Items
	})
	add(scheme, SetDefaultsValidatingAdmissionPolicyBinding, func(list *admissionregistrationv1.ValidatingAdmissionPolicyBindingList) []admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return list.Items
	})
	add(scheme, SetDefaultsMutatingAdmissionPolicy, func(list *admissionregistrationv1.MutatingAdmissionPolicyList) []admissionregistrationv1.MutatingAdmissionPolicy {
		return list.Items
	})
	add(scheme, SetDefaultsMutatingAdmissionPolicyBinding, func(list *admissionregistrationv1.MutatingAdmissionPolicyBindingList) []admissionregistrationv1.MutatingAdmissionPolicyBinding {
		return list.Items
	})
	return nil
}

// object is a pointer to an API type.
type object[T any] interface {
	*T
	runtime.Object
}

// add registers the defaults of a kind and of its list.
func add[T, L any, O object[T], OL object[L]](scheme *runtime.Scheme, setDefaults func(O), items func(OL) []T) {
	scheme.AddTypeDefaultingFunc(O(new(T)), func(obj any) { setDefaults(obj.(O)) })
	scheme.AddTypeDefaultingFunc(OL(new(L)), func(obj any) {
		list := items(obj.(OL))
		for i := range list {
			setDefaults(O(&list[i]))
		}
	})
}

// SetDefaultsValidatingWebhookConfiguration sets the defaults of its webhooks.
func SetDefaultsValidatingWebhookConfiguration(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		setWebhookDefaults(&webhook.FailurePolicy, &webhook.MatchPolicy, &webhook.NamespaceSelector, &webhook.ObjectSelector, &webhook.TimeoutSeconds)
		setClientDefaults(&webhook.ClientConfig)
		setScopes(webhook.Rules)
	}
}

// SetDefaultsMutatingWebhookConfiguration sets the defaults of its webhooks.
func SetDefaultsMutatingWebhookConfiguration(configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		setWebhookDefaults(&webhook.FailurePolicy, &webhook.MatchPolicy, &webhook.NamespaceSelector, &webhook.ObjectSelector, &webhook.TimeoutSeconds)
		setClientDefaults(&webhook.ClientConfig)
		setScopes(webhook.Rules)
		setDefault(&webhook.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
}

func setWebhookDefaults(
	failurePolicy **admissionregistrationv1.FailurePolicyType, matchPolicy **admissionregistrationv1.MatchPolicyType,
	namespaceSelector, objectSelector **metav1.LabelSelector, timeoutSeconds **int32,
) {
	setDefault(failurePolicy, admissionregistrationv1.Fail)
	setDefault(matchPolicy, admissionregistrationv1.Equivalent)
	setDefault(namespaceSelector, metav1.LabelSelector{})
	setDefault(objectSelector, metav1.LabelSelector{})
	setDefault(timeoutSeconds, defaultTimeoutSeconds)
}

func setClientDefaults(config *admissionregistrationv1.WebhookClientConfig) {
	if config.Service != nil {
		setDefault(&config.Service.Port, defaultServicePort)
	}
}

// SetDefaultsValidatingAdmissionPolicy sets the defaults of a policy.
func SetDefaultsValidatingAdmissionPolicy(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
	setDefault(&policy.Spec.FailurePolicy, admissionregistrationv1.Fail)
	setMatchDefaults(policy.Spec.MatchConstraints)
}

// SetDefaultsValidatingAdmissionPolicyBinding sets the defaults of a binding.
func SetDefaultsValidatingAdmissionPolicyBinding(binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	setMatchDefaults(binding.Spec.MatchResources)
}

// SetDefaultsMutatingAdmissionPolicy sets the defaults of a policy.
func SetDefaultsMutatingAdmissionPolicy(policy *admissionregistrationv1.MutatingAdmissionPolicy) {
	setDefault(&policy.Spec.FailurePolicy, admissionregistrationv1.Fail)
	setMatchDefaults(policy.Spec.MatchConstraints)
}

// SetDefaultsMutatingAdmissionPolicyBinding sets the defaults of a binding.
func SetDefaultsMutatingAdmissionPolicyBinding(binding *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	setMatchDefaults(binding.Spec.MatchResources)
}

func setMatchDefaults(match *admissionregistrationv1.MatchResources) {
	if match == nil {
		return
	}
	setDefault(&match.MatchPolicy, admissionregistrationv1.Equivalent)
	setDefault(&match.NamespaceSelector, metav1.LabelSelector{})
	setDefault(&match.ObjectSelector, metav1.LabelSelector{})
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{match.ResourceRules, match.ExcludeResourceRules} {
		for i := range rules {
			setDefault(&rules[i].Scope, admissionregistrationv1.AllScopes)
		}
	}
}

func setScopes(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		setDefault(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

func setDefault[T any](value **T, otherwise T) {
	if *value == nil {
		*value = ptr.To(otherwise)
	}
}

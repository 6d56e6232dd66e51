// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of admissionregistration.k8s.io/v1.
package v1

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/annex-dev/annex/pkg/apis/meta/defaults"
)

const (
	defaultTimeoutSeconds = 10
	defaultServicePort    = 443
)

var schemeBuilder = runtime.NewSchemeBuilder(admissionregistrationv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	defaults.Add(scheme, &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, SetDefaultsValidatingWebhookConfiguration)
	defaults.Add(scheme, &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}, SetDefaultsMutatingWebhookConfiguration)
	defaults.Add(scheme, &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, SetDefaultsValidatingAdmissionPolicy)
	defaults.Add(scheme, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, SetDefaultsValidatingAdmissionPolicyBinding)
	defaults.Add(scheme, &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyList{}, SetDefaultsMutatingAdmissionPolicy)
	defaults.Add(scheme, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, SetDefaultsMutatingAdmissionPolicyBinding)
	return nil
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

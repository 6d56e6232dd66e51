// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	defaultTimeoutSeconds = 10
	defaultServicePort    = 443
)

func addAdmissionRegistration(scheme *runtime.Scheme) error {
	addDefaults(scheme, &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, setValidatingWebhookDefaults)
	addDefaults(scheme, &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}, setMutatingWebhookDefaults)
	addDefaults(scheme, &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{},
		func(policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
			setDefault(&policy.Spec.FailurePolicy, admissionregistrationv1.Fail)
			setMatchDefaults(policy.Spec.MatchConstraints)
		})
	addDefaults(scheme, &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyList{},
		func(policy *admissionregistrationv1.MutatingAdmissionPolicy) {
			setDefault(&policy.Spec.FailurePolicy, admissionregistrationv1.Fail)
			setMatchDefaults(policy.Spec.MatchConstraints)
		})
	addDefaults(scheme, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		func(binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
			setMatchDefaults(binding.Spec.MatchResources)
		})
	addDefaults(scheme, &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{},
		func(binding *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
			setMatchDefaults(binding.Spec.MatchResources)
		})
	return admissionregistrationv1.AddToScheme(scheme)
}

func setValidatingWebhookDefaults(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range configuration.Webhooks {
		webhook := &configuration.Webhooks[i]
		setWebhookDefaults(&webhook.FailurePolicy, &webhook.MatchPolicy, &webhook.NamespaceSelector, &webhook.ObjectSelector, &webhook.TimeoutSeconds)
		setClientDefaults(&webhook.ClientConfig)
		setScopes(webhook.Rules)
	}
}

func setMutatingWebhookDefaults(configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
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

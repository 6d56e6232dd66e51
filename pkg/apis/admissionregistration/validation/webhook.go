// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilwebhook "k8s.io/apiserver/pkg/util/webhook"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

const (
	minTimeoutSeconds = 1
	maxTimeoutSeconds = 30
)

var (
	reinvocationPolicies = sets.New(admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy)
	// sideEffects are supported for new webhooks, which must support dry runs. Others
	// were allowed in v1beta1.
	sideEffects       = sets.New(admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)
	storedSideEffects = sideEffects.Union(sets.New(admissionregistrationv1.SideEffectClassUnknown, admissionregistrationv1.SideEffectClassSome))
)

// reviewVersions are the supported versions of AdmissionReview, by preference.
var reviewVersions = []string{"v1", "v1beta1"}

// webhook has all fields of a validating webhook too.
type webhook = admissionregistrationv1.MutatingWebhook

func validatingWebhooks(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) []webhook {
	hooks := make([]webhook, len(configuration.Webhooks))
	for i := range configuration.Webhooks {
		w := &configuration.Webhooks[i]
		hooks[i] = webhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
			AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
		}
	}
	return hooks
}

// ValidateValidatingWebhookConfiguration checks a new configuration.
func ValidateValidatingWebhookConfiguration(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return append(validateObjectMeta(&configuration.ObjectMeta), validateWebhooks(validatingWebhooks(configuration), nil)...)
}

// ValidateValidatingWebhookConfigurationUpdate checks an update.
func ValidateValidatingWebhookConfigurationUpdate(updated, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return append(validateObjectMeta(&updated.ObjectMeta), validateWebhooks(validatingWebhooks(updated), validatingWebhooks(old))...)
}

// ValidateMutatingWebhookConfiguration checks a new configuration.
func ValidateMutatingWebhookConfiguration(configuration *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return append(validateObjectMeta(&configuration.ObjectMeta), validateWebhooks(configuration.Webhooks, nil)...)
}

// ValidateMutatingWebhookConfigurationUpdate checks an update.
func ValidateMutatingWebhookConfigurationUpdate(updated, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return append(validateObjectMeta(&updated.ObjectMeta), validateWebhooks(updated.Webhooks, old.Webhooks)...)
}

// tolerance has what is accepted because stored webhooks have it already.
type tolerance struct {
	sideEffects     bool
	reviewVersions  bool
	duplicateNames  bool
	selectorValues  bool
	matchConditions bool
	expressions     expressions
}

// toleranceFor returns the tolerance for stored webhooks; a new configuration has none.
func toleranceFor(hooks, stored []webhook) tolerance {
	t := tolerance{
		matchConditions: slices.EqualFunc(hooks, stored, func(a, b webhook) bool {
			return apiequality.Semantic.DeepEqual(a.MatchConditions, b.MatchConditions)
		}),
		expressions: expressions{},
	}
	names := sets.New[string]()
	for i := range stored {
		hook := &stored[i]
		t.sideEffects = t.sideEffects || hook.SideEffects == nil || !sideEffects.Has(*hook.SideEffects)
		t.reviewVersions = t.reviewVersions || len(hook.AdmissionReviewVersions) > 0 && !understandsReviews(hook)
		t.duplicateNames = t.duplicateNames || names.Has(hook.Name)
		t.selectorValues = t.selectorValues || len(validateWebhookSelectors(hook, false, nil)) > 0
		t.expressions.addConditions(hook.MatchConditions)
		names.Insert(hook.Name)
	}
	return t
}

func understandsReviews(hook *webhook) bool {
	return slices.ContainsFunc(hook.AdmissionReviewVersions, func(version string) bool { return slices.Contains(reviewVersions, version) })
}

func validateWebhooks(hooks, stored []webhook) field.ErrorList {
	var errs field.ErrorList
	tolerated := toleranceFor(hooks, stored)
	names := sets.New[string]()
	for i := range hooks {
		hook, path := &hooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(hook, tolerated, path)...)
		if !tolerated.duplicateNames && hook.Name != "" && names.Has(hook.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), hook.Name))
		}
		names.Insert(hook.Name)
	}
	return errs
}

func validateWebhook(hook *webhook, tolerated tolerance, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), hook.Name)
	for i := range hook.Rules {
		errs = append(errs, validateRule(&hook.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, validateOneOf(hook.FailurePolicy, failurePolicies, path.Child("failurePolicy"))...)
	errs = append(errs, validateOneOf(hook.MatchPolicy, matchPolicies, path.Child("matchPolicy"))...)
	errs = append(errs, validateSideEffects(hook, tolerated.sideEffects, path.Child("sideEffects"))...)
	if seconds := hook.TimeoutSeconds; seconds != nil && (*seconds < minTimeoutSeconds || *seconds > maxTimeoutSeconds) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *seconds, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateWebhookSelectors(hook, tolerated.selectorValues, path)...)
	errs = append(errs, validateOneOf(hook.ReinvocationPolicy, reinvocationPolicies, path.Child("reinvocationPolicy"))...)
	errs = append(errs, validateClientConfig(&hook.ClientConfig, path.Child("clientConfig"))...)
	if !tolerated.matchConditions {
		conditions := checker{plainCompiler(), false, tolerated.expressions}
		errs = append(errs, conditions.checkConditions(hook.MatchConditions, path.Child("matchConditions"))...)
	}
	return append(errs, validateReviewVersions(hook, tolerated.reviewVersions, path.Child("admissionReviewVersions"))...)
}

func validateSideEffects(hook *webhook, tolerated bool, path *field.Path) field.ErrorList {
	allowed := sideEffects
	if tolerated {
		allowed = storedSideEffects
	}
	if hook.SideEffects == nil {
		names := make([]string, 0, len(allowed))
		for _, class := range sets.List(allowed) {
			names = append(names, string(class))
		}
		return field.ErrorList{field.Required(path, "must specify one of "+strings.Join(names, ", "))}
	}
	return validateOneOf(hook.SideEffects, allowed, path)
}

func validateWebhookSelectors(hook *webhook, tolerated bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: tolerated}
	if hook.NamespaceSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(hook.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	}
	if hook.ObjectSelector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(hook.ObjectSelector, options, path.Child("objectSelector"))...)
	}
	return errs
}

func validateClientConfig(config *admissionregistrationv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	url, service := config.URL, config.Service
	switch {
	case (url == nil) == (service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case url != nil:
		return utilwebhook.ValidateWebhookURL(path.Child("url"), *url, true)
	}
	port := int32(0)
	if service.Port != nil {
		port = *service.Port
	}
	return utilwebhook.ValidateWebhookService(path.Child("service"), service.Namespace, service.Name, service.Path, port)
}

func validateReviewVersions(hook *webhook, tolerated bool, path *field.Path) field.ErrorList {
	understood := strings.Join(reviewVersions, ", ")
	if len(hook.AdmissionReviewVersions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+understood)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, version := range hook.AdmissionReviewVersions {
		if seen.Has(version) {
			errs = append(errs, field.Invalid(path.Index(i), version, "duplicate version"))
			continue
		}
		seen.Insert(version)
		errs = append(errs, metavalidation.Invalid(path.Index(i), version, validation.IsDNS1035Label(version))...)
	}
	if !tolerated && !understandsReviews(hook) {
		errs = append(errs, field.Invalid(path, hook.AdmissionReviewVersions, fmt.Sprintf("must include at least one of %s", understood)))
	}
	return errs
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// Initializers returns the initializers that do not depend on the configuration.
func Initializers() []admission.PluginInitializer {
	return []admission.PluginInitializer{quotaInitializer{}, reviewsInitializer{}}
}

// quotaInitializer configures the ResourceQuota plugin to count objects, as in
// count/widgets.example.com, and nothing of their content.
type quotaInitializer struct{}

// Initialize implements admission.PluginInitializer.
func (quotaInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
		wants.SetQuotaConfiguration(generic.NewConfiguration(counters(), uncounted))
	}
}

// uncounted are the resources that Kubernetes does not count: events and reviews.
var uncounted = map[schema.GroupResource]struct{}{
	corev1.Resource("events"):                             {},
	eventsv1.Resource("events"):                           {},
	authorizationv1.Resource("localsubjectaccessreviews"): {},
}

// counters returns evaluators of the resources that a quota may also name without "count/". The
// plugin creates the other evaluators itself.
func counters() []quota.Evaluator {
	var counters []quota.Evaluator
	for _, name := range []corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas} {
		counters = append(counters, generic.NewObjectCountEvaluator(corev1.Resource(string(name)), nil, name))
	}
	return counters
}

// reviews are exempt from policies: one that matches everything would otherwise disable
// authentication and authorization.
var reviews = []schema.GroupResource{
	authenticationv1.Resource("selfsubjectreviews"),
	authenticationv1.Resource("tokenreviews"),
	authorizationv1.Resource("localsubjectaccessreviews"),
	authorizationv1.Resource("selfsubjectaccessreviews"),
	authorizationv1.Resource("selfsubjectrulesreviews"),
	authorizationv1.Resource("subjectaccessreviews"),
}

// reviewsInitializer exempts reviews from policies, as kube-apiserver does.
type reviewsInitializer struct{}

// Initialize implements admission.PluginInitializer.
func (reviewsInitializer) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		wants.SetExcludedAdmissionResources(reviews)
	}
}

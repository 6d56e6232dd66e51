// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheme has the scheme of the compiled-in resources that annex serves: their types, and, in
// one file per group of Kubernetes, their defaults, field selectors and conversions.
// CustomResourceDefinitions and APIServices have upstream's schemes.
package scheme

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

var (
	// Scheme contains every compiled-in kind that annex serves.
	Scheme = runtime.NewScheme()

	// Codecs encode and decode the kinds in Scheme.
	Codecs = serializer.NewCodecFactory(Scheme)

	// ParameterCodec decodes query parameters into the options in Scheme.
	ParameterCodec = runtime.NewParameterCodec(Scheme)
)

// group is the one version of an API group. Its Go types are the internal types too, so no
// conversions are needed.
type group struct {
	version     schema.GroupVersion
	addToScheme func(*runtime.Scheme) error
	// kinds are the kinds that annex serves. Clients use the others of the version too.
	kinds []string
	// internal replaces version as the source of the internal types.
	internal schema.GroupVersion
}

// groups has the core group before events.k8s.io: errors name the first kind of a type.
var groups = []group{
	{version: corev1.SchemeGroupVersion, addToScheme: addCore, kinds: []string{
		"Namespace", "ConfigMap", "Secret", "ServiceAccount", "Event", "ResourceQuota",
	}},
	{version: authenticationv1.SchemeGroupVersion, addToScheme: addAuthentication, kinds: []string{
		"TokenRequest", "TokenReview", "SelfSubjectReview",
	}},
	{version: authorizationv1.SchemeGroupVersion, addToScheme: authorizationv1.AddToScheme, kinds: []string{
		"SubjectAccessReview", "SelfSubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectRulesReview",
	}},
	{version: coordinationv1.SchemeGroupVersion, addToScheme: coordinationv1.AddToScheme, kinds: []string{"Lease"}},
	// Both groups serve and store the same events.
	{version: eventsv1.SchemeGroupVersion, addToScheme: addEvents, kinds: []string{"Event"}, internal: corev1.SchemeGroupVersion},
	{version: rbacv1.SchemeGroupVersion, addToScheme: addRBAC, kinds: []string{
		"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding",
	}},
	{version: admissionregistrationv1.SchemeGroupVersion, addToScheme: addAdmissionRegistration, kinds: []string{
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
	}},
	{version: flowcontrolv1.SchemeGroupVersion, addToScheme: addFlowControl, kinds: []string{
		"FlowSchema", "PriorityLevelConfiguration",
	}},
	{version: hostingv1alpha1.SchemeGroupVersion, addToScheme: hostingv1alpha1.AddToScheme, kinds: []string{
		"Store", "HostedResource", "HostedResourceBinding", "Migration", "InjectionProfile", "StaticSource",
	}},
}

func init() {
	for _, group := range groups {
		utilruntime.Must(group.install(Scheme))
	}
	// The server returns kinds without a group, such as Status, for any requested group.
	metav1.AddToGroupVersion(Scheme, schema.GroupVersion{Version: "v1"})
}

// install adds the group to scheme, with the internal types of its kinds and their lists.
func (g group) install(scheme *runtime.Scheme) error {
	if err := g.addToScheme(scheme); err != nil {
		return err
	}
	from := g.version
	if !g.internal.Empty() {
		from = g.internal
	}
	internal := schema.GroupVersion{Group: g.version.Group, Version: runtime.APIVersionInternal}
	for _, kind := range g.kinds {
		object, err := scheme.New(from.WithKind(kind))
		if err != nil {
			return err
		}
		scheme.AddKnownTypeWithName(internal.WithKind(kind), object)
		// Reviews and bindings have no lists.
		if list, err := scheme.New(from.WithKind(kind + "List")); err == nil {
			scheme.AddKnownTypeWithName(internal.WithKind(kind+"List"), list)
		}
	}
	return scheme.SetVersionPriority(g.version)
}

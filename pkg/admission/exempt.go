// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"

	"github.com/annex-dev/annex/pkg/admission/plugin/staticobjects"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// userConfigured are the plugins that users configure with objects.
var userConfigured = sets.New(mutatingpolicy.PluginName, mutatingwebhook.PluginName, validatingpolicy.PluginName, validatingwebhook.PluginName)

// ownResources are the resources that annex itself needs in order to start and to serve.
var ownResources = sets.New(
	apiregistration.Resource("apiservices"),
	coordinationv1.Resource("leases"),
	rbacv1.Resource("clusterroles"), rbacv1.Resource("clusterrolebindings"),
	rbacv1.Resource("roles"), rbacv1.Resource("rolebindings"),
	flowcontrolv1.Resource("flowschemas"), flowcontrolv1.Resource("prioritylevelconfigurations"),
	hostingv1alpha1.Resource("stores"), hostingv1alpha1.Resource("hostedresources"), hostingv1alpha1.Resource("migrations"),
	hostingv1alpha1.Resource("injectionprofiles"),
	hostingv1alpha1.Resource("staticsources"),
)

// ExemptOwnWrites exempts the objects that annex writes for itself from policies and
// webhooks. One that matches everything and refuses or is unavailable would otherwise
// prevent annex from starting, and could then not be removed. Writes on behalf of users,
// such as deleting the objects of a namespace, are not exempt, as in Kubernetes.
//
// Mirrors of static objects are read-only except for all writes of annex.
var ExemptOwnWrites admission.DecoratorFunc = func(handler admission.Interface, name string) admission.Interface {
	switch {
	case userConfigured.Has(name):
		return exempting{handler, isExempt}
	case name == staticobjects.PluginName:
		return exempting{handler, func(attributes admission.Attributes) bool { return isLoopback(attributes.GetUserInfo()) }}
	}
	return handler
}

// exempting does not call the plugin for exempt writes.
type exempting struct {
	admission.Interface
	isExempt func(admission.Attributes) bool
}

var (
	_ admission.MutationInterface   = exempting{}
	_ admission.ValidationInterface = exempting{}
)

// Admit implements admission.MutationInterface.
func (s exempting) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	mutator, ok := s.Interface.(admission.MutationInterface)
	if !ok || s.isExempt(attributes) {
		return nil
	}
	return mutator.Admit(ctx, attributes, objects)
}

// Validate implements admission.ValidationInterface.
func (s exempting) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	validator, ok := s.Interface.(admission.ValidationInterface)
	if !ok || s.isExempt(attributes) {
		return nil
	}
	return validator.Validate(ctx, attributes, objects)
}

func isExempt(attributes admission.Attributes) bool {
	return isLoopback(attributes.GetUserInfo()) && (ownResources.Has(attributes.GetResource().GroupResource()) || isSystemNamespace(attributes))
}

// isLoopback reports whether the caller is the loopback client.
func isLoopback(caller user.Info) bool {
	return caller != nil && caller.GetName() == user.APIServerUser && slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup)
}

// isSystemNamespace reports whether annex creates the namespace at startup.
func isSystemNamespace(attributes admission.Attributes) bool {
	return attributes.GetResource().GroupResource() == corev1.Resource("namespaces") &&
		slices.Contains(hostingv1alpha1.SystemNamespaces(), attributes.GetName())
}

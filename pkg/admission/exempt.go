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

	"github.com/annex-dev/annex/pkg/apis/hosting"
)

// byUsers are the plugins that do what users say.
var byUsers = sets.New(mutatingpolicy.PluginName, mutatingwebhook.PluginName, validatingpolicy.PluginName, validatingwebhook.PluginName)

// kept are the resources whose objects annex keeps for itself to be able to start
// and to serve: notes of what it serves, who leads, and what the first user finds.
var kept = sets.New(
	apiregistration.Resource("apiservices"),
	coordinationv1.Resource("leases"),
	rbacv1.Resource("clusterroles"), rbacv1.Resource("clusterrolebindings"),
	rbacv1.Resource("roles"), rbacv1.Resource("rolebindings"),
	flowcontrolv1.Resource("flowschemas"), flowcontrolv1.Resource("prioritylevelconfigurations"),
	hosting.Resource("stores"), hosting.Resource("hostedresources"),
)

// SpareOwn keeps policies and webhooks away from what annex writes for itself. One
// on everything that refuses or is down would keep annex from starting, and nobody
// could remove it then. What annex writes on behalf of users, as when it deletes
// what is in a namespace, is decided on as in Kubernetes.
var SpareOwn admission.DecoratorFunc = func(handler admission.Interface, name string) admission.Interface {
	if !byUsers.Has(name) {
		return handler
	}
	return sparing{handler}
}

// sparing leaves out what annex writes for itself.
type sparing struct {
	admission.Interface
}

var (
	_ admission.MutationInterface   = sparing{}
	_ admission.ValidationInterface = sparing{}
)

// Admit lets the plugin change the object.
func (s sparing) Admit(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	mutator, ok := s.Interface.(admission.MutationInterface)
	if !ok || spared(attributes) {
		return nil
	}
	return mutator.Admit(ctx, attributes, objects)
}

// Validate lets the plugin refuse the object.
func (s sparing) Validate(ctx context.Context, attributes admission.Attributes, objects admission.ObjectInterfaces) error {
	validator, ok := s.Interface.(admission.ValidationInterface)
	if !ok || spared(attributes) {
		return nil
	}
	return validator.Validate(ctx, attributes, objects)
}

func spared(attributes admission.Attributes) bool {
	return byAnnex(attributes.GetUserInfo()) && (kept.Has(attributes.GetResource().GroupResource()) || systemNamespace(attributes))
}

// byAnnex reports whether a request came through the loopback.
func byAnnex(caller user.Info) bool {
	return caller != nil && caller.GetName() == user.APIServerUser && slices.Contains(caller.GetGroups(), user.SystemPrivilegedGroup)
}

// systemNamespace reports whether annex makes the namespace at its start.
func systemNamespace(attributes admission.Attributes) bool {
	return attributes.GetResource().GroupResource() == corev1.Resource("namespaces") &&
		slices.Contains(hosting.SystemNamespaces(), attributes.GetName())
}

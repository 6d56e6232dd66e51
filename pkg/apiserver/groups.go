// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/admissionregistration"
	"github.com/annex-dev/annex/pkg/registry/authentication"
	"github.com/annex-dev/annex/pkg/registry/authorization"
	"github.com/annex-dev/annex/pkg/registry/coordination"
	"github.com/annex-dev/annex/pkg/registry/core"
	"github.com/annex-dev/annex/pkg/registry/flowcontrol"
	"github.com/annex-dev/annex/pkg/registry/hosting"
	"github.com/annex-dev/annex/pkg/registry/rbac"
)

// Group is a version of an API group that is compiled in. It is served unless
// --runtime-config disables it.
type Group struct {
	version  schema.GroupVersion
	priority priority
	// required groups cannot be disabled: annex itself uses them.
	required bool
	// newStorage creates the storage of the group.
	newStorage func(CompletedConfig) (genericapiserver.APIGroupInfo, error)
}

// OwnGroups are the groups that annex serves in both modes.
func OwnGroups() []Group {
	return []Group{
		{hostingv1alpha1.SchemeGroupVersion, priority{group: 15000, version: 9}, true, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return hosting.NewGroup(c.generic.RESTOptionsGetter, c.newBackups())
		}},
	}
}

// AllGroups are the groups that a standalone annex serves. Kubernetes' groups have the
// priorities that kube-apiserver gives them.
func AllGroups() []Group {
	return append([]Group{
		{corev1.SchemeGroupVersion, priority{group: 18000, version: 1}, true, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return core.NewGroup(c.generic.RESTOptionsGetter, c.extra.EventTTL, c.extra.Tokens)
		}},
		{eventsv1.SchemeGroupVersion, priority{group: 17750, version: 15}, false, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return core.NewEventsGroup(c.generic.RESTOptionsGetter, c.extra.EventTTL)
		}},
		{authenticationv1.SchemeGroupVersion, priority{group: 17700, version: 15}, false, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return authentication.NewGroup(c.generic.Authentication.Authenticator, c.generic.Authentication.APIAudiences), nil
		}},
		{authorizationv1.SchemeGroupVersion, priority{group: 17600, version: 15}, false, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return authorization.NewGroup(c.generic.Authorization.Authorizer, c.generic.RuleResolver), nil
		}},
		{rbacv1.SchemeGroupVersion, priority{group: 17000, version: 15}, false, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return rbac.NewGroup(c.generic.RESTOptionsGetter, c.generic.Authorization.Authorizer)
		}},
		{admissionregistrationv1.SchemeGroupVersion, priority{group: 16700, version: 15}, false, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return admissionregistration.NewGroup(c.generic.RESTOptionsGetter, c.generic.Authorization.Authorizer, c.extra.Resources)
		}},
		{coordinationv1.SchemeGroupVersion, priority{group: 16500, version: 15}, false, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return coordination.NewGroup(c.generic.RESTOptionsGetter)
		}},
		{flowcontrolv1.SchemeGroupVersion, priority{group: 16100, version: 21}, true, func(c CompletedConfig) (genericapiserver.APIGroupInfo, error) {
			return flowcontrol.NewGroup(c.generic.RESTOptionsGetter)
		}},
	}, OwnGroups()...)
}

// CompiledInGroups are the names of the groups that annex serves without a
// CustomResourceDefinition in either mode.
func CompiledInGroups() sets.Set[string] {
	names := sets.New(apiregistrationv1.GroupName, apiextensionsv1.GroupName)
	for _, group := range AllGroups() {
		names.Insert(group.version.Group)
	}
	return names
}

// priorities has the priority of each compiled-in version in discovery. A version that is
// served must be listed: upstream silently drops others from discovery.
var priorities = func() map[schema.GroupVersion]priority {
	all := map[schema.GroupVersion]priority{apiextensionsv1.SchemeGroupVersion: {group: 16700, version: 15}}
	for _, group := range AllGroups() {
		all[group.version] = group.priority
	}
	return all
}()

// resourceConfig enables the versions of groups.
func resourceConfig(groups []Group) *serverstorage.ResourceConfig {
	config := serverstorage.NewResourceConfig()
	for _, group := range groups {
		config.EnableVersions(group.version)
	}
	return config
}

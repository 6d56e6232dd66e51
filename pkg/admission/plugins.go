// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission has the ordered list of annex's admission plugins, and the short ones.
package admission

import (
	"io"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"github.com/annex-dev/annex/pkg/admission/plugin/deletionaccess"
	"github.com/annex-dev/annex/pkg/admission/plugin/errorlimit"
	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
	"github.com/annex-dev/annex/pkg/admission/plugin/sidecarinjection"
	"github.com/annex-dev/annex/pkg/admission/plugin/staticobjects"
	"github.com/annex-dev/annex/pkg/admission/plugin/storeaccess"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Order returns the names of all plugins in the order they run. Mutating plugins always run
// before validating ones.
func Order() []string {
	return []string{
		// First: skips the other plugins for a namespace that is missing or terminating.
		lifecycle.PluginName,
		ownerreferences.PluginName,
		errorlimit.PluginName,

		// annex's own, before webhooks are called.
		localAPIServiceName,
		compiledInName,
		listLikeName,
		storeaccess.PluginName,
		deletionaccess.PluginName,
		staticobjects.PluginName,
		// The only one that changes objects: policies and webhooks see what was injected.
		sidecarinjection.PluginName,

		// Configured by users, with objects of annex or the main cluster. As in
		// kube-apiserver, policies run before webhooks: they need no call, and webhooks
		// receive the object as changed by policies.
		mutatingpolicy.PluginName,
		mutatingwebhook.PluginName,
		validatingpolicy.PluginName,
		validatingwebhook.PluginName,

		// Last: a write that is refused must not be charged.
		resourcequota.PluginName,
	}
}

// NewPlugins returns a registry of all plugins in Order.
func NewPlugins() *admission.Plugins {
	plugins := admission.NewPlugins()
	plugins.Register(lifecycle.PluginName, func(io.Reader) (admission.Interface, error) {
		return lifecycle.NewLifecycle(sets.New(hostingv1alpha1.SystemNamespaces()...))
	})
	plugins.Register(ownerreferences.PluginName, func(io.Reader) (admission.Interface, error) { return ownerreferences.New(), nil })
	plugins.Register(errorlimit.PluginName, func(io.Reader) (admission.Interface, error) { return errorlimit.New(), nil })
	plugins.Register(localAPIServiceName, func(io.Reader) (admission.Interface, error) { return newLocalAPIService(), nil })
	plugins.Register(compiledInName, func(io.Reader) (admission.Interface, error) { return newCompiledIn(), nil })
	plugins.Register(listLikeName, func(io.Reader) (admission.Interface, error) { return newListLike(), nil })
	plugins.Register(storeaccess.PluginName, func(io.Reader) (admission.Interface, error) { return storeaccess.New(), nil })
	plugins.Register(deletionaccess.PluginName, func(io.Reader) (admission.Interface, error) { return deletionaccess.New(), nil })
	plugins.Register(sidecarinjection.PluginName, func(io.Reader) (admission.Interface, error) { return sidecarinjection.New(), nil })
	plugins.Register(staticobjects.PluginName, func(io.Reader) (admission.Interface, error) { return staticobjects.New(), nil })
	mutatingpolicy.Register(plugins)
	mutatingwebhook.Register(plugins)
	validatingpolicy.Register(plugins)
	validatingwebhook.Register(plugins)
	registerQuota(plugins)
	return plugins
}

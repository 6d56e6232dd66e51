// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package admission holds the ordered list of admission plugins that annex
// runs on writes, its own among them.
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

	"github.com/annex-dev/annex/pkg/admission/plugin/compiledin"
	"github.com/annex-dev/annex/pkg/admission/plugin/localapiservice"
	"github.com/annex-dev/annex/pkg/admission/plugin/storeaccess"
	"github.com/annex-dev/annex/pkg/apis/hosting"
)

// Order returns the names of all plugins in the order they run. All that mutate
// run before the first that validates, whatever the order says.
func Order() []string {
	return []string{
		// First, so that nothing else looks at objects for a namespace that is
		// missing or going away.
		lifecycle.PluginName,

		// What annex refuses itself it refuses before it asks anybody else.
		localapiservice.PluginName,
		compiledin.PluginName,
		storeaccess.PluginName,

		// What users say, by objects of annex or of the main cluster. Policies come
		// before webhooks, as in kube-apiserver: they are evaluated here and cost no
		// call, and a webhook sees the object as policies left it.
		mutatingpolicy.PluginName,
		mutatingwebhook.PluginName,
		validatingpolicy.PluginName,
		validatingwebhook.PluginName,

		// Last, because it charges: what anybody still refuses afterwards would
		// have been charged for nothing.
		resourcequota.PluginName,
	}
}

// NewPlugins returns a registry that knows every plugin in Order.
func NewPlugins() *admission.Plugins {
	plugins := admission.NewPlugins()
	plugins.Register(lifecycle.PluginName, func(io.Reader) (admission.Interface, error) {
		return lifecycle.NewLifecycle(sets.New(hosting.SystemNamespaces()...))
	})
	localapiservice.Register(plugins)
	compiledin.Register(plugins)
	storeaccess.Register(plugins)
	mutatingpolicy.Register(plugins)
	mutatingwebhook.Register(plugins)
	validatingpolicy.Register(plugins)
	validatingwebhook.Register(plugins)
	registerQuota(plugins)
	return plugins
}

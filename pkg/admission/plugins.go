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

	"github.com/annex-dev/annex/pkg/admission/plugin/localapiservice"
	"github.com/annex-dev/annex/pkg/apis/hosting"
)

// Order returns the names of all plugins in the order they run.
func Order() []string {
	return []string{
		// First, so that nothing else looks at objects for a namespace that is
		// missing or going away.
		lifecycle.PluginName,

		// annex's own only validates; it comes last, to see what the others made.
		localapiservice.PluginName,
	}
}

// DefaultOff returns the plugins that run only where --enable-admission-plugins
// names them: none.
func DefaultOff() sets.Set[string] { return sets.New[string]() }

// NewPlugins returns a registry that knows every plugin in Order. Upstream's
// webhook and policy plugins are not in it: they wait for configuration kinds
// that annex does not serve, and would refuse all writes.
func NewPlugins() *admission.Plugins {
	plugins := admission.NewPlugins()
	plugins.Register(lifecycle.PluginName, func(io.Reader) (admission.Interface, error) {
		return lifecycle.NewLifecycle(sets.New(hosting.SystemNamespaces()...))
	})
	localapiservice.Register(plugins)
	return plugins
}

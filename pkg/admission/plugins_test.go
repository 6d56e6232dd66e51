// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/annex-dev/annex/pkg/admission/plugin/localapiservice"
)

func TestOrderNamesEveryRegisteredPluginOnce(t *testing.T) {
	t.Parallel()
	order := Order()
	if got := sets.New(order...); got.Len() != len(order) {
		t.Errorf("a plugin is listed twice: %v", order)
	}
	if diff := cmp.Diff(sets.List(sets.New(NewPlugins().Registered()...)), sets.List(sets.New(order...))); diff != "" {
		t.Errorf("registered plugins and order differ (-registered +ordered):\n%s", diff)
	}
}

// TestUpstreamDefaults fails when an upgrade of k8s.io/apiserver adds, drops or
// reorders a default plugin: somebody then has to decide whether annex follows.
func TestUpstreamDefaults(t *testing.T) {
	t.Parallel()
	decided := []string{
		"NamespaceLifecycle",         // runs
		"MutatingAdmissionPolicy",    // its configuration kinds are not served
		"MutatingAdmissionWebhook",   // likewise
		"ValidatingAdmissionPolicy",  // likewise
		"ValidatingAdmissionWebhook", // likewise
	}
	if diff := cmp.Diff(decided, options.NewAdmissionOptions().RecommendedPluginOrder); diff != "" {
		t.Errorf("upstream's default plugins changed (-decided +upstream):\n%s", diff)
	}
	own := sets.New(localapiservice.PluginName)
	for _, name := range Order() {
		if !own.Has(name) && !sets.New(decided...).Has(name) {
			t.Errorf("plugin %s is neither annex's own nor one of upstream's defaults", name)
		}
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/annex-dev/annex/pkg/admission/plugin/deletionaccess"
	"github.com/annex-dev/annex/pkg/admission/plugin/errorlimit"
	"github.com/annex-dev/annex/pkg/admission/plugin/ownerreferences"
	"github.com/annex-dev/annex/pkg/admission/plugin/sidecarinjection"
	"github.com/annex-dev/annex/pkg/admission/plugin/staticobjects"
	"github.com/annex-dev/annex/pkg/admission/plugin/storeaccess"
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
	if unknown := userConfigured.Difference(sets.New(order...)); unknown.Len() > 0 {
		t.Errorf("%v are configurable but not in the order", sets.List(unknown))
	}
}

// TestUpstreamDefaults fails when an upgrade of k8s.io/apiserver adds, drops or
// reorders a default plugin: decide then whether annex follows.
func TestUpstreamDefaults(t *testing.T) {
	t.Parallel()
	decided := []string{
		"NamespaceLifecycle",         // runs always
		"MutatingAdmissionPolicy",    // runs unless a main cluster has not the kinds
		"MutatingAdmissionWebhook",   // runs always
		"ValidatingAdmissionPolicy",  // runs unless a main cluster has not the kinds
		"ValidatingAdmissionWebhook", // runs always
	}
	if diff := cmp.Diff(decided, options.NewAdmissionOptions().RecommendedPluginOrder); diff != "" {
		t.Errorf("upstream's default plugins changed (-decided +upstream):\n%s", diff)
	}
	added := sets.New(
		// annex's own
		ownerreferences.PluginName, errorlimit.PluginName, localAPIServiceName, compiledInName, listLikeName,
		storeaccess.PluginName, deletionaccess.PluginName, staticobjects.PluginName, sidecarinjection.PluginName,
		resourcequota.PluginName, // in upstream's library, but only kube-apiserver has it on
	)
	inherited := slices.DeleteFunc(Order(), added.Has)
	if diff := cmp.Diff(decided, inherited); diff != "" {
		t.Errorf("upstream's plugins run in a different order (-upstream +annex):\n%s", diff)
	}
}

// What is charged must not be refused afterwards.
func TestQuotaComesLast(t *testing.T) {
	t.Parallel()
	order := Order()
	if last := order[len(order)-1]; last != resourcequota.PluginName {
		t.Errorf("%s runs last, want %s", last, resourcequota.PluginName)
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// on returns the enabled plugins.
func (o *Admission) on() []string {
	var on []string
	for _, plugin := range o.RecommendedPluginOrder {
		if !o.DefaultOffPlugins.Has(plugin) && !sets.New(o.DisablePlugins...).Has(plugin) {
			on = append(on, plugin)
		}
	}
	return on
}

func TestAdmissionPlugins(t *testing.T) {
	t.Parallel()
	type plugins = []string
	tests := map[string]struct {
		behindMain         bool
		unserved, disabled plugins
		want               plugins
	}{
		"standalone": {false, nil, nil, plugins{
			"NamespaceLifecycle", "OwnerReferencesLimit", "ValidationErrorsLimit", "LocalAPIService", "CompiledInGroups", "ListLikeObjects", "StoreAccess", "DeletionAccess", "StaticObjects", "SidecarInjection", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}},
		"aggregated": {true, nil, nil, plugins{
			"NamespaceLifecycle", "OwnerReferencesLimit", "ValidationErrorsLimit", "LocalAPIService", "CompiledInGroups", "ListLikeObjects", "StoreAccess", "DeletionAccess", "StaticObjects", "SidecarInjection", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}},
		"older main cluster": {true, plugins{"MutatingAdmissionPolicy"}, nil, plugins{
			"NamespaceLifecycle", "OwnerReferencesLimit", "ValidationErrorsLimit", "LocalAPIService", "CompiledInGroups", "ListLikeObjects", "StoreAccess", "DeletionAccess", "StaticObjects", "SidecarInjection", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}},
		"disabled by flag": {true, plugins{"MutatingAdmissionPolicy"}, plugins{"ResourceQuota", "MutatingAdmissionWebhook"}, plugins{
			"NamespaceLifecycle", "OwnerReferencesLimit", "ValidationErrorsLimit", "LocalAPIService", "CompiledInGroups", "ListLikeObjects", "StoreAccess", "DeletionAccess", "StaticObjects", "SidecarInjection", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewAdmission()
			o.DisablePlugins = test.disabled
			if test.behindMain {
				expect.NoError(t, o.turnOff(t.Context(), sets.New(test.unserved...)))
			}
			if diff := cmp.Diff(test.want, o.on()); diff != "" {
				t.Errorf("enabled plugins (-want +got):\n%s", diff)
			}
			if errs := o.Validate(); len(errs) > 0 {
				t.Errorf("not valid: %v", errs)
			}
		})
	}
}

func TestAdmissionThatTheMainClusterHasNot(t *testing.T) {
	t.Parallel()
	old := NewAdmission()
	old.EnablePlugins = []string{"MutatingAdmissionPolicy"}
	err := old.turnOff(t.Context(), sets.New("MutatingAdmissionPolicy"))
	if err == nil || !strings.Contains(err.Error(), "--enable-admission-plugins: the main cluster does not serve what MutatingAdmissionPolicy needs") {
		t.Errorf("a plugin with unserved kinds: got %v", err)
	}
}

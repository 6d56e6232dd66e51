// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// mainOf is a main cluster that serves these kinds of policies and webhooks.
type mainOf []string

func (m mainOf) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	for _, name := range m {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// on are the plugins that would run.
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
	kubernetes130 := mainOf{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	tests := map[string]struct {
		main     mainOf
		disabled []string
		want     []string
	}{
		"alone": {nil, nil, []string{"NamespaceLifecycle", "LocalAPIService"}},
		"behind Kubernetes 1.30": {kubernetes130, nil, []string{
			"NamespaceLifecycle", "LocalAPIService", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}},
		"behind Kubernetes 1.36": {slices.Concat(kubernetes130, mainOf{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}), nil, []string{
			"NamespaceLifecycle", "LocalAPIService", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}},
		"without what the flag says": {kubernetes130, []string{"ResourceQuota", "MutatingAdmissionWebhook"}, []string{
			"NamespaceLifecycle", "LocalAPIService", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewAdmission()
			o.DisablePlugins = test.disabled
			if test.main != nil {
				if err := o.useMain(t.Context(), test.main); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(test.want, o.on()); diff != "" {
				t.Errorf("plugins that run (-want +got):\n%s", diff)
			}
			if errs := o.Validate(test.main != nil); len(errs) > 0 {
				t.Errorf("not valid: %v", errs)
			}
		})
	}
}

func TestAdmissionThatTheMainClusterHasNot(t *testing.T) {
	t.Parallel()
	alone := NewAdmission()
	alone.EnablePlugins = []string{"ResourceQuota", "NamespaceLifecycle"}
	errs := alone.Validate(false)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "ResourceQuota does what a main cluster says: set --main-kubeconfig or --main-in-cluster") {
		t.Errorf("a plugin for a main cluster without one: got %v", errs)
	}
	old := NewAdmission()
	old.EnablePlugins = []string{"MutatingAdmissionPolicy"}
	err := old.useMain(t.Context(), mainOf{"validatingadmissionpolicies", "validatingadmissionpolicybindings"})
	if err == nil || !strings.Contains(err.Error(), "--enable-admission-plugins: the main cluster does not serve what MutatingAdmissionPolicy needs") {
		t.Errorf("a plugin whose kinds the main cluster has not: got %v", err)
	}
}

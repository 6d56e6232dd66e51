// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
)

// served is a main cluster that serves these resources, or none and an error.
type served []string

func (s served) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	if s == nil {
		return nil, errors.New("connection refused")
	}
	list := &metav1.APIResourceList{}
	for _, name := range s {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func TestUnserved(t *testing.T) {
	t.Parallel()
	webhooks := served{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
	validating := slices.Concat(webhooks, served{"validatingadmissionpolicies", "validatingadmissionpolicies/status", "validatingadmissionpolicybindings"})
	tests := map[string]struct {
		main served
		want []string
	}{
		"1.29":                             {webhooks, []string{"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"}},
		"1.30":                             {validating, []string{"MutatingAdmissionPolicy"}},
		"1.36":                             {slices.Concat(validating, served{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}), []string{}},
		"half of what a plugin must watch": {slices.Concat(validating, served{"mutatingadmissionpolicies"}), []string{"MutatingAdmissionPolicy"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Unserved(t.Context(), test.main)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, sets.List(got)); diff != "" {
				t.Errorf("plugins that must be off (-want +got):\n%s", diff)
			}
		})
	}
	// Not knowing is not the same as not served: the plugins must not be left out.
	if _, err := Unserved(t.Context(), served(nil)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a main cluster that does not answer: got %v", err)
	}
}

// refusing refuses all it is asked about.
type refusing struct{ *admission.Handler }

var errRefused = errors.New("refused")

func (refusing) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errRefused
}

func (refusing) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errRefused
}

func TestSpareOwnAPIServices(t *testing.T) {
	t.Parallel()
	apiServices := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	tests := map[string]struct {
		plugin   string
		resource schema.GroupVersionResource
		want     error
	}{
		"a webhook and an APIService":           {validatingwebhook.PluginName, apiServices, nil},
		"a webhook and a definition":            {validatingwebhook.PluginName, definitions, errRefused},
		"a plugin of annex's and an APIService": {lifecycle.PluginName, apiServices, errRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := SpareOwnAPIServices.Decorate(refusing{admission.NewHandler(admission.Create)}, test.plugin)
			attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "name", test.resource, "", admission.Create, nil, false, nil)
			if got := plugin.(admission.MutationInterface).Admit(t.Context(), attributes, nil); !errors.Is(got, test.want) {
				t.Errorf("Admit: got %v, want %v", got, test.want)
			}
			if got := plugin.(admission.ValidationInterface).Validate(t.Context(), attributes, nil); !errors.Is(got, test.want) {
				t.Errorf("Validate: got %v, want %v", got, test.want)
			}
			if !plugin.Handles(admission.Create) || plugin.Handles(admission.Delete) {
				t.Error("the decorated plugin handles other operations than the plugin")
			}
		})
	}
}

func TestQuotaInitializer(t *testing.T) {
	t.Parallel()
	plugin, err := resourcequota.NewResourceQuota(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	plugin.SetDrainedNotification(stop)
	QuotaInitializer().Initialize(plugin)
	if err := plugin.ValidateInitialization(); err == nil || strings.Contains(err.Error(), "quotaConfiguration") || strings.Contains(err.Error(), "evaluator") {
		t.Errorf("got %v, want a plugin that misses no more than clients", err)
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/annex-dev/annex/pkg/admission/plugin/staticobjects"
)

// refusing refuses every write.
type refusing struct{ *admission.Handler }

var errRefused = errors.New("refused")

func (refusing) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errRefused
}

func (refusing) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errRefused
}

func TestExemptOwnWrites(t *testing.T) {
	t.Parallel()
	loopback := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.AllAuthenticated, user.SystemPrivilegedGroup}}
	administrator := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup}}
	namesake := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.AllAuthenticated}}
	const webhook = validatingwebhook.PluginName
	tests := map[string]struct {
		plugin          string
		caller          user.Info
		group, resource string
		name            string
		want            error
	}{
		"own APIService":                 {webhook, loopback, "apiregistration.k8s.io", "apiservices", "v1.", nil},
		"APIService of a user":           {webhook, administrator, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"user with the loopback name":    {webhook, namesake, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"no user":                        {webhook, nil, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"plugin not configured by users": {lifecycle.PluginName, loopback, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"own write of a mirror":          {staticobjects.PluginName, loopback, "example.com", "widgets", "w", nil},
		"administrator and a mirror":     {staticobjects.PluginName, administrator, "example.com", "widgets", "w", errRefused},
		"namesake and a mirror":          {staticobjects.PluginName, namesake, "example.com", "widgets", "w", errRefused},
		"system namespace":               {webhook, loopback, "", "namespaces", "kube-system", nil},
		"other namespace":                {webhook, loopback, "", "namespaces", "team-a", errRefused},
		"default role":                   {webhook, loopback, "rbac.authorization.k8s.io", "clusterroles", "view", nil},
		"FlowSchema":                     {webhook, loopback, "flowcontrol.apiserver.k8s.io", "flowschemas", "exempt", nil},
		"leader election":                {webhook, loopback, "coordination.k8s.io", "leases", "annex-controllers", nil},
		"default Store":                  {webhook, loopback, "hosting.annex.dev", "stores", "default", nil},
		"object deleted for a user":      {webhook, loopback, "example.com", "widgets", "w", errRefused},
		"Secret deleted for a user":      {webhook, loopback, "", "secrets", "s", errRefused},
		"status of a definition":         {webhook, loopback, "apiextensions.k8s.io", "customresourcedefinitions", "c", errRefused},
		"role of a user":                 {webhook, administrator, "rbac.authorization.k8s.io", "clusterroles", "mine", errRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := ExemptOwnWrites.Decorate(refusing{admission.NewHandler(admission.Create)}, test.plugin)
			resource := schema.GroupVersionResource{Group: test.group, Version: "v1", Resource: test.resource}
			attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", test.name, resource, "", admission.Create, nil, false, test.caller)
			if got := plugin.(admission.MutationInterface).Admit(t.Context(), attributes, nil); !errors.Is(got, test.want) {
				t.Errorf("Admit: got %v, want %v", got, test.want)
			}
			if got := plugin.(admission.ValidationInterface).Validate(t.Context(), attributes, nil); !errors.Is(got, test.want) {
				t.Errorf("Validate: got %v, want %v", got, test.want)
			}
			if !plugin.Handles(admission.Create) || plugin.Handles(admission.Delete) {
				t.Error("the decorated plugin handles different operations")
			}
		})
	}
}

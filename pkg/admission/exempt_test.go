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
)

// refusing refuses all it is asked about.
type refusing struct{ *admission.Handler }

var errRefused = errors.New("refused")

func (refusing) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errRefused
}

func (refusing) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errRefused
}

func TestSpareOwn(t *testing.T) {
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
		"an APIService of annex's":            {webhook, loopback, "apiregistration.k8s.io", "apiservices", "v1.", nil},
		"an APIService of a user's":           {webhook, administrator, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"a user who took the name":            {webhook, namesake, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"nobody":                              {webhook, nil, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"a plugin that is not about users":    {lifecycle.PluginName, loopback, "apiregistration.k8s.io", "apiservices", "v1.", errRefused},
		"a namespace of the system":           {webhook, loopback, "", "namespaces", "kube-system", nil},
		"another namespace":                   {webhook, loopback, "", "namespaces", "team-a", errRefused},
		"a default role":                      {webhook, loopback, "rbac.authorization.k8s.io", "clusterroles", "view", nil},
		"a flow schema":                       {webhook, loopback, "flowcontrol.apiserver.k8s.io", "flowschemas", "exempt", nil},
		"who leads":                           {webhook, loopback, "coordination.k8s.io", "leases", "annex-controllers", nil},
		"the default Store":                   {webhook, loopback, "hosting.annex.dev", "stores", "default", nil},
		"what is deleted on a user's behalf":  {webhook, loopback, "example.com", "widgets", "w", errRefused},
		"a secret that is deleted like that":  {webhook, loopback, "", "secrets", "s", errRefused},
		"a definition whose status is set":    {webhook, loopback, "apiextensions.k8s.io", "customresourcedefinitions", "c", errRefused},
		"a role that a user makes for others": {webhook, administrator, "rbac.authorization.k8s.io", "clusterroles", "mine", errRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plugin := SpareOwn.Decorate(refusing{admission.NewHandler(admission.Create)}, test.plugin)
			resource := schema.GroupVersionResource{Group: test.group, Version: "v1", Resource: test.resource}
			attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", test.name, resource, "", admission.Create, nil, false, test.caller)
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

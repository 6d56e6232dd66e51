// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package deletionaccess

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// deleters may delete widgets of example.com in all namespaces.
type deleters struct{}

func (deleters) Authorize(_ context.Context, asked authorizer.Attributes) (authorizer.Decision, string, error) {
	switch name := asked.GetUser().GetName(); {
	case name == "unknown":
		return authorizer.DecisionNoOpinion, "", errors.New("the authorizer is unavailable")
	case name == "administrator" && asked.GetVerb() == "delete" && asked.GetAPIGroup() == "example.com" && asked.GetResource() == "*" && asked.GetNamespace() == "" && asked.IsResourceRequest():
		return authorizer.DecisionAllow, "", nil
	case name == "administrator" && asked.GetVerb() == "patch" && asked.GetAPIGroup() == "admissionregistration.k8s.io" && asked.GetResource() == "*":
		return authorizer.DecisionAllow, "", nil
	case name == "deleter" && asked.GetVerb() == "delete" && asked.GetAPIGroup() == "example.com" && asked.GetResource() == "widgets" && asked.GetNamespace() == "" && asked.IsResourceRequest():
		return authorizer.DecisionAllow, "", nil
	default:
		return authorizer.DecisionNoOpinion, "", nil
	}
}

// validate returns the answer of the plugin to a write.
func validate(t *testing.T, caller, kind, resource string, object, old runtime.Object) error {
	t.Helper()
	plugin := New()
	plugin.SetUnconditionalAuthorizer(deleters{})
	expect.NoError(t, plugin.ValidateInitialization())
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	attributes := admission.NewAttributesRecord(object, old, hostingv1alpha1.SchemeGroupVersion.WithKind(kind), "", object.(metav1.Object).GetName(),
		hostingv1alpha1.SchemeGroupVersion.WithResource(resource), "", operation, nil, false, &user.DefaultInfo{Name: caller})
	return plugin.Validate(t.Context(), attributes, nil)
}

func TestValidate(t *testing.T) {
	t.Parallel()
	retained := func(name string, seconds int64) *hostingv1alpha1.HostedResource {
		hosted := &hostingv1alpha1.HostedResource{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if seconds > 0 {
			hosted.Spec.Retention = &hostingv1alpha1.Retention{Rules: []hostingv1alpha1.RetentionRule{{Name: "old", AfterSeconds: seconds}}}
		}
		return hosted
	}
	const widgets = "widgets.example.com"
	for name, test := range map[string]struct {
		user        string
		object, old runtime.Object
		want        string
	}{
		"created by a deleter":           {"deleter", retained(widgets, 1), nil, ""},
		"created by another":             {"other", retained(widgets, 1), nil, `user "other" cannot delete resource "widgets" in API group "example.com" in all namespaces`},
		"of another resource":            {"deleter", retained("gadgets.example.com", 1), nil, "cannot delete"},
		"changed by a deleter":           {"deleter", retained(widgets, 1), retained(widgets, 2), ""},
		"changed by another":             {"other", retained(widgets, 1), retained(widgets, 2), "cannot delete"},
		"added by another":               {"other", retained(widgets, 1), retained(widgets, 0), "cannot delete"},
		"kept by another":                {"other", retained(widgets, 1), retained(widgets, 1), ""},
		"removed by another":             {"other", retained(widgets, 0), retained(widgets, 1), ""},
		"none":                           {"other", retained(widgets, 0), nil, ""},
		"with an unavailable authorizer": {"unknown", retained(widgets, 1), nil, "the authorizer is unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.ErrorOrNone(t, validate(t, test.user, "HostedResource", "hostedresources", test.object, test.old), test.want)
		})
	}
}

func TestValidateMigrations(t *testing.T) {
	t.Parallel()
	migration := func(spec hostingv1alpha1.MigrationSpec) *hostingv1alpha1.Migration {
		return &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: spec}
	}
	group := hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: hostingv1alpha1.MigrationFinalize}
	confirmed := group
	confirmed.Confirmed = true
	exempt := hostingv1alpha1.MigrationSpec{Group: "example.com", ExemptWebhooks: true}
	exemptNow := exempt
	exemptNow.Confirmed = true
	for name, test := range map[string]struct {
		user        string
		object, old runtime.Object
		want        string
	}{
		"created by an administrator":   {"administrator", migration(group), nil, ""},
		"created by another":            {"deleter", migration(group), nil, `annex would delete objects for the Migration, and user "deleter" cannot delete resource "*" in API group "example.com" in all namespaces`},
		"Rollback":                      {"deleter", migration(hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: hostingv1alpha1.MigrationRollback}), nil, "cannot delete"},
		"Move":                          {"deleter", migration(hostingv1alpha1.MigrationSpec{Group: "example.com"}), nil, ""},
		"of another group":              {"administrator", migration(hostingv1alpha1.MigrationSpec{Group: "internal.example.com", Operation: hostingv1alpha1.MigrationFinalize}), nil, "cannot delete"},
		"confirmed by an administrator": {"administrator", migration(confirmed), migration(group), ""},
		"confirmed by another":          {"deleter", migration(confirmed), migration(group), "cannot delete"},
		"exempt by an administrator":    {"administrator", migration(exempt), nil, ""},
		"exempt by another":             {"deleter", migration(exempt), nil, `cannot patch resource "*" in API group "admissionregistration.k8s.io"`},
		"exempt later by another":       {"deleter", migration(exempt), migration(hostingv1alpha1.MigrationSpec{Group: "example.com"}), "cannot patch"},
		"exempt before":                 {"deleter", migration(exemptNow), migration(exempt), ""},
		"labelled by another":           {"deleter", migration(group), migration(group), ""},
		"of a resource":                 {"deleter", migration(hostingv1alpha1.MigrationSpec{Resource: "widgets.example.com", StoreName: "east"}), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.ErrorOrNone(t, validate(t, test.user, "Migration", "migrations", test.object, test.old), test.want)
		})
	}
}

func TestNeedsAnAuthorizer(t *testing.T) {
	t.Parallel()
	expect.Error(t, New().ValidateInitialization(), "authorizer")
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"errors"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// stamping is a webhook on the group.
func stamping() *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "stamps"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "stamp.example.org", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stamped": "true"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{"*"}},
		}},
	}}}
}

// exemption is the right to exempt annex from stamping.
var exemption = rbacv1.PolicyRule{
	APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, ResourceNames: []string{"stamps"}, Verbs: []string{"patch"},
}

// everGranted returns the rules of all roles that were written.
func (f *fixture) everGranted() []rbacv1.PolicyRule {
	var granted []rbacv1.PolicyRule
	for _, action := range f.kube.Actions() {
		if write, ok := action.(interface{ GetObject() runtime.Object }); ok {
			if role, ok := write.GetObject().(*rbacv1.ClusterRole); ok {
				granted = append(granted, role.Rules...)
			}
		}
	}
	return granted
}

// wantExemption fails unless annex ever got the right to exempt itself, or never did.
func (f *fixture) wantExemption(t *testing.T, want bool) {
	t.Helper()
	isExemption := func(rule rbacv1.PolicyRule) bool {
		return slices.Equal(rule.Verbs, exemption.Verbs) && slices.Equal(rule.ResourceNames, exemption.ResourceNames)
	}
	if got := slices.ContainsFunc(f.everGranted(), isExemption); got != want {
		t.Errorf("annex got the right to exempt itself: %t, want %t", got, want)
	}
}

const hookTable = `These webhooks and policies apply to what a rollback writes:

  MutatingWebhookConfiguration stamps (stamp.example.org)
      widgets; only namespaces stamped=true
`

func TestMoveWithWebhooks(t *testing.T) {
	t.Parallel()
	denied := errors.New(`create a copy of a as a dry run: admission webhook "stamp.example.org" denied the request: no`)
	for name, test := range map[string]struct {
		change   func(f *fixture, o *moveFlags)
		want     string
		err      []string
		exempted bool
	}{
		"harmless": {func(*fixture, *moveFlags) {}, "If one denies or changes these writes, a rollback waits for --exempt-webhooks.\n", nil, false},
		"blocked": {func(f *fixture, _ *moveFlags) { f.probe = denied }, "", []string{
			"annex could not roll the group back by itself: widgets.example.com: create a copy of a as a dry run: admission webhook",
			"Give --exempt-webhooks, so that it can, or --allow-blocked-rollback, and to return: kubectl annex rollback example.com --exempt-webhooks",
		}, false},
		"allowed":          {func(f *fixture, o *moveFlags) { f.probe, o.allowBlocked = denied, true }, "", nil, false},
		"exempt":           {func(f *fixture, o *moveFlags) { f.probe, o.exemptWebhooks = denied, true }, "A rollback exempts system:serviceaccount:annex-system:annex from them,\nby the match condition example.com/annex-exempt.", nil, true},
		"cannot be probed": {func(f *fixture, _ *moveFlags) { f.probe = errors.New("forbidden") }, "widgets.example.com was not probed: forbidden", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, o := movable(), waiting()
			f.kubeObjects = []runtime.Object{stamping()}
			test.change(f, &o)
			err := f.start(t).move(t.Context(), &o)
			expect.Contains(t, f.out.String(), hookTable, test.want)
			expect.Equal(t, []string{"widgets"}, f.probed)
			f.wantExemption(t, test.exempted)
			if test.err != nil {
				expect.ErrorLine(t, err, test.err...)
				return
			}
			expect.NoError(t, err)
			expect.Equal(t, test.exempted, f.created(t).ExemptWebhooks)
			expect.Equal(t, maincopy.MoveRules(group, both...), f.granted(t), "the right to exempt annex ends with the move")
		})
	}
}

func TestRollbackWithWebhooks(t *testing.T) {
	t.Parallel()
	for name, exempt := range map[string]bool{"exempt": true, "not exempt": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := moved()
			f.kubeObjects = []runtime.Object{stamping()}
			expect.NoError(t, f.start(t).rollback(t.Context(), flags{wait: true, exemptWebhooks: exempt}))
			expect.Contains(t, f.out.String(), hookTable)
			f.wantExemption(t, exempt)
			expect.Equal(t, exempt, f.created(t).ExemptWebhooks)
		})
	}
}

// TestRollbackUnderWayIsExempt: one past its switch cannot be canceled, so that the user may exempt annex later.
func TestRollbackUnderWayIsExempt(t *testing.T) {
	t.Parallel()
	f := moved()
	f.kubeObjects = []runtime.Object{stamping()}
	f.annex = append(f.annex, migration("back", hostingv1alpha1.MigrationRollback, hostingv1alpha1.MigrationStatus{Phase: hostingv1alpha1.MigrationCopying}))
	expect.NoError(t, f.start(t).rollback(t.Context(), flags{exemptWebhooks: true}))
	expect.Contains(t, f.out.String(), "migration.hosting.annex.dev/back exempts annex from webhooks and policies\n")
	if !expect.Get(t, f.session.Annex.HostingV1alpha1().Migrations(), "back").Spec.ExemptWebhooks {
		t.Error("it does not")
	}
	f.wantExemption(t, true)
}

func ownedSecret() runtime.Object {
	return metadataOf("v1", "Secret", "ns", "dependant", metav1.OwnerReference{APIVersion: group + "/v1", Kind: "Widget", Name: "a"})
}

// TestProbeWith creates nothing but a dry run.
func TestProbeWith(t *testing.T) {
	t.Parallel()
	resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: "WidgetList"})
	expect.NoError(t, probeWith(client)(t.Context(), resource))
	expect.Equal(t, 1, len(client.Actions()), "without objects nothing is created")
}

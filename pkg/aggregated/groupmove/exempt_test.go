// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/annex-dev/annex/pkg/aggregated/mainadmission"
	"github.com/annex-dev/annex/pkg/aggregated/maincopy"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// changedError is of an object to which a webhook has added a field.
func changedError(t *testing.T) error {
	t.Helper()
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgets: "WidgetList"})
	client.PrependReactor("create", "widgets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		created.SetLabels(map[string]string{"by": "webhook"})
		return true, created, nil
	})
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}}}
	err := maincopy.ProbeCreation(t.Context(), client.Resource(widgets), object, "v1")
	if !maincopy.IsChanged(err) {
		t.Fatalf("%v is no change", err)
	}
	return err
}

// TestExplain names what may be the cause, and the option that helps.
func TestExplain(t *testing.T) {
	t.Parallel()
	const advice = ". To exempt annex from webhooks and policies until the end of the rollback: kubectl annex rollback example.com --exempt-webhooks"
	denied, changed := errors.New(`admission webhook "a" denied the request: no`), changedError(t)
	hooks := []mainadmission.Match{
		{Hook: mainadmission.Hook{Kind: "MutatingWebhookConfiguration", Object: "stamps", Webhook: "s", Mutating: true}},
		{Hook: mainadmission.Hook{Kind: "ValidatingWebhookConfiguration", Object: "denies"}},
	}
	for name, test := range map[string]struct {
		err    error
		exempt bool
		want   string
	}{
		"denied":           {denied, false, denied.Error() + advice},
		"denied, exempt":   {denied, true, denied.Error()},
		"policy":           {errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"), false, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no" + advice},
		"unreachable":      {errors.New(`failed calling webhook "a": timeout`), false, `failed calling webhook "a": timeout` + advice},
		"changed":          {changed, false, changed.Error() + ". These match: MutatingWebhookConfiguration stamps (s)" + advice},
		"something else":   {errors.New("no space"), false, "no space"},
		"nothing happened": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &rollback{Run: newRun(hostingv1alpha1.MigrationSpec{Group: "example.com"})}
			r.admission.hooks.Store(&hooks)
			r.admission.exempt.Store(test.exempt)
			got := ""
			if err := r.explain(test.err); err != nil {
				got = err.Error()
			}
			expect.Equal(t, test.want, got)
		})
	}
}

// TestUndoIsExempt: the Migration that undoes a Move passes webhooks like the Move would have.
func TestUndoIsExempt(t *testing.T) {
	t.Parallel()
	for _, exempt := range []bool{true, false} {
		m := &moveIn{Run: newRun(hostingv1alpha1.MigrationSpec{Group: "example.com", ExemptWebhooks: exempt})}
		expect.Error(t, m.undo(t.Context(), "unreachable"), `The Migration "m-undo" rolls the group back`)
		expect.Equal(t, hostingv1alpha1.MigrationSpec{Group: "example.com", Operation: hostingv1alpha1.MigrationRollback, ExemptWebhooks: exempt},
			expect.Get(t, m.config.AnnexHosting.Migrations(), "m-undo").Spec)
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package groupmove

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// stamp sets spec.username to the requester, as cert-manager does for CertificateRequests. It fails for
// annex's own probe, which has no spec: that must not undo a move.
func stamp(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
		return &admissionv1.AdmissionResponse{Allowed: true}
	}
	patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/username","value":%q}]`, request.UserInfo.Username)
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: patch, PatchType: new(admissionv1.PatchTypeJSONPatch)}
}

// keepSpec refuses changes of spec.
func keepSpec(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	var before, after unstructured.Unstructured
	if err := before.UnmarshalJSON(request.OldObject.Raw); err != nil {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
	}
	if err := after.UnmarshalJSON(request.Object.Raw); err != nil {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: err.Error()}}
	}
	allowed := equality.Semantic.DeepEqual(before.Object["spec"], after.Object["spec"])
	return &admissionv1.AdmissionResponse{Allowed: allowed, Result: &metav1.Status{Message: "spec is immutable"}}
}

// serve serves a webhook until the end of the test.
func serve(t *testing.T, review func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) admissionregistrationv1.WebhookClientConfig {
	t.Helper()
	server, authority := clients.ServeTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(sent); err != nil || sent.Request == nil {
			http.Error(w, fmt.Sprintf("not a review: %v", err), http.StatusBadRequest)
			return
		}
		answer := &admissionv1.AdmissionReview{TypeMeta: sent.TypeMeta, Response: review(sent.Request)}
		answer.Response.UID = sent.Request.UID
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the caller may be gone
	}), nil)
	return admissionregistrationv1.WebhookClientConfig{URL: new(server.URL + "/review"), CABundle: authority}
}

// maxWebhookSeconds is the longest timeout that there is: machines that run tests are busy.
const maxWebhookSeconds = int32(30)

// addWebhooks adds a webhook that stamps new objects of a kind, and one that keeps their spec.
func (f *fixture) addWebhooks(kind string) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	f.Helper()
	rules := func(operation admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{operation},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{f.group}, APIVersions: []string{"v1"}, Resources: []string{f.resourceOf(kind).Resource}},
		}}
	}
	meta, client := metav1.ObjectMeta{Name: f.group}, f.main.Kube.AdmissionregistrationV1()
	f.Cleanup(func() {
		expect.Succeeds(f, client.MutatingWebhookConfigurations().Delete(context.Background(), f.group, metav1.DeleteOptions{}))
		expect.Succeeds(f, client.ValidatingWebhookConfigurations().Delete(context.Background(), f.group, metav1.DeleteOptions{}))
	})
	stamps := expect.Create(f, client.MutatingWebhookConfigurations(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "stamp." + f.group, ClientConfig: serve(f.T, stamp), Rules: rules(admissionregistrationv1.Create),
			AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: new(maxWebhookSeconds),
		}},
	})
	keeps := expect.Create(f, client.ValidatingWebhookConfigurations(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "keep." + f.group, ClientConfig: serve(f.T, keepSpec), Rules: rules(admissionregistrationv1.Update),
			AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone), TimeoutSeconds: new(maxWebhookSeconds),
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "theirs", Expression: "true"}},
		}},
	})
	f.untilStamped(kind)
	return stamps, keeps
}

// untilStamped waits until the side that serves the group calls the webhook.
func (f *fixture) untilStamped(kind string) {
	f.Helper()
	object := f.newWidget("default", "stamped")
	object.SetKind(kind)
	poll.Until(f, "objects are stamped", func() string {
		created, err := f.main.Dynamic.Resource(f.resourceOf(kind)).Namespace("default").Create(f.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err.Error()
		}
		if f.username(created) == "" {
			return "it does not"
		}
		return ""
	})
}

func (f *fixture) username(widget *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(widget.Object, "spec", "username")
	return name
}

// TestWebhooks rolls a group back whose new objects a webhook stamps with the requester, and whose spec another
// keeps as it is: what annex writes is changed, and cannot be corrected.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	f := newFixtureWithoutRights(t, sharedAnnex, "stamped.example.com")
	stamps, keeps := f.addWebhooks("Widget")
	names := []string{"MutatingWebhookConfiguration stamped.example.com (stamp.stamped.example.com)", "ValidatingWebhookConfiguration stamped.example.com (keep.stamped.example.com)"}
	f.create("default", "old", nil)
	f.run("move", append(names, "Completed")...)
	f.untilStamped("Widget")
	born := f.create("default", "born", nil)

	f.run("rollback --wait=false", append(names, "waits for --exempt-webhooks")...)
	migrations, name := f.own.Hosting.HostingV1alpha1().Migrations(), f.rollbackUnderWay()
	blocked := expect.Eventually(t, migrations, name, "it reports the webhook", func(m *hostingv1alpha1.Migration) bool {
		return strings.Contains(message(m), `admission webhook "keep.stamped.example.com" denied the request: spec is immutable`)
	})
	if phase := blocked.Status.Phase; phase != hostingv1alpha1.MigrationCopying && phase != hostingv1alpha1.MigrationVerifying {
		t.Errorf("the phase is %s", phase)
	}
	expect.Contains(t, message(blocked), "Retrying: ", "widgets.stamped.example.com: write default/born in the main cluster", "kubectl annex rollback stamped.example.com --exempt-webhooks")

	f.run("rollback --exempt-webhooks", name+" exempts annex from webhooks and policies", "Completed", "The main cluster serves stamped.example.com.")
	f.wantServed("")
	f.wantRights(false)
	f.wantWebhooks(stamps, keeps)
	returned, err := f.widgets().Namespace("default").Get(t.Context(), "born", metav1.GetOptions{})
	expect.NoError(t, err)
	expect.Equal(t, f.username(born), f.username(returned), "the user who created it")
}

// TestCanceledExemption: a Migration that is deleted removes its match conditions, also if annex was not exempt when it
// began.
func TestCanceledExemption(t *testing.T) {
	t.Parallel()
	f := newFixtureWithoutRights(t, sharedAnnex, "exempted.example.com")
	stamps, keeps := f.addWebhooks("Widget")
	f.addPolicy()
	f.create("default", "old", nil)
	f.run("move --exempt-webhooks", "ValidatingAdmissionPolicy exempted.example.com", "A rollback exempts", "by the match condition exempted.example.com/annex-exempt", "Completed")
	f.wantWebhooks(stamps, keeps)
	f.create("default", "born", nil)
	f.kubectl(f.rights("rollback", "--exempt-webhooks"), "apply", "-f", "-")
	migrations := f.own.Hosting.HostingV1alpha1().Migrations()
	created := expect.Create(t, migrations, &hostingv1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "canceled"}, Spec: hostingv1alpha1.MigrationSpec{
		Group: f.group, Operation: hostingv1alpha1.MigrationRollback, Switch: hostingv1alpha1.MigrationSwitchManual, ExemptWebhooks: true,
	}})
	expect.Eventually(t, migrations, created.Name, "it waits for its confirmation", func(m *hostingv1alpha1.Migration) bool {
		return strings.Contains(message(m), "Waiting: The copy is verified")
	})
	condition := admissionregistrationv1.MatchCondition{
		Name: f.group + "/annex-exempt", Expression: `request.resource.group != "exempted.example.com" || request.userInfo.username != "system:serviceaccount:annex-system:annex"`,
	}
	admission := f.main.Kube.AdmissionregistrationV1()
	expect.Equal(t, []admissionregistrationv1.MatchCondition{condition}, expect.Get(t, admission.ValidatingAdmissionPolicies(), f.group).Spec.MatchConditions)
	expect.Equal(t, []admissionregistrationv1.MatchCondition{condition}, expect.Get(t, admission.MutatingWebhookConfigurations(), f.group).Webhooks[0].MatchConditions)

	// A tool that reverts it does not matter.
	reverted := expect.Get(t, admission.ValidatingWebhookConfigurations(), f.group)
	reverted.Webhooks[0].MatchConditions = keeps.Webhooks[0].MatchConditions
	expect.Update(t, admission.ValidatingWebhookConfigurations(), reverted)
	expect.Eventually(t, admission.ValidatingWebhookConfigurations(), f.group, "annex is exempt again", func(c *admissionregistrationv1.ValidatingWebhookConfiguration) bool {
		return len(c.Webhooks[0].MatchConditions) == 2
	})
	expect.Delete(t, migrations, created.Name)
	expect.Gone(t, migrations, created.Name)
	f.wantWebhooks(stamps, keeps)
	f.run("rollback --exempt-webhooks", "Completed")
	f.wantWebhooks(stamps, keeps)
	expect.Equal(t, 0, len(expect.Get(t, admission.ValidatingAdmissionPolicies(), f.group).Spec.MatchConditions))
}

// addPolicy adds a policy that keeps the spec of widgets, too.
func (f *fixture) addPolicy() {
	f.Helper()
	meta, client := metav1.ObjectMeta{Name: f.group}, f.main.Kube.AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "object.spec == oldObject.spec", Message: "spec is immutable"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{f.group}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
		},
	}}}
	expect.Create(f, client.ValidatingAdmissionPolicies(), policy)
	expect.Create(f, client.ValidatingAdmissionPolicyBindings(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: f.group, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	f.Cleanup(func() {
		expect.Succeeds(f, client.ValidatingAdmissionPolicyBindings().Delete(context.Background(), f.group, metav1.DeleteOptions{}))
		expect.Succeeds(f, client.ValidatingAdmissionPolicies().Delete(context.Background(), f.group, metav1.DeleteOptions{}))
	})
}

// rollbackUnderWay returns the name of the Migration.
func (f *fixture) rollbackUnderWay() string {
	f.Helper()
	for _, migration := range f.migrations() {
		if migration.Spec.Operation == hostingv1alpha1.MigrationRollback && !migration.Status.Phase.Finished() {
			return migration.Name
		}
	}
	f.Fatal("no rollback is under way")
	return ""
}

// wantWebhooks fails unless the webhooks are as they were created.
func (f *fixture) wantWebhooks(stamps *admissionregistrationv1.MutatingWebhookConfiguration, keeps *admissionregistrationv1.ValidatingWebhookConfiguration) {
	f.Helper()
	client := f.main.Kube.AdmissionregistrationV1()
	expect.Equal(f, stamps.Webhooks, expect.Get(f, client.MutatingWebhookConfigurations(), f.group).Webhooks)
	expect.Equal(f, keeps.Webhooks, expect.Get(f, client.ValidatingWebhookConfigurations(), f.group).Webhooks)
}

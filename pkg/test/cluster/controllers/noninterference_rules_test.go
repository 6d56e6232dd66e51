// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package controllers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// webhook is a server of admission webhooks that denies blue Widgets and sets a missing color.
type webhook struct {
	service *admissionregistrationv1.ServiceReference
	ca      []byte
	calls   atomic.Int64
}

// newWebhook runs a webhook behind a Service of the main cluster.
func newWebhook(t *testing.T, namespace string) *webhook {
	t.Helper()
	expect.NoError(t, mainCluster.ExternalNameService(t.Context(), namespace, "webhook"))
	certificate, key, err := mainCluster.ServingCertificate(namespace, "webhook")
	expect.NoError(t, err)
	pair, err := tls.X509KeyPair(certificate, key)
	expect.NoError(t, err)
	w := &webhook{ca: mainCluster.CA()}
	server, _ := clients.ServeTLS(t, w, &tls.Config{Certificates: []tls.Certificate{pair}})
	port := int32(server.Listener.Addr().(*net.TCPAddr).Port)
	w.service = &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "webhook", Port: &port}
	return w
}

// ServeHTTP responds to an AdmissionReview.
func (w *webhook) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	w.calls.Add(1)
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(review.Request.Object.Raw); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	color, _, _ := unstructured.NestedString(object.Object, "spec", "color")
	switch {
	case color == "blue" && strings.HasSuffix(r.URL.Path, "/validate"):
		answer.Allowed, answer.Result = false, &metav1.Status{Message: "no blue widgets (webhook)"}
	case color == "" && strings.HasSuffix(r.URL.Path, "/mutate"):
		answer.Patch, answer.PatchType = []byte(`[{"op":"add","path":"/spec/color","value":"green"}]`), new(admissionv1.PatchTypeJSONPatch)
	}
	review.Request, review.Response = nil, answer
	response.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(response).Encode(review) // annex may have stopped
}

func (w *webhook) client(path string) admissionregistrationv1.WebhookClientConfig {
	service := *w.service
	service.Path = &path
	return admissionregistrationv1.WebhookClientConfig{Service: &service, CABundle: w.ca}
}

func rulesFor(group string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}}
}

// tryCreate creates a Widget with dry run.
func (w widgets) tryCreate(ctx context.Context, by *endpoint, color string) (*unstructured.Unstructured, error) {
	object := w.object("tried")
	object.Object["spec"] = map[string]any{}
	if color != "" {
		object.Object["spec"] = map[string]any{"color": color}
	}
	return w.by(by).Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func testWebhooksOfTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	mainClients := main(t)
	hook := newWebhook(t, w.namespace)
	meta := metav1.ObjectMeta{Name: w.group}
	inNamespace := &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "validate." + w.group, ClientConfig: hook.client("/validate"), Rules: rulesFor(w.group), NamespaceSelector: inNamespace,
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}}
	configurations := mainClients.Kube.AdmissionregistrationV1()
	expect.Create(t, configurations.ValidatingWebhookConfigurations(), validating)
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "mutate." + w.group, ClientConfig: hook.client("/mutate"), Rules: rulesFor(w.group), NamespaceSelector: inNamespace,
		SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	}}}
	expect.Create(t, configurations.MutatingWebhookConfigurations(), mutating)
	t.Cleanup(func() {
		ctx := context.Background()
		expect.Succeeds(t, configurations.ValidatingWebhookConfigurations().Delete(ctx, validating.Name, metav1.DeleteOptions{}))
		expect.Succeeds(t, configurations.MutatingWebhookConfigurations().Delete(ctx, mutating.Name, metav1.DeleteOptions{}))
	})
	poll.Until(t, "the validating webhook is called", func() string {
		_, err := w.tryCreate(t.Context(), mainClients, "blue")
		return expect.MissingFrom(err, "validate."+w.group, "no blue widgets (webhook)")
	})
	poll.UntilDone(t, "the mutating webhook is called", func() (bool, string) {
		created, err := w.tryCreate(t.Context(), mainClients, "")
		if err != nil {
			return false, err.Error()
		}
		color, _, _ := unstructured.NestedString(created.Object, "spec", "color")
		return color == "green", "the color is " + color
	})
	if _, err := w.tryCreate(t.Context(), mainClients, "red"); err != nil {
		t.Errorf("an object that the webhook allows: %v", err)
	}
	// The same webhooks apply at annex's own endpoint.
	if _, err := w.tryCreate(t.Context(), s.own(t), "blue"); expect.MissingFrom(err, "no blue widgets") != "" {
		t.Errorf("at annex's own endpoint: %v", err)
	}
	elsewhere := widgets{group: w.group, namespace: newNamespace(t)}
	if _, err := elsewhere.tryCreate(t.Context(), mainClients, "blue"); err != nil {
		t.Errorf("in a namespace that the webhook does not select: %v", err)
	}
}

func matchesGroup(group string) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rulesFor(group)[0]}}}
}

func testPoliciesOfTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	mainClients := main(t)
	policies := mainClients.Kube.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: w.group}
	expect.Create(t, policies.ValidatingAdmissionPolicies(), &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: matchesGroup(w.group),
		Validations:      []admissionregistrationv1.Validation{{Expression: "object.spec.color != 'blue'", Message: "no blue widgets (policy)"}},
	}})
	expect.Create(t, policies.ValidatingAdmissionPolicyBindings(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: w.group, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}})
	poll.Until(t, "the validating policy applies", func() string {
		_, err := w.tryCreate(t.Context(), mainClients, "blue")
		return expect.MissingFrom(err, "ValidatingAdmissionPolicy", "no blue widgets (policy)")
	})
}

func testMutatingPoliciesOfTheMainCluster(t *testing.T, s *sharedAnnex) {
	mainClients := main(t)
	if !annextest.HasMutatingPolicies(t, mainCluster) {
		t.Skip("the main cluster has no MutatingAdmissionPolicies in v1")
	}
	w := s.newWidgets(t)
	policies := mainClients.Kube.AdmissionregistrationV1()
	meta := metav1.ObjectMeta{Name: w.group}
	expect.Create(t, policies.MutatingAdmissionPolicies(), &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints:   matchesGroup(w.group),
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
			ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: `Object{metadata: Object.metadata{labels: {"painted": "yes"}}}`},
		}},
	}})
	expect.Create(t, policies.MutatingAdmissionPolicyBindings(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName: w.group,
	}})
	poll.UntilDone(t, "the mutating policy applies", func() (bool, string) {
		created, err := w.tryCreate(t.Context(), mainClients, "red")
		if err != nil {
			return false, err.Error()
		}
		return created.GetLabels()["painted"] == "yes", "no label"
	})
}

func testRightsOfTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	user := "alice-" + w.namespace
	config, err := mainCluster.ConfigFor(user)
	expect.NoError(t, err)
	through := newEndpoint(t, config)
	// The same certificate is valid at annex's own endpoint.
	direct := newEndpoint(t, s.annex.ConfigAs(config))
	for name, by := range map[string]*endpoint{"through the main cluster": through, "at annex's own endpoint": direct} {
		_, err := w.by(by).List(t.Context(), metav1.ListOptions{})
		if problem := expect.MissingFrom(err, user, "cannot list resource", w.group); problem != "" || !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "widgets", Namespace: w.namespace}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{w.group}, Resources: []string{"widgets"}, Verbs: []string{"list", "create"}},
	}}
	rbac := main(t).Kube.RbacV1()
	expect.Create(t, rbac.Roles(w.namespace), role)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets", Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "widgets"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	expect.Create(t, rbac.RoleBindings(w.namespace), binding)
	poll.UntilNoError(t, "the granted permission applies", func() error {
		if _, err := w.by(through).List(t.Context(), metav1.ListOptions{}); err != nil {
			return err
		}
		_, err := w.tryCreate(t.Context(), through, "red")
		return err
	})
	if err := w.by(through).Delete(t.Context(), "any", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a permission that was not granted: %v", err)
	}
}

// flowSchemaHeader names the FlowSchema of a request.
const flowSchemaHeader = "X-Kubernetes-Pf-Flowschema-Uid"

func testFlowSchemasOfTheMainCluster(t *testing.T, s *sharedAnnex) {
	w := s.newWidgets(t)
	user := "bob-" + w.namespace
	made := expect.Create(t, main(t).Kube.FlowcontrolV1().FlowSchemas(), &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
			MatchingPrecedence:         10,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{w.group}, Resources: []string{"*"}, Namespaces: []string{"*"},
				}},
			}},
		},
	})
	config, err := mainCluster.ConfigFor(user)
	expect.NoError(t, err)
	by := newEndpoint(t, s.annex.ConfigAs(config))
	poll.UntilDone(t, "annex applies the main cluster's FlowSchema", func() (bool, string) {
		got := by.get(t, w.path())
		uid := got.Header.Get(flowSchemaHeader)
		return uid == string(made.UID), "flow schema " + uid + " and not " + string(made.UID) + ": " + got.String()
	})
}

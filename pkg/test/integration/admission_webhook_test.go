// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// reviewHandler responds to an admission review.
type reviewHandler func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview)

// webhookServer is a webhook with TLS. It records the requests.
type webhookServer struct {
	*httptest.Server

	authority []byte
	mu        sync.Mutex
	requests  []admissionv1.AdmissionRequest
}

func newWebhookServer(t *testing.T, answer reviewHandler) *webhookServer {
	t.Helper()
	s := &webhookServer{}
	s.Server, s.authority = clients.ServeTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprintf("not a review: %v", err), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, *review.Request)
		s.mu.Unlock()
		answer(w, r, review)
	}), nil)
	return s
}

// client returns the client configuration of the server.
func (s *webhookServer) client() admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: new(s.URL + "/review"), CABundle: s.authority}
}

// unreachable returns the client configuration of a server that is down.
func unreachable(t *testing.T) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: new("https://" + freeport.Refusing(t) + "/review")}
}

// requestsFor returns the requests about an object, in order.
func (s *webhookServer) requestsFor(name string) []admissionv1.AdmissionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r admissionv1.AdmissionRequest) bool { return r.Name != name })
}

// respond sends a response with the UID of the request.
func respond(w http.ResponseWriter, review *admissionv1.AdmissionReview, response admissionv1.AdmissionResponse) {
	response.UID = review.Request.UID
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &response}) // the caller may be gone
}

// Webhooks that work.
var (
	allow reviewHandler = func(w http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) {
		respond(w, review, admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"seen by a webhook"}})
	}
	refuse reviewHandler = func(w http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) {
		respond(w, review, admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "not like that", Code: http.StatusTeapot}})
	}
)

// patchWith returns a webhook that patches the object.
func patchWith(patch string) reviewHandler {
	return func(w http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) {
		respond(w, review, admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: new(admissionv1.PatchTypeJSONPatch)})
	}
}

// Webhooks that fail.
var (
	// slow waits until the caller gives up.
	slow    reviewHandler = func(_ http.ResponseWriter, r *http.Request, _ *admissionv1.AdmissionReview) { <-r.Context().Done() }
	notJSON reviewHandler = func(w http.ResponseWriter, _ *http.Request, _ *admissionv1.AdmissionReview) {
		fmt.Fprint(w, "<html>It works!</html>")
	}
	broken reviewHandler = func(w http.ResponseWriter, _ *http.Request, _ *admissionv1.AdmissionReview) {
		http.Error(w, "out of order", http.StatusInternalServerError)
	}
)

// hook is a webhook on the configmaps of a namespace, for both kinds.
type hook = admissionregistrationv1.MutatingWebhook

func newWebhook(namespace, name string, client admissionregistrationv1.WebhookClientConfig, changes ...func(*hook)) hook {
	h := hook{
		Name: name + ".hook.example.com", ClientConfig: client, AdmissionReviewVersions: []string{"v1"},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
		SideEffects:       new(admissionregistrationv1.SideEffectClassNone),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}
	for _, change := range changes {
		change(&h)
	}
	return h
}

func ignoreFailures(h *hook) { h.FailurePolicy = new(admissionregistrationv1.Ignore) }
func shortTimeout(h *hook)   { h.TimeoutSeconds = new(int32(1)) }

// installMutatingWebhooks installs webhooks that may change objects.
func (a *annex) installMutatingWebhooks(t *testing.T, name string, hooks ...hook) {
	t.Helper()
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: hooks}
	configurations := a.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations()
	expect.Create(t, configurations, configuration)
	t.Cleanup(func() { deleteQuietly(t, configurations.Delete, name) })
}

// installValidatingWebhooks installs webhooks that may only refuse.
func (a *annex) installValidatingWebhooks(t *testing.T, name string, hooks ...hook) {
	t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, h := range hooks {
		configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
			NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
			TimeoutSeconds: h.TimeoutSeconds, AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions,
		})
	}
	configurations := a.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	expect.Create(t, configurations, configuration)
	t.Cleanup(func() { deleteQuietly(t, configurations.Delete, name) })
}

// deleteQuietly cleans up, unless annex has stopped.
func deleteQuietly(t *testing.T, remove func(context.Context, string, metav1.DeleteOptions) error, name string) {
	t.Helper()
	if err := remove(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && !utilnet.IsConnectionRefused(err) {
		t.Errorf("delete %s: %v", name, err)
	}
}

// tryConfigMap creates a configmap, or does a dry run of that.
func (a *annex) tryConfigMap(t *testing.T, namespace, name string, dryRun bool, changes ...func(*corev1.ConfigMap)) (*corev1.ConfigMap, error) {
	t.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string]string{"a": "b"}}
	for _, change := range changes {
		change(configMap)
	}
	options := metav1.CreateOptions{}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return a.Kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap, options)
}

// waitForWebhooks waits until annex calls a webhook of the tested configuration.
func (a *annex) waitForWebhooks(t *testing.T, namespace string, sentinel *webhookServer) {
	t.Helper()
	poll.UntilDone(t, "the webhooks come into force", func() (bool, string) {
		_, err := a.tryConfigMap(t, namespace, "sentinel", true)
		return len(sentinel.requestsFor("sentinel")) != 0, fmt.Sprintf("it is not called; creating: %v", err)
	})
}

// failure is a webhook that fails.
type failure struct {
	answer reviewHandler
	// client replaces the server's client configuration.
	client func(t *testing.T) admissionregistrationv1.WebhookClientConfig
	// want are parts of the error with the failure policy Fail.
	want []string
	// mutating limits it to mutating webhooks.
	mutating bool
}

func failures() map[string]failure {
	return map[string]failure{
		"slow":           {answer: slow, want: []string{"failed calling webhook", "context deadline exceeded"}},
		"not JSON":       {answer: notJSON, want: []string{"failed calling webhook", "json parse error"}},
		"internal error": {answer: broken, want: []string{"failed calling webhook", "out of order"}},
		"invalid patch":  {answer: patchWith(`add it`), want: []string{"undecodable patch", "invalid character 'a'"}, mutating: true},
		"down":           {client: unreachable, want: []string{"failed calling webhook", "connection refused"}},
		"untrusted certificate": {client: func(t *testing.T) admissionregistrationv1.WebhookClientConfig {
			client := newWebhookServer(t, allow).client()
			client.CABundle = certificatePEM(newAuthority(t).certificate)
			return client
		}, want: []string{"failed calling webhook", "x509: certificate signed by unknown authority"}},
		"a Service": {client: func(*testing.T) admissionregistrationv1.WebhookClientConfig {
			return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "ns", Name: "svc"}}
		}, want: []string{"failed calling webhook", "resolve Service ns/svc", "set clientConfig.url instead of clientConfig.service"}},
	}
}

func TestAdmissionWebhookFailures(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	for name, failure := range failures() {
		for kind, install := range map[string]func(*testing.T, string, ...hook){"validating": a.installValidatingWebhooks, "mutating": a.installMutatingWebhooks} {
			if failure.mutating && kind != "mutating" {
				continue
			}
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				client := func() admissionregistrationv1.WebhookClientConfig {
					if failure.client != nil {
						return failure.client(t)
					}
					return newWebhookServer(t, failure.answer).client()
				}()
				sentinel := newWebhookServer(t, allow)
				// The sentinel is first: it is called even if the next one fails.
				strict, lenient := a.newNamespace(t), a.newNamespace(t)
				install(t, strict, newWebhook(strict, "sentinel", sentinel.client()), newWebhook(strict, "tested", client, shortTimeout))
				install(t, lenient, newWebhook(lenient, "sentinel", sentinel.client()), newWebhook(lenient, "tested", client, shortTimeout, ignoreFailures))
				a.waitForWebhooks(t, strict, sentinel)
				_, err := a.tryConfigMap(t, strict, "one", false)
				expect.Error(t, err, failure.want...)
				if !apierrors.IsInternalError(err) {
					t.Errorf("%v is not an internal error", err)
				}
				poll.UntilDone(t, "the other webhooks come into force", func() (bool, string) {
					_, err := a.tryConfigMap(t, lenient, "other", true)
					return len(sentinel.requestsFor("other")) != 0, fmt.Sprintf("not called; creating: %v", err)
				})
				if _, err := a.tryConfigMap(t, lenient, "one", false); err != nil {
					t.Errorf("an ignored failure: %v", err)
				}
			})
		}
	}
}

func TestAdmissionWebhookDecisions(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	seen := newWebhookServer(t, allow)
	choosy := newWebhookServer(t, func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview) {
		if strings.HasPrefix(review.Request.Name, "bad") || review.Request.Operation == admissionv1.Delete {
			refuse(w, r, review)
			return
		}
		allow(w, r, review)
	})
	a.installValidatingWebhooks(t, namespace, newWebhook(namespace, "seen", seen.client()), newWebhook(namespace, "choosy", choosy.client()))
	a.waitForWebhooks(t, namespace, seen)

	_, err := a.tryConfigMap(t, namespace, "bad", false)
	expect.Error(t, err, `admission webhook "choosy.hook.example.com" denied the request: not like that`)
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != http.StatusTeapot {
		t.Errorf("%v does not have the code that the webhook gave", err)
	}
	answer := a.request(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", `{"metadata":{"name":"good"}}`)
	if warnings := answer.Header.Values("Warning"); answer.Code != http.StatusCreated || !slices.Contains(warnings, `299 - "seen by a webhook"`) {
		t.Errorf("a good one: %s, warnings %q", answer, warnings)
	}
	err = a.Kube.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "good", metav1.DeleteOptions{})
	expect.Error(t, err, "not like that")
	asked := seen.requestsFor("good")
	if len(asked) != 2 {
		t.Fatalf("%d requests about an object that was created and nearly deleted, want 2", len(asked))
	}
	if create := asked[0]; create.Operation != admissionv1.Create || create.UserInfo.Username == "" || create.Namespace != namespace || len(create.Object.Raw) == 0 || *create.DryRun {
		t.Errorf("the request of the creation: %+v", create)
	}
	if remove := asked[1]; remove.Operation != admissionv1.Delete || len(remove.OldObject.Raw) == 0 || len(remove.Object.Raw) != 0 {
		t.Errorf("the request of the deletion: %+v", remove)
	}
}

// Webhooks receive dry runs, marked as such: a webhook with side effects is refused.
func TestAdmissionWebhookDryRun(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	server := newWebhookServer(t, allow)
	a.installValidatingWebhooks(t, namespace, newWebhook(namespace, "none", server.client(), func(h *hook) {
		h.SideEffects = new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	}))
	a.waitForWebhooks(t, namespace, server)
	for _, dryRun := range []bool{true, false} {
		if _, err := a.tryConfigMap(t, namespace, "one", dryRun); err != nil {
			t.Fatal(err)
		}
	}
	var dryRuns []bool
	for _, request := range server.requestsFor("one") {
		dryRuns = append(dryRuns, *request.DryRun)
	}
	if diff := cmp.Diff([]bool{true, false}, dryRuns); diff != "" {
		t.Errorf("the field dryRun (-want +got):\n%s", diff)
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-some"}, Webhooks: []hook{
		newWebhook(namespace, "some", server.client(), func(h *hook) { h.SideEffects = new(admissionregistrationv1.SideEffectClassSome) })}}
	_, err := a.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), configuration, metav1.CreateOptions{})
	expect.Error(t, err, `webhooks[0].sideEffects: Unsupported value: "Some"`)
}

// A match condition that cannot be evaluated counts as a failure of the webhook.
func TestAdmissionWebhookMatchConditions(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	sentinel, chosen := newWebhookServer(t, allow), newWebhookServer(t, refuse)
	conditions := func(conditions ...admissionregistrationv1.MatchCondition) func(*hook) {
		return func(h *hook) { h.MatchConditions = conditions }
	}
	labelled := admissionregistrationv1.MatchCondition{Name: "labelled", Expression: "object.metadata.labels['check'] == 'yes'"}
	a.installValidatingWebhooks(t, namespace,
		newWebhook(namespace, "sentinel", sentinel.client()),
		newWebhook(namespace, "named", chosen.client(), conditions(
			admissionregistrationv1.MatchCondition{Name: "named", Expression: "request.name.startsWith('chosen')"},
			admissionregistrationv1.MatchCondition{Name: "not-spared", Expression: "request.name != 'chosen-not'"})),
		newWebhook(namespace, "strict", newWebhookServer(t, allow).client(), conditions(labelled), func(h *hook) {
			h.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"strict": "yes"}}
			h.MatchConditions[0].Expression = "object.data['missing'] == 'yes'"
		}),
		newWebhook(namespace, "lenient", chosen.client(), conditions(labelled), ignoreFailures, func(h *hook) {
			h.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"lenient": "yes"}}
		}))
	a.waitForWebhooks(t, namespace, sentinel)
	label := func(key string) func(*corev1.ConfigMap) {
		return func(c *corev1.ConfigMap) { c.Labels = map[string]string{key: "yes"} }
	}
	for _, test := range []struct {
		name    string
		changes []func(*corev1.ConfigMap)
		want    string
	}{
		{"other", nil, ""},
		{"chosen-one", nil, "named.hook.example.com"},
		{"chosen-not", nil, ""},
		{"strict", []func(*corev1.ConfigMap){label("strict")}, "no such key: missing"},
		{"lenient", []func(*corev1.ConfigMap){label("lenient")}, ""},
	} {
		_, err := a.tryConfigMap(t, namespace, test.name, false, test.changes...)
		if test.want == "" && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.want != "" {
			expect.Error(t, err, test.want)
		}
	}
}

func TestMutatingAdmissionWebhook(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	for name, test := range map[string]struct {
		answer reviewHandler
		want   []string // empty if the change is accepted
	}{
		"valid":          {patchWith(`[{"op":"add","path":"/data/added","value":"yes"}]`), nil},
		"missing path":   {patchWith(`[{"op":"remove","path":"/data/missing"}]`), []string{"Unable to remove nonexistent key: missing"}},
		"wrong type":     {patchWith(`[{"op":"replace","path":"/data","value":[]}]`), []string{"cannot unmarshal array into Go struct field ConfigMap.data"}},
		"invalid object": {patchWith(`[{"op":"add","path":"/data/no key","value":"x"}]`), []string{"data[no key]: Invalid value"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := a.newNamespace(t)
			server := newWebhookServer(t, test.answer)
			// An invalid patch is an error even if failures are ignored.
			a.installMutatingWebhooks(t, namespace, newWebhook(namespace, "tested", server.client(), ignoreFailures))
			a.waitForWebhooks(t, namespace, server)
			created, err := a.tryConfigMap(t, namespace, "one", false)
			if test.want != nil {
				expect.Error(t, err, test.want...)
				return
			}
			if err != nil || created.Data["added"] != "yes" {
				t.Errorf("created %v, error %v; want what the webhook added", created, err)
			}
		})
	}
}

// A webhook can be called again after a later one changed the object.
func TestAdmissionWebhookReinvocation(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	namespace := a.newNamespace(t)
	first, never := newWebhookServer(t, allow), newWebhookServer(t, allow)
	second := newWebhookServer(t, func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview) {
		if strings.Contains(string(review.Request.Object.Raw), `"second"`) {
			allow(w, r, review)
			return
		}
		patchWith(`[{"op":"add","path":"/data/second","value":"yes"}]`)(w, r, review)
	})
	again := func(h *hook) { h.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy) }
	a.installMutatingWebhooks(t, namespace, newWebhook(namespace, "first", first.client(), again), newWebhook(namespace, "never", never.client()), newWebhook(namespace, "second", second.client(), again))
	a.waitForWebhooks(t, namespace, second)
	created, err := a.tryConfigMap(t, namespace, "one", false)
	if err != nil || created.Data["second"] != "yes" {
		t.Fatalf("created %v, error %v", created, err)
	}
	got := map[string]int{"first": len(first.requestsFor("one")), "never": len(never.requestsFor("one")), "second": len(second.requestsFor("one"))}
	if diff := cmp.Diff(map[string]int{"first": 2, "never": 1, "second": 1}, got); diff != "" {
		t.Errorf("calls of each webhook (-want +got):\n%s", diff)
	}
	if requests := first.requestsFor("one"); !strings.Contains(string(requests[1].Object.Raw), `"second"`) {
		t.Errorf("called again with %s, want what the second added", requests[1].Object.Raw)
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdfake "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexfake "github.com/annex-dev/annex/pkg/generated/clientset/versioned/fake"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// newTestWebhook has a profile for the jobs of namespaces with a label.
func newTestWebhook(t *testing.T) *webhook {
	t.Helper()
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "jobs.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"pod": open},
			}},
		}}},
	}
	misfit := crd.DeepCopy()
	misfit.Name = "others.example.com"
	misfit.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = nil
	templates := []v1alpha1.InjectionTemplate{{Path: "pod", Type: v1alpha1.InjectionPodSpec}}
	hook, err := newWebhook(
		annexfake.NewClientset(&v1alpha1.InjectionProfile{
			ObjectMeta: metav1.ObjectMeta{Name: "agent"},
			Spec: v1alpha1.InjectionProfileSpec{
				Mode:              v1alpha1.InjectionOptOut,
				Targets:           []v1alpha1.InjectionTarget{{Resource: "jobs.example.com", Templates: templates}, {Resource: "others.example.com", Templates: templates}},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"inject": "yes"}},
				Containers:        []runtime.RawExtension{{Raw: []byte(`{"name":"agent","image":"agent:1"}`)}},
			},
		}),
		fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "in", Labels: map[string]string{"inject": "yes"}}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "out"}}),
		crdfake.NewClientset(crd, misfit),
	)
	expect.NoError(t, err)
	return hook
}

func (w *webhook) startFor(t *testing.T) {
	t.Helper()
	w.start(t.Context())
	poll.UntilDone(t, "the caches are filled", func() (bool, string) { return w.ready(), "not yet" })
}

// post sends a body to a path of the webhook.
func (w *webhook) post(t *testing.T, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	ca := newAuthority(t)
	return w.postWith(t, ca, ca, "kube-apiserver", path, body)
}

// postWith sends a body with a certificate of a CA for a name, to a webhook that trusts another.
func (w *webhook) postWith(t *testing.T, trusted, signer *authority, name, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	content, err := dynamiccertificates.NewStaticCAContent("test", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.cert.Raw}))
	expect.NoError(t, err)
	recorder, sent := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	sent.TLS = &tls.ConnectionState{}
	if signer != nil {
		text, _ := signer.newPair(t, 2, name)
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		expect.NoError(t, err)
		sent.TLS.PeerCertificates = []*x509.Certificate{cert}
	}
	w.handler(content, []string{"kube-apiserver", "annex"}).ServeHTTP(recorder, sent)
	return recorder
}

func newReview(change func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionReview {
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Job"},
			Resource: metav1.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "jobs"},
			Name:     "a", Namespace: "in", Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"a"},"pod":{"containers":[{"name":"main"}]}}`)},
		},
	}
	if change != nil {
		change(review.Request)
	}
	return review
}

func TestReview(t *testing.T) {
	t.Parallel()
	hook := newTestWebhook(t)
	text, err := json.Marshal(newReview(nil))
	expect.NoError(t, err)
	if got := hook.post(t, "/mutate", string(text)); got.Code != http.StatusServiceUnavailable {
		t.Errorf("before the caches are filled: %d %s", got.Code, got.Body)
	}
	hook.startFor(t)
	const added = `[{"op":"add","path":"/metadata/annotations","value":{"annex.dev/injected":`
	type request = admissionv1.AdmissionRequest
	for name, test := range map[string]struct {
		change func(*request)
		// patch begins the response's patch, and message is part of its message. code is the HTTP status of an
		// error without a review.
		patch, message, warning string
		code                    int
	}{
		"create": {patch: added},
		"update of the template": {change: func(r *request) {
			r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(`{"metadata":{"name":"a"},"pod":{"containers":[{"name":"old"}]}}`)
		}, patch: added},
		"update of nothing": {change: func(r *request) { r.Operation, r.OldObject = admissionv1.Update, r.Object }},
		"the status":        {change: func(r *request) { r.SubResource = "status" }},
		"delete": {change: func(r *request) {
			r.Operation, r.Object, r.OldObject = admissionv1.Delete, runtime.RawExtension{}, r.Object
		}},
		"while it is deleted": {change: func(r *request) {
			r.Object.Raw = []byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"pod":{"containers":[{"name":"main"}]}}`)
		}},
		"another namespace":      {change: func(r *request) { r.Namespace = "out" }},
		"another resource":       {change: func(r *request) { r.Resource.Resource = "unknown" }},
		"does not fit":           {change: func(r *request) { r.Resource.Resource = "others" }, warning: `InjectionProfile "agent" is not injected`},
		"a name in use":          {change: func(r *request) { r.Object.Raw = []byte(`{"pod":{"containers":[{"name":"agent"}]}}`) }, message: "pod.containers[0].name: Invalid value"},
		"a bad annotation":       {change: func(r *request) { r.Object.Raw = []byte(`{"metadata":{"annotations":{"annex.dev/inject":"no"}}}`) }, message: "metadata.annotations[annex.dev/inject]"},
		"a namespace that is no": {change: func(r *request) { r.Namespace = "missing" }, code: http.StatusInternalServerError},
		"no object":              {change: func(r *request) { r.Object.Raw = nil }, code: http.StatusInternalServerError},
		"a bad object":           {change: func(r *request) { r.Object.Raw = []byte(`[]`) }, code: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body, err := json.Marshal(newReview(test.change))
			expect.NoError(t, err)
			got := hook.post(t, "/mutate", string(body))
			if test.code != 0 {
				expect.Equal(t, test.code, got.Code, "code of %s", got.Body)
				return
			}
			var answered admissionv1.AdmissionReview
			expect.NoError(t, json.Unmarshal(got.Body.Bytes(), &answered), "%s", got.Body)
			expect.Equal(t, "admission.k8s.io/v1 1", answered.APIVersion+" "+string(answered.Response.UID), "version and UID")
			expect.Equal(t, test.message == "", answered.Response.Allowed, "allowed")
			if test.message != "" {
				expect.Contains(t, answered.Response.Result.Message, test.message)
			}
			expect.Contains(t, strings.Join(answered.Response.Warnings, " "), test.warning)
			if (test.patch != "") != (len(answered.Response.Patch) > 0) || !strings.HasPrefix(string(answered.Response.Patch), test.patch) {
				t.Errorf("patch %s, want %s…", answered.Response.Patch, test.patch)
			}
		})
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	hook := newTestWebhook(t)
	hook.startFor(t)
	for body, code := range map[string]int{
		"":   http.StatusBadRequest,
		"{}": http.StatusBadRequest,
		`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}`: http.StatusBadRequest,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`:                            http.StatusBadRequest,
	} {
		if got := hook.post(t, "/mutate", body); got.Code != code {
			t.Errorf("%s: %d %s, want %d", body, got.Code, got.Body, code)
		}
	}
	if got := hook.post(t, "/", "{}"); got.Code != http.StatusNotFound {
		t.Errorf("another path: %d", got.Code)
	}
}

// Responses have profiles, so only API servers get any.
func TestReviewsAreForCallersOnly(t *testing.T) {
	t.Parallel()
	hook := newTestWebhook(t)
	hook.startFor(t)
	body, err := json.Marshal(newReview(nil))
	expect.NoError(t, err)
	trusted, other := newAuthority(t), newAuthority(t)
	for name, test := range map[string]struct {
		signer *authority
		name   string
		code   int
	}{
		"allowed":        {trusted, "kube-apiserver", http.StatusOK},
		"another name":   {trusted, "kube-apiserver-kubelet-client", http.StatusUnauthorized},
		"another CA":     {other, "kube-apiserver", http.StatusUnauthorized},
		"no certificate": {nil, "", http.StatusUnauthorized},
	} {
		got := hook.postWith(t, trusted, test.signer, test.name, "/mutate", string(body))
		expect.Equal(t, test.code, got.Code, "%s: %s", name, got.Body)
		expect.Equal(t, test.code == http.StatusOK, strings.Contains(got.Body.String(), "patch"), "%s: the response has a patch", name)
	}
}

// Reviews in flight are bounded by their bytes, and refused ones are repeated by API servers.
func TestReviewsInFlight(t *testing.T) {
	t.Parallel()
	var reviews inFlight
	post := func(size int64, next http.HandlerFunc) *httptest.ResponseRecorder {
		recorder, sent := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		sent.ContentLength = size
		reviews.limit(next)(recorder, sent)
		return recorder
	}
	nothing := func(http.ResponseWriter, *http.Request) {}
	expect.Equal(t, http.StatusRequestEntityTooLarge, post(maxReview+1, nothing).Code, "too large")
	expect.Equal(t, http.StatusRequestEntityTooLarge, post(-1, nothing).Code, "of unknown size")
	post(maxReview-minCost, func(http.ResponseWriter, *http.Request) {
		expect.Equal(t, http.StatusOK, post(1, func(http.ResponseWriter, *http.Request) {
			refused := post(1, nothing)
			expect.Equal(t, http.StatusTooManyRequests, refused.Code, "one more than fits")
			expect.Equal(t, "1", refused.Header().Get("Retry-After"), "Retry-After")
		}).Code, "one that fits")
	})
	expect.Equal(t, http.StatusOK, post(maxReview, nothing).Code, "afterwards")
	expect.Equal(t, int64(0), reviews.bytes.Load(), "bytes in the end")
}

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ before, after, want string }{
		"nothing": {`{"a":[1,{"b":2}]}`, `{"a":[1,{"b":2}]}`, `null`},
		"add":     {`{"a":{}}`, `{"a":{"b/c~d":{"e":1}}}`, `[{"op":"add","path":"/a/b~1c~0d","value":{"e":1}}]`},
		"deep":    {`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1}}}`, `[{"op":"replace","path":"/a/b","value":{"c":1}}]`},
		"remove":  {`{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`, `[{"op":"remove","path":"/a/b","value":null}]`},
		"replace": {`{"a":[1],"b":1,"c":{}}`, `{"a":[1,2],"b":false,"c":""}`,
			`[{"op":"replace","path":"/a","value":[1,2]},{"op":"replace","path":"/b","value":false},{"op":"replace","path":"/c","value":""}]`},
	} {
		before, err := decode([]byte(test.before))
		expect.NoError(t, err)
		after, err := decode([]byte(test.after))
		expect.NoError(t, err)
		got, err := json.Marshal(diff(nil, "", before, after, patchDepth))
		expect.NoError(t, err)
		expect.Equal(t, test.want, string(got), "%s", name)
	}
}

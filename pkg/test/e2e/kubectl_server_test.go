// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func testCreateTyped(t *testing.T, s *server) {
	namespace := s.namespace(t)
	file := filepath.Join(t.TempDir(), "content")
	expect.NoError(t, os.WriteFile(file, []byte{0xff, 0x00, 0x01}, 0o600))
	s.kubectl.run(t, "create", "configmap", "c", "-n", namespace, "--from-literal=a=1", "--from-file=raw="+file)
	if got := s.kubectl.run(t, "get", "cm", "c", "-n", namespace, "-o", "jsonpath={.data.a} {.binaryData.raw}"); got != "1 /wAB" {
		t.Errorf("the configmap holds %q", got)
	}
	s.kubectl.run(t, "create", "secret", "generic", "s", "-n", namespace, "--from-literal=password=x")
	if got := s.kubectl.run(t, "get", "secret", "s", "-n", namespace, "-o", "jsonpath={.type} {.data.password}"); got != "Opaque eA==" {
		t.Errorf("the secret holds %q", got)
	}
	s.kubectl.run(t, "create", "secret", "docker-registry", "d", "-n", namespace, "--docker-server=r.example.com", "--docker-username=u", "--docker-password=p")
	s.kubectl.run(t, "create", "serviceaccount", "sa", "-n", namespace)
	s.kubectl.run(t, "get", "sa/sa", "secret/d", "-n", namespace)

	s.kubectl.refuse(t, "", []string{"create", "configmap", "Not_A_Name", "-n", namespace}, `Invalid value: "Not_A_Name"`)
	s.kubectl.refuse(t, "", []string{"create", "namespace", "Upper"}, "Invalid value")
	s.kubectl.refuse(t, "", []string{"create", "configmap", "c", "-n", namespace}, "already exists")
	s.kubectl.refuse(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"namespace":%q,"name":"bad"},"data":{"k":"not base64!"}}`, namespace),
		[]string{"create", "-f", "-"}, "illegal base64")
}

func testEvents(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{}`), "create", "-f", "-")
	event := `{"apiVersion":"v1","kind":"Event","metadata":{"namespace":%q,"name":"a.1"},"type":"Warning","reason":"Dull","message":"needs paint",
		"involvedObject":{"apiVersion":"example.com/v1","kind":"Widget","namespace":%q,"name":"a"},"count":2,
		"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:05:05Z","source":{"component":"painter"}}`
	s.kubectl.feed(t, fmt.Sprintf(event, namespace, namespace), "create", "-f", "-")
	expect.Contains(t, s.kubectl.run(t, "events", "-n", namespace, "--for", "widgets.example.com/a"), "Warning", "Dull", "Widget/a", "needs paint")
	expect.Contains(t, s.kubectl.run(t, "get", "events", "-n", namespace), "widget/a", "needs paint")
	// Both groups show the same events.
	expect.Contains(t, s.kubectl.run(t, "get", "events.events.k8s.io", "a.1", "-n", namespace, "-o", "yaml"), "apiVersion: events.k8s.io/v1", "note: needs paint", "regarding:")
	if got := s.kubectl.run(t, "get", "events", "-n", namespace, "--field-selector", "involvedObject.name=a,reason=Dull", "-o", "name"); got != "event/a.1\n" {
		t.Errorf("events of the widget: %q", got)
	}
}

func testWait(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{}`), "create", "-f", "-")
	waiter := s.kubectl.command(t.Context(), "wait", "widget/a", "-n", namespace, "--for=jsonpath={.status.phase}=Painted", "--timeout=60s")
	expect.NoError(t, waiter.Start())
	s.kubectl.run(t, "patch", "widget", "a", "-n", namespace, "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Painted"}}`)
	expect.Succeeds(t, waiter.Wait(), "wait for the phase")
	s.kubectl.refuse(t, "", []string{"wait", "widget/a", "-n", namespace, "--for=delete", "--timeout=100ms"}, "timed out")
	s.kubectl.run(t, "delete", "widget", "a", "-n", namespace, "--wait=false")
	s.kubectl.run(t, "wait", "widget/a", "-n", namespace, "--for=delete", "--timeout=60s")
}

func testHosting(t *testing.T, s *server) {
	s.kubectl.run(t, "wait", "store/default", "--for=condition=Ready", "--timeout=60s")
	s.kubectl.run(t, "wait", "hostedresource/widgets.example.com", "--for=condition=Ready", "--timeout=60s")
	expect.Contains(t, s.kubectl.run(t, "get", "hostedresources,stores"), "hostedresource.hosting.annex.dev/widgets.example.com", "Hosted", "store.hosting.annex.dev/default")
	poll.UntilDone(t, "the status of the store", func() (bool, string) {
		status := s.kubectl.run(t, "get", "store", "default", "-o", "jsonpath={.status.size} {.status.sizeInUse} {.status.quota} {.status.objects} {.status.version}")
		fields := strings.Fields(status)
		return len(fields) == 5 && fields[3] != "0", status
	})
	s.kubectl.refuse(t, "", []string{"delete", "store", "default"}, "default")
	s.kubectl.refuse(t, "", []string{"patch", "hostedresource", "widgets.example.com", "--type=merge", "-p", `{"spec":{"storeName":"other"}}`}, "spec.storeName")
	s.kubectl.refuse(t, `{"apiVersion":"hosting.annex.dev/v1alpha1","kind":"HostedResource","metadata":{"name":"nodots"}}`, []string{"create", "-f", "-"}, "metadata.name")

	// Created in advance, it waits for its CRD.
	s.kubectl.feed(t, `{"apiVersion":"hosting.annex.dev/v1alpha1","kind":"HostedResource","metadata":{"name":"laters.example.com"}}`, "create", "-f", "-")
	s.kubectl.run(t, "wait", "hostedresource/laters.example.com", "--for=jsonpath={.status.phase}=Pending", "--timeout=60s")
	s.kubectl.run(t, "delete", "hostedresource", "laters.example.com")
}

func testTables(t *testing.T, s *server) {
	namespace := s.namespace(t)
	s.kubectl.feed(t, widget(namespace, "a", `{"color":"red"}`), "create", "-f", "-")
	s.kubectl.run(t, "create", "configmap", "c", "-n", namespace, "--from-literal=a=1")
	s.kubectl.run(t, "create", "secret", "generic", "s", "-n", namespace, "--from-literal=a=1")
	s.kubectl.run(t, "create", "serviceaccount", "sa", "-n", namespace)
	s.kubectl.feed(t, fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":%q,"name":"l"},"spec":{"holderIdentity":"me"}}`, namespace), "create", "-f", "-")
	for resource, columns := range map[string][]string{
		"widgets":                     {"NAME", "COLOR", "REPLICAS", "PHASE", "AGE"},
		"widgets -o wide":             {"NAME", "COLOR", "REPLICAS", "PHASE", "SERIAL", "AGE"},
		"widgets.v1beta1.example.com": {"NAME", "COLOR", "REPLICAS", "PHASE", "AGE"},
		"configmaps":                  {"NAME", "DATA", "AGE"},
		"secrets":                     {"NAME", "TYPE", "DATA", "AGE"},
		"serviceaccounts":             {"NAME", "AGE"},
		"leases":                      {"NAME", "HOLDER", "AGE"},
		"namespaces":                  {"NAME", "STATUS", "AGE"},
		"apiservices":                 {"NAME", "SERVICE", "AVAILABLE", "AGE"},
		"crds":                        {"NAME", "SCOPE", "VERSIONS", "CREATED", "AT"},
		"widgets -A":                  {"NAMESPACE", "NAME", "COLOR", "REPLICAS", "PHASE", "AGE"},
		"widgets -L shop":             {"NAME", "COLOR", "REPLICAS", "PHASE", "AGE", "SHOP"},
	} {
		matchesColumns(t, s.kubectl.run(t, append([]string{"get", "-n", namespace}, strings.Fields(resource)...)...), columns...)
	}
	expect.Contains(t, s.kubectl.run(t, "get", "stores"), "NAME", "READY", "default")
	expect.Contains(t, s.kubectl.run(t, "get", "hostedresources"), "NAME", "PHASE", "OBJECTS", "widgets.example.com")
	expect.Contains(t, s.kubectl.run(t, "describe", "widget", "a", "-n", namespace), "Name:", "Color:", "red")
}

func testVersions(t *testing.T, s *server) {
	namespace := s.namespace(t)
	old := strings.Replace(widget(namespace, "a", `{"color":"red"}`), "example.com/v1", "example.com/v1beta1", 1)
	result := s.kubectl.try(t, old, "create", "-f", "-")
	if result.code != 0 || !strings.Contains(result.stderr, "Warning: example.com/v1beta1 Widget is deprecated; use v1") {
		t.Errorf("create in a deprecated version: %+v", result)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		got := s.kubectl.run(t, "get", "widgets."+version+".example.com", "a", "-n", namespace, "-o", "jsonpath={.apiVersion} {.spec.color}")
		if want := "example.com/" + version + " red"; got != want {
			t.Errorf("in %s the widget is %q, want %q", version, got, want)
		}
	}
}

func testDeleteNamespace(t *testing.T, s *server) {
	namespace := s.namespace(t)
	for i := range 5 {
		s.kubectl.feed(t, widget(namespace, fmt.Sprint("w", i), `{}`), "create", "-f", "-")
	}
	s.kubectl.run(t, "create", "configmap", "c", "-n", namespace)
	held := strings.Replace(widget(namespace, "held", `{}`), `"name":"held"`, `"name":"held","finalizers":["example.com/hold"]`, 1)
	s.kubectl.feed(t, held, "create", "-f", "-")

	s.kubectl.run(t, "delete", "namespace", namespace, "--wait=false")
	poll.UntilDone(t, "only the object with a finalizer remains in the namespace", func() (bool, string) {
		left := s.kubectl.run(t, "get", "widgets,configmaps", "-n", namespace, "-o", "name")
		return left == "widget.example.com/held\n", left
	})
	if phase := s.kubectl.run(t, "get", "namespace", namespace, "-o", "jsonpath={.status.phase}"); phase != "Terminating" {
		t.Errorf("the namespace is %s", phase)
	}
	s.kubectl.refuse(t, widget(namespace, "late", `{}`), []string{"create", "-f", "-"}, "because it is being terminated")
	s.kubectl.run(t, "patch", "widget", "held", "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.kubectl.run(t, "wait", "namespace/"+namespace, "--for=delete", "--timeout=60s")

	// A new namespace of the same name is empty.
	s.kubectl.run(t, "create", "namespace", namespace)
	if left := s.kubectl.run(t, "get", "widgets,configmaps,secrets,serviceaccounts,leases,events", "-n", namespace, "-o", "name"); strings.Contains(left, "widget") {
		t.Errorf("a new namespace holds %s", left)
	}
	s.kubectl.refuse(t, "", []string{"delete", "namespace", "kube-system"}, "forbidden")
}

func testDeleteCRD(t *testing.T, s *server) {
	namespace := s.namespace(t)
	crd, err := os.ReadFile(widgetCRD)
	expect.NoError(t, err)
	rename := strings.NewReplacer("widgets", "gadgets", "widget", "gadget", "Widget", "Gadget", "[wd]", "[gd]", "[all, examples]", "[all]")
	manifest := rename.Replace(string(crd))
	s.kubectl.feed(t, manifest, "create", "-f", "-")
	s.kubectl.run(t, "wait", "crd/gadgets.example.com", "--for=condition=Established", "--timeout=60s")
	gadget := rename.Replace(widget(namespace, "a", `{}`))
	poll.UntilDone(t, "discovery of gadgets", func() (bool, string) {
		result := s.kubectl.try(t, gadget, "apply", "-f", "-")
		return result.code == 0, result.stderr
	})
	s.kubectl.run(t, "wait", "hostedresource/gadgets.example.com", "--for=jsonpath={.status.objects}=1", "--timeout=60s")
	s.kubectl.run(t, "delete", "crd", "gadgets.example.com")
	s.kubectl.refuse(t, "", []string{"get", "gadgets", "-n", namespace}, "the server")
	poll.UntilDone(t, "the HostedResource is deleted with its CRD", func() (bool, string) {
		result := s.kubectl.try(t, "", "get", "hostedresource", "gadgets.example.com")
		return strings.Contains(result.stderr, "NotFound"), result.stdout + result.stderr
	})
	// Its objects are not restored with a new CRD.
	s.kubectl.feed(t, manifest, "create", "-f", "-")
	s.kubectl.run(t, "wait", "crd/gadgets.example.com", "--for=condition=Established", "--timeout=60s")
	poll.UntilDone(t, "gadgets are served again, without objects", func() (bool, string) {
		result := s.kubectl.try(t, "", "get", "gadgets", "-A", "-o", "name")
		return result.code == 0 && result.stdout == "", result.stdout + result.stderr
	})
	s.kubectl.run(t, "delete", "crd", "gadgets.example.com")
}

func testAPIServices(t *testing.T, s *server) {
	poll.UntilDone(t, "every APIService is local and available", func() (bool, string) {
		table := s.kubectl.run(t, "get", "apiservices", "--no-headers")
		for line := range strings.Lines(table) {
			if fields := strings.Fields(line); len(fields) < 3 || fields[1] != "Local" || fields[2] != "True" {
				return false, table
			}
		}
		return strings.Contains(table, "v1.example.com ") && strings.Contains(table, "v1alpha1.hosting.annex.dev "), table
	})
	s.kubectl.refuse(t, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.remote.example.com"},
		"spec":{"group":"remote.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":100,"service":{"namespace":"default","name":"remote"}}}`,
		[]string{"create", "-f", "-"}, "spec.service")
}

func testBadRequests(t *testing.T, s *server) {
	namespace := s.namespace(t)
	base := "/apis/example.com/v1/namespaces/" + namespace + "/widgets"
	tests := map[string]struct {
		path, contentType, body string
		want                    func(error) bool
	}{
		"malformed JSON":           {path: base, contentType: "application/json", body: `{"apiVersion":`, want: apierrors.IsBadRequest},
		"malformed YAML":           {path: base, contentType: "application/yaml", body: "a: b: c", want: apierrors.IsBadRequest},
		"not an object":            {path: base, contentType: "application/json", body: `[]`, want: apierrors.IsBadRequest},
		"empty body":               {path: base, contentType: "application/json", body: ``, want: apierrors.IsBadRequest},
		"another kind":             {path: base, contentType: "application/json", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, want: apierrors.IsBadRequest},
		"another namespace":        {path: base, contentType: "application/json", body: widget("default", "a", `{}`), want: apierrors.IsBadRequest},
		"bad name":                 {path: base, contentType: "application/json", body: widget(namespace, "A_b", `{}`), want: apierrors.IsInvalid},
		"unknown media type":       {path: base, contentType: "text/plain", body: `x`, want: apierrors.IsUnsupportedMediaType},
		"malformed typed object":   {path: "/api/v1/namespaces/" + namespace + "/configmaps", contentType: "application/json", body: `{"data":[]}`, want: apierrors.IsBadRequest},
		"unknown resource":         {path: "/apis/example.com/v1/namespaces/" + namespace + "/nones", contentType: "application/json", body: `{}`, want: apierrors.IsNotFound},
		"unknown group":            {path: "/apis/none.example.com/v1/things", contentType: "application/json", body: `{}`, want: apierrors.IsNotFound},
		"method that is not there": {path: base + "/a/scale", contentType: "application/json", body: `{}`, want: apierrors.IsMethodNotSupported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := s.Kube.Discovery().RESTClient().Post().AbsPath(test.path).
				SetHeader("Content-Type", test.contentType).Body([]byte(test.body)).Do(t.Context()).Error()
			if !test.want(err) {
				t.Errorf("got %v (%s)", err, apierrors.ReasonForError(err))
			}
		})
	}
}

func testTooLarge(t *testing.T, s *server) {
	namespace := s.namespace(t)
	// Objects are limited to 16 MiB, and requests to a little more.
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"big"},"data":{"a":%q}}`, namespace, strings.Repeat("a", 18<<20))
	err := s.Kube.Discovery().RESTClient().Post().AbsPath("/api/v1/namespaces/"+namespace+"/configmaps").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	if !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("a body of 18 MiB: %v", err)
	}
	// ConfigMaps are limited to 1 MiB.
	body = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":"big"},"data":{"a":%q}}`, namespace, strings.Repeat("a", 5<<18))
	err = s.Kube.Discovery().RESTClient().Post().AbsPath("/api/v1/namespaces/"+namespace+"/configmaps").
		SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
	if !apierrors.IsInvalid(err) {
		t.Errorf("a configmap of 1.25 MiB: %v", err)
	}
	if _, err := s.Kube.CoreV1().ConfigMaps(namespace).Get(t.Context(), "big", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the configmap exists: %v", err)
	}
}

func testAuthorization(t *testing.T, s *server) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(s.Clients.Config.CAData) {
		t.Fatal("the kubeconfig holds no CA")
	}
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer anonymous.CloseIdleConnections()
	for path, want := range map[string][]int{
		"/livez":                     {http.StatusOK},
		"/readyz":                    {http.StatusOK},
		"/healthz":                   {http.StatusOK},
		"/api/v1/namespaces":         {http.StatusUnauthorized, http.StatusForbidden},
		"/apis/example.com/v1":       {http.StatusUnauthorized, http.StatusForbidden},
		"/metrics":                   {http.StatusUnauthorized, http.StatusForbidden},
		"/debug/pprof/":              {http.StatusUnauthorized, http.StatusForbidden},
		"/no/such/path":              {http.StatusUnauthorized, http.StatusForbidden},
		"/api/v1/namespaces?watch=1": {http.StatusUnauthorized, http.StatusForbidden},
	} {
		code, err := status(anonymous, s.URL+path, "")
		if err != nil || !slices.Contains(want, code) {
			t.Errorf("an anonymous request gets %d for %s (%v), want one of %v", code, path, err, want)
		}
	}
	if code, err := status(anonymous, s.URL+"/api/v1/namespaces", "no-such-token"); err != nil || code != http.StatusUnauthorized {
		t.Errorf("an unknown token gets %d (%v)", code, err)
	}

	admin, err := rest.HTTPClientFor(s.Clients.Config)
	expect.NoError(t, err)
	for _, path := range []string{"/livez?verbose", "/readyz?verbose", "/metrics", "/version", "/debug/pprof/", "/openapi/v2", "/openapi/v3", "/apis"} {
		if code, err := status(admin, s.URL+path, ""); err != nil || code != http.StatusOK {
			t.Errorf("the administrator gets %d for %s (%v)", code, path, err)
		}
	}
	if code, err := status(admin, s.URL+"/no/such/path", ""); err != nil || code != http.StatusNotFound {
		t.Errorf("an unknown path returns %d (%v)", code, err)
	}
}

// status returns the HTTP status of a GET.
func status(client *http.Client, url, token string) (code int, err error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// testCascade deletes a Widget that owns a ConfigMap, which owns a Widget, with each of kubectl's
// propagation policies.
func testCascade(t *testing.T, s *server) {
	namespace := s.namespace(t)
	owned := func(manifest, kind, apiVersion, owner, finalizers string) string {
		uid := s.kubectl.run(t, "get", kind, owner, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
		reference := fmt.Sprintf(`"finalizers":[%s],"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":true}],"name":`,
			finalizers, apiVersion, kind, owner, uid)
		return strings.Replace(manifest, `"name":`, reference, 1)
	}
	family := func(name, finalizers string) {
		s.kubectl.feed(t, widget(namespace, name, `{}`), "create", "-f", "-")
		child := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q}}`, namespace, name)
		s.kubectl.feed(t, owned(child, "Widget", "example.com/v1", name, ""), "create", "-f", "-")
		s.kubectl.feed(t, owned(widget(namespace, name+"-grandchild", `{}`), "ConfigMap", "v1", name, finalizers), "create", "-f", "-")
	}
	left := func(name string) string {
		names := s.kubectl.run(t, "get", "widgets,configmaps", "-n", namespace, "-o", "name")
		var found []string
		for line := range strings.Lines(names) {
			if strings.Contains(line, "/"+name) {
				found = append(found, strings.TrimSpace(line))
			}
		}
		return strings.Join(found, " ")
	}

	family("background", "")
	s.kubectl.run(t, "delete", "widget", "background", "-n", namespace)
	poll.UntilDone(t, "all dependents are deleted", func() (bool, string) { return left("background") == "", left("background") })

	family("orphan", "")
	s.kubectl.run(t, "delete", "widget", "orphan", "-n", namespace, "--cascade=orphan")
	if got := left("orphan"); got != "widget.example.com/orphan-grandchild configmap/orphan" {
		t.Errorf("after an orphaning deletion %q are left", got)
	}
	if got := s.kubectl.run(t, "get", "configmap", "orphan", "-n", namespace, "-o", "jsonpath={.metadata.ownerReferences}"); got != "" {
		t.Errorf("the orphan has the owners %s", got)
	}

	family("foreground", `"example.com/hold"`)
	s.kubectl.run(t, "delete", "widget", "foreground", "-n", namespace, "--cascade=foreground", "--wait=false")
	poll.UntilDone(t, "the grandchild is being deleted", func() (bool, string) {
		got := s.kubectl.run(t, "get", "widget", "foreground-grandchild", "-n", namespace, "-o", "jsonpath={.metadata.deletionTimestamp}")
		return got != "", got
	})
	if got := s.kubectl.run(t, "get", "widget", "foreground", "-n", namespace, "-o", "jsonpath={.metadata.finalizers}"); got != `["foregroundDeletion"]` {
		t.Errorf("the owner waits with the finalizers %s", got)
	}
	s.kubectl.run(t, "patch", "widget", "foreground-grandchild", "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.kubectl.run(t, "wait", "widget/foreground", "-n", namespace, "--for=delete", "--timeout=60s")
	if got := left("foreground"); got != "" {
		t.Errorf("after a deletion in the foreground %q are left", got)
	}
}

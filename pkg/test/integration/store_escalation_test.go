// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const hostingPath = "/apis/hosting.annex.dev/v1alpha1/"

// attacker is a user with every right on annex's own kinds that can be delegated, the
// right to back up HostedResources, and the role edit in a namespace.
type attacker struct {
	*annex
	http      *http.Client
	namespace string
	// secretValue must not be in any response.
	secretValue string
}

func newAttacker(t *testing.T, a *annex) *attacker {
	t.Helper()
	const name = "mallory"
	m := &attacker{annex: a, http: a.httpClientAs(t, bearerToken(name+"-token")), namespace: a.newNamespace(t), secretValue: "secret-value"}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "protected", Namespace: "kube-system"}, StringData: map[string]string{"where": m.secretValue}}
	expect.Create(t, a.Kube.CoreV1().Secrets(secret.Namespace), secret)
	backups := a.newClusterRole(t, nil, rbacv1.PolicyRule{
		Verbs: []string{"create"}, APIGroups: []string{hostingv1alpha1.GroupName}, Resources: []string{"hostedresources/backup", "hostedresources/binding"},
	})
	for _, role := range []string{"annex:hosting-edit", "annex:hosting-view", backups.Name} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: clusterRef(role), Subjects: userSubject(name)}
		expect.Create(t, a.Kube.RbacV1().ClusterRoleBindings(), binding)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: clusterRef("edit"), Subjects: userSubject(name)}
	expect.Create(t, a.Kube.RbacV1().RoleBindings(m.namespace), binding)
	poll.Until(t, "the rights are in force", func() string {
		for request, want := range map[string]int{
			"GET " + hostingPath + "stores": 200, "POST " + hostingPath + "hostedresources/no.example.com/backup": 404, "GET /api/v1/namespaces/" + m.namespace + "/secrets": 200,
		} {
			method, path, _ := strings.Cut(request, " ")
			if got := m.send(t, method, path, ""); got.Code != want {
				return got.String()
			}
		}
		return ""
	})
	return m
}

// send sends a request as the attacker.
func (m *attacker) send(t *testing.T, method, path, body string, headers ...string) response {
	t.Helper()
	got := send(t, m.http, method, m.URL+path, body, headers...)
	if strings.Contains(got.String(), m.secretValue) {
		t.Errorf("%s %s returns the value of a Secret", method, path)
	}
	return got
}

// expectRefused sends a request that has to be refused, and returns the message.
func (m *attacker) expectRefused(t *testing.T, code int, method, path, body string, headers ...string) string {
	t.Helper()
	got := m.send(t, method, path, body, headers...)
	got.Expect(t, code, "%s %s %s", method, path, body)
	var status metav1.Status
	expect.Succeeds(t, json.Unmarshal(got.Body, &status), "%s %s: %s", method, path, got)
	return status.Message
}

func storeBody(name, endpoint, more string) string {
	return fmt.Sprintf(`{"apiVersion": "hosting.annex.dev/v1alpha1", "kind": "Store", "metadata": {"name": %q}, "spec": {"etcd": {"endpoints": [%q]%s}}}`, name, endpoint, more)
}

func withSecret(namespace, name string) string {
	return fmt.Sprintf(`, "tls": {"secretRef": {"namespace": %q, "name": %q}}`, namespace, name)
}

// TestStoresDoNotEscalateRights attacks as a user with annex's roles for its own kinds.
func TestStoresDoNotEscalateRights(t *testing.T) {
	t.Parallel()
	far := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	allowed := far.Endpoints()[0]
	a := startAnnex(t, "--token-auth-file="+writeFile(t, "tokens.csv", []byte("mallory-token,mallory,1\n")),
		"--store-endpoints="+strings.TrimPrefix(allowed, "https://"))
	a.addStore(t, "far", far)
	widgets := a.installOn(t, "far")
	widgets.create(t, "v1", "kept", "spec: {}")
	m := newAttacker(t, a)

	t.Run("injection profiles", m.testInjectionProfiles)
	t.Run("addresses", m.testAddresses)
	t.Run("credentials", func(t *testing.T) { m.testCredentials(t, allowed) })
	t.Run("keys", func(t *testing.T) { m.testKeys(t, allowed) })
	t.Run("default", m.testDefaultStore)
	t.Run("objects", func(t *testing.T) { m.testRetention(t, widgets) })

	// Allowed requests succeed.
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "etcd", Namespace: m.namespace}, Data: far.Authority.SecretData(t, time.Now().Add(time.Hour))}
	expect.Create(t, a.Kube.CoreV1().Secrets(own.Namespace), own)
	m.send(t, "POST", hostingPath+"stores", storeBody("own", allowed, withSecret(own.Namespace, own.Name)+`, "keyPrefix": "/own"`)).Expect(t, 201, "a Store at an allowed endpoint, with a Secret of the attacker")
	a.waitForStore(t, "own", metav1.ConditionTrue, "")
	a.waitForStore(t, "default", metav1.ConditionTrue, "")
	a.waitForStore(t, "far", metav1.ConditionTrue, "")
	if _, err := widgets.in("v1").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// testRetention tries to delete objects with annex's rights.
func (m *attacker) testRetention(t *testing.T, widgets *resource) {
	const retention = `{"spec": {"retention": {"rules": [{"name": "all", "afterSeconds": 1}]}}}`
	m.expectRefused(t, 403, "DELETE", widgets.path("v1")+"/kept", "")
	for _, query := range []string{"", "?dryRun=All"} {
		message := m.expectRefused(t, 403, "PATCH", hostingPath+"hostedresources/"+widgets.name+query, retention, "Content-Type", "application/merge-patch+json")
		expect.Contains(t, message, "cannot delete resource \"widgets\"")
	}
	m.expectRefused(t, 403, "POST", hostingPath+"hostedresources",
		`{"apiVersion": "hosting.annex.dev/v1alpha1", "kind": "HostedResource", "metadata": {"name": "later.example.com"}, `+retention[1:])
}

// testAddresses tries addresses that annex can reach. The response must not depend on
// what listens there.
func (m *attacker) testAddresses(t *testing.T) {
	var config net.ListenConfig
	open, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer open.Close()
	messages := map[string]bool{}
	for _, address := range []string{open.Addr().String(), "127.0.0.1:1", "169.254.169.254:80", "localhost:2379", strings.TrimPrefix(m.URL, "https://")} {
		for _, scheme := range []string{"http://", "https://"} {
			message := m.expectRefused(t, 403, "POST", hostingPath+"stores", storeBody("probe", scheme+address, ""))
			messages[strings.ReplaceAll(message, scheme+address, "ENDPOINT")] = true
			m.expectRefused(t, 403, "PATCH", hostingPath+"stores/far", `[{"op": "add", "path": "/spec/etcd/endpoints/-", "value": "`+scheme+address+`"}]`,
				"Content-Type", "application/json-patch+json")
		}
	}
	if len(messages) != 1 {
		t.Errorf("refusals depend on what listens: %v", messages)
	}
	socket := filepath.Join(m.DataDir, "etcd", "client.sock")
	for endpoint, code := range map[string]int{
		"unix://" + socket: 403, "unix:///nowhere": 403, "unix:///proc/self/root" + socket: 403,
		"unix:///proc/self/cwd/../.." + socket: 422, "UNIX://" + socket: 422, "unix:" + socket: 422, "http://unix:1": 422,
	} {
		m.expectRefused(t, code, "POST", hostingPath+"stores", storeBody("socket", endpoint, `, "keyPrefix": "/other"`))
	}
}

// testCredentials tries to make annex use a Secret that the attacker cannot read, in
// every way to write a Store.
func (m *attacker) testCredentials(t *testing.T, allowed string) {
	const secrets = hostingv1alpha1.NamespaceAnnexSystem
	there := m.expectRefused(t, 403, "POST", hostingPath+"stores", storeBody("thief", allowed, withSecret(secrets, "etcd-far")))
	missing := m.expectRefused(t, 403, "POST", hostingPath+"stores", storeBody("thief", allowed, withSecret(secrets, "etcd-not")))
	if strings.ReplaceAll(there, "etcd-far", "X") != strings.ReplaceAll(missing, "etcd-not", "X") {
		t.Errorf("a refusal depends on whether the Secret exists:\n%s\n%s", there, missing)
	}
	m.expectRefused(t, 403, "POST", hostingPath+"stores?dryRun=All", storeBody("thief", allowed, withSecret(secrets, "etcd-far")))
	if got := m.send(t, "POST", hostingPath+"stores", storeBody("thief", allowed, `, "keyPrefix": "/thief"`)); got.Code != 201 {
		t.Fatalf("a Store without a Secret: %s", got)
	}
	const reference = `{"secretRef": {"namespace": "annex-system", "name": "etcd-far"}}`
	thief := hostingPath + "stores/thief"
	m.expectRefused(t, 403, "PATCH", thief, `{"spec": {"etcd": {"tls": `+reference+`}}}`, "Content-Type", "application/merge-patch+json")
	m.expectRefused(t, 403, "PATCH", thief, `{"spec": {"etcd": {"tls": `+reference+`}}}`, "Content-Type", "application/strategic-merge-patch+json")
	m.expectRefused(t, 403, "PATCH", thief, `[{"op": "add", "path": "/spec/etcd/tls", "value": `+reference+`}]`, "Content-Type", "application/json-patch+json")
	applied := storeBody("thief", allowed, withSecret(secrets, "etcd-far"))
	m.expectRefused(t, 403, "PATCH", thief+"?fieldManager=mallory&force=true", applied, "Content-Type", "application/apply-patch+yaml")
	m.expectRefused(t, 403, "PATCH", hostingPath+"stores/new?fieldManager=mallory", strings.ReplaceAll(applied, "thief", "new"), "Content-Type", "application/apply-patch+yaml")
	var reread any
	expect.NoError(t, json.Unmarshal([]byte(reference), &reread))
	poll.UntilDone(t, "a replacement is refused", func() (bool, string) { // annex writes the status meanwhile
		var store map[string]any
		m.send(t, "GET", thief, "").Into(t, &store)
		store["spec"].(map[string]any)["etcd"].(map[string]any)["tls"] = reread
		body, err := json.Marshal(store)
		expect.NoError(t, err)
		got := m.send(t, "PUT", thief, string(body))
		if got.Code < 300 {
			t.Errorf("PUT %s: %s", thief, got)
		}
		return got.Code == 403, got.String()
	})
	// The Secret of a Store must not be sent to other endpoints.
	m.expectRefused(t, 403, "PATCH", hostingPath+"stores/far", `{"spec": {"etcd": {"endpoints": ["`+allowed+`", "`+strings.Replace(allowed, "https", "http", 1)+`"]}}}`,
		"Content-Type", "application/merge-patch+json")
	// Other changes are allowed.
	m.send(t, "PATCH", hostingPath+"stores/far", `{"metadata": {"labels": {"a": "b"}}}`, "Content-Type", "application/merge-patch+json").Expect(t, 200, "a label")
}

// testKeys tries names and prefixes that map to the keys of Secrets.
func (m *attacker) testKeys(t *testing.T, allowed string) {
	m.expectRefused(t, 422, "POST", hostingPath+"stores", storeBody("root", allowed, `, "keyPrefix": "/"`))
	for _, name := range []string{"kube-system.secrets", "secrets.annex", "secrets.registry"} {
		m.expectRefused(t, 422, "POST", hostingPath+"hostedresources", hostedBody(name))
	}
	for _, name := range []string{"secrets.annex.example.com", "stores.hosting.annex.dev", "apiservices.apiregistration.k8s.io"} {
		m.send(t, "POST", hostingPath+"hostedresources", hostedBody(name)).Expect(t, 201, "a HostedResource %s", name)
		m.expectRefused(t, 409, "POST", hostingPath+"hostedresources/"+name+"/backup", "")
		m.expectRefused(t, 403, "PATCH", hostingPath+"hostedresources/"+name+"/status", `{"status": {"definitionUID": "1"}}`, "Content-Type", "application/merge-patch+json")
	}
	m.expectRefused(t, 403, "POST", hostingPath+"stores/default/backup", "")
	m.expectRefused(t, 403, "POST", hostingPath+"stores/default/restore?resource=kube-system.secrets", "")
}

func hostedBody(name string) string {
	return fmt.Sprintf(`{"apiVersion": "hosting.annex.dev/v1alpha1", "kind": "HostedResource", "metadata": {"name": %q}, "spec": {"storeName": "default"}}`, name)
}

// testDefaultStore tries to move or remove the Store default.
func (m *attacker) testDefaultStore(t *testing.T) {
	const store = hostingPath + "stores/" + hostingv1alpha1.DefaultStoreName
	m.expectRefused(t, 422, "PATCH", store, `{"spec": {"embedded": null, "etcd": {"endpoints": ["http://127.0.0.1:1"]}}}`, "Content-Type", "application/merge-patch+json")
	m.expectRefused(t, 403, "PATCH", store+"/status", `{"status": {"clusterID": "1"}}`, "Content-Type", "application/merge-patch+json")
	if got := m.send(t, "DELETE", store, ""); got.Code < 400 {
		t.Errorf("the Store default is deleted: %s", got)
	}
	if _, err := m.Stores().Get(t.Context(), hostingv1alpha1.DefaultStoreName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

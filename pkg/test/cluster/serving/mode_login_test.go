// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const stores = "/apis/hosting.annex.dev/v1alpha1/stores/default"

func TestLogins(t *testing.T) {
	// Without caches a new permission is effective at once.
	annex := annextest.Start(t, mainCluster, "--authorization-webhook-cache-authorized-ttl=0s", "--authorization-webhook-cache-unauthorized-ttl=0s")

	t.Run("only annex's own kinds are served", func(t *testing.T) {
		groups, err := kube(t, annex.AnnexConfig).Discovery().ServerGroups()
		expect.NoError(t, err)
		got := sets.New[string]()
		for _, group := range groups.Groups {
			got.Insert(group.Name)
		}
		if want := sets.New("apiextensions.k8s.io", "apiregistration.k8s.io", "hosting.annex.dev"); !got.Equal(want) {
			t.Errorf("serves %v, want %v", sets.List(got), sets.List(want))
		}
	})

	t.Run("anonymous requests", func(t *testing.T) {
		anonymous := annex.ConfigAs(restclient.AnonymousClientConfig(annex.AnnexConfig))
		for path, want := range map[string]int{"/readyz": http.StatusOK, "/livez": http.StatusOK, "/apis": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized, stores: http.StatusUnauthorized} {
			if got, body := get(t, anonymous, path); got != want {
				t.Errorf("%s without a login: %d, want %d: %s", path, got, want, body)
			}
		}
	})

	alice, err := mainCluster.ConfigFor("alice", "readers")
	expect.NoError(t, err)
	token := serviceAccount(t, mainCluster, "robot")
	logins := map[string]*restclient.Config{
		"certificate of the main cluster, through it": alice,
		"certificate of the main cluster, direct":     annex.ConfigAs(alice),
		"token, through the main cluster":             token,
		"token, direct":                               annex.ConfigAs(token),
	}
	for name, config := range logins {
		if got, body := get(t, config, stores); got != http.StatusForbidden {
			t.Errorf("%s, without permission: %d, want 403: %s", name, got, body)
		}
	}
	allow(t, mainCluster, "stores-reader",
		rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice"},
		rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: "robot"})
	for name, config := range logins {
		poll.UntilDone(t, name+", with permission", func() (bool, string) {
			got, body := get(t, config, stores)
			return got == http.StatusOK, body
		})
		// The permission is for that one object.
		if got, body := get(t, config, "/apis/hosting.annex.dev/v1alpha1/hostedresources"); got != http.StatusForbidden {
			t.Errorf("%s, beyond its permissions: %d, want 403: %s", name, got, body)
		}
	}
	if got, body := get(t, annex.AnnexConfig, stores); got != http.StatusOK {
		t.Errorf("annex's own administrator: %d, want 200: %s", got, body)
	}
}

// TestFakedHeaders: only the front proxy may set the user of a request in headers.
func TestFakedHeaders(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	mallory, err := mainCluster.ConfigFor("mallory")
	expect.NoError(t, err)
	config := annex.ConfigAs(mallory)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set("X-Remote-User", "root")
			req.Header.Set("X-Remote-Group", "system:masters")
			return next.RoundTrip(req)
		})
	})
	if got, body := get(t, config, stores); got != http.StatusForbidden {
		t.Errorf("headers of a client that is not the proxy: %d, want 403: %s", got, body)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// get returns the status and body of a response.
func get(t *testing.T, config *restclient.Config, path string) (int, string) {
	t.Helper()
	config = restclient.CopyConfig(config)
	config.QPS = -1
	var status int
	body, err := kube(t, config).Discovery().RESTClient().Get().AbsPath(path).Do(t.Context()).StatusCode(&status).Raw()
	if status == 0 {
		t.Fatalf("%s: %v", path, err)
	}
	return status, string(body)
}

// serviceAccount creates a service account in the namespace default, and logs in with its token.
func serviceAccount(t *testing.T, cluster *maincluster.Cluster, name string) *restclient.Config {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	expect.Create(t, kube(t, cluster.Config).CoreV1().ServiceAccounts(metav1.NamespaceDefault), account)
	path, err := cluster.ServiceAccountKubeconfig(t.Context(), metav1.NamespaceDefault, name)
	expect.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	expect.NoError(t, err)
	return config
}

// allow allows subjects to read the Store "default".
func allow(t *testing.T, cluster *maincluster.Cluster, name string, subjects ...rbacv1.Subject) {
	t.Helper()
	mainKube := kube(t, cluster.Config)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"hosting.annex.dev"}, Resources: []string{"stores"}, ResourceNames: []string{"default"}, Verbs: []string{"get"}},
	}}
	expect.Create(t, mainKube.RbacV1().ClusterRoles(), role)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   subjects,
	}
	expect.Create(t, mainKube.RbacV1().ClusterRoleBindings(), binding)
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/etcdcluster"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// etcdTLSFlags returns the flags for the certificates of an etcd cluster.
func etcdTLSFlags(t *testing.T, etcd *etcdcluster.Cluster) (flags []string) {
	t.Helper()
	pair := etcd.Authority.SecretData(t, time.Now().Add(time.Hour))
	for flag, name := range map[string]string{"etcd-cafile": "ca.crt", "etcd-certfile": "tls.crt", "etcd-keyfile": "tls.key"} {
		flags = append(flags, "--"+flag+"="+writeFile(t, name, pair[name]))
	}
	return flags
}

func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	plain := etcdcluster.Start(t, etcdcluster.Config{Members: 1, Plain: true})
	secure := etcdcluster.Start(t, etcdcluster.Config{Members: 1})
	tests := map[string]struct {
		etcd  *etcdcluster.Cluster
		flags []string
	}{
		"plain": {etcd: plain},
		"TLS":   {secure, etcdTLSFlags(t, secure)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := test.etcd.Endpoints()[0]
			flags := append([]string{"--etcd-servers=" + endpoint}, test.flags...)
			widgets := startAnnex(t, flags...).installCRD(t, newCRD(t, anySchema))
			created := widgets.create(t, "v1", "a", "spec: {}")
			if stored := etcdValue(t, test.etcd.Client(t), widgets.key("a")); !bytes.Contains(stored, []byte(created.GetUID())) {
				t.Errorf("the external etcd has %s", stored)
			}
			if entries, err := os.ReadDir(filepath.Join(widgets.annex.DataDir, "etcd")); err == nil && len(entries) > 0 {
				t.Errorf("there is an embedded etcd too: %v", entries)
			}
			store, err := widgets.annex.Stores().Get(t.Context(), hostingv1alpha1.DefaultStoreName, metav1.GetOptions{})
			if err != nil || store.Spec.Embedded != nil || store.Spec.Etcd == nil || !slices.Equal(store.Spec.Etcd.Endpoints, []string{endpoint}) || store.Spec.Etcd.KeyPrefix != "/annex" {
				t.Errorf("the default Store: %+v, %v", store, err)
			}

			// Another prefix separates servers on the same etcd.
			other := startAnnex(t, append(slices.Clone(flags), "--etcd-prefix=/other")...)
			other.get(t, "/apis/"+widgets.group+"/v1").Expect(t, http.StatusNotFound, "a server with another prefix")
			// The data is in the etcd, not in the data directory.
			widgets.annex.Stop(t)
			widgets.annex = startAnnex(t, flags...)
			if got := widgets.get(t, "v1", "a"); got.GetUID() != created.GetUID() {
				t.Errorf("after a start elsewhere: %v", got)
			}
		})
	}
}

func TestDisabledAPIGroup(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--runtime-config=events.k8s.io/v1=false,coordination.k8s.io/v1=false")
	for _, path := range []string{"/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1/leases"} {
		a.get(t, path).Expect(t, http.StatusNotFound, "%s", path)
	}
	groups := a.discover(t, "/apis")
	for _, group := range []string{"events.k8s.io", "coordination.k8s.io"} {
		if _, there := groups[group]; there {
			t.Errorf("discovery has %s", group)
		}
	}
	if _, err := a.Kube.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("events of the other group: %v", err)
	}
	// Namespaces can still be deleted.
	namespace := a.newNamespace(t)
	expect.Delete(t, a.Kube.CoreV1().Namespaces(), namespace)
	poll.UntilDone(t, "the namespace is gone", func() (bool, string) {
		got := a.get(t, "/api/v1/namespaces/"+namespace)
		return got.Code == http.StatusNotFound, got.String()
	})
	// Enabled again, the group is served.
	a.restart(t).get(t, "/apis/coordination.k8s.io/v1/leases").Expect(t, http.StatusOK, "enabled again")
}

func TestDisabledAdmissionPlugin(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, "--disable-admission-plugins=NamespaceLifecycle")
	_, err := a.Kube.CoreV1().ConfigMaps("nowhere").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	expect.Succeeds(t, err, "without the plugin that checks namespaces")
}

// The emulated version is global to a process.
func TestEmulatedVersion(t *testing.T) {
	t.Parallel()
	a := startAnnexProcess(t, "--emulated-version=1.36")
	var info version.Info
	a.get(t, "/version").Into(t, &info)
	if info.Minor != "37" || info.EmulationMinor != "36" {
		t.Errorf("the version is %#v", info)
	}
	widgets := a.installCRD(t, newCRD(t, strictSchema))
	widgets.create(t, "v1", "a", "spec: {size: 1}")
	if got := field(widgets.get(t, "v1", "a"), "spec", "color"); got != "blue" {
		t.Errorf("a custom resource has the color %v", got)
	}

	old := startProcess(t, t.TempDir(), "--emulated-version=1.20")
	code, err := old.Wait(t.Context())
	if err != nil || code != 1 {
		t.Errorf("a version that cannot be emulated: exit code %d, %v", code, err)
	}
	if message := old.Stderr(); !strings.Contains(message, "1.20") || strings.Count(message, "\n") != 1 {
		t.Errorf("stderr is %q, want one line with the version", message)
	}
}

func TestFeatureGate(t *testing.T) {
	t.Parallel()
	a := startAnnexProcess(t, "--feature-gates=WatchList=false")
	if metrics := string(a.get(t, "/metrics").Body); !strings.Contains(metrics, `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 0`) {
		t.Error("/metrics does not show that WatchList is off")
	}
	got := a.get(t, "/api/v1/namespaces?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1")
	got.Expect(t, http.StatusUnprocessableEntity, "a disabled WatchList")

	unknown := startProcess(t, t.TempDir(), "--feature-gates=Nonsense=true")
	code, err := unknown.Wait(t.Context())
	if message := unknown.Stderr(); err != nil || code != 1 || !strings.Contains(message, "Nonsense") || !strings.Contains(message, "feature-gates") {
		t.Errorf("an unknown gate: exit code %d, %v, %q", code, err, message)
	}
}

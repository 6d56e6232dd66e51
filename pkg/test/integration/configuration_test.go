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
	"github.com/annex-dev/annex/pkg/test/testserver"
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

}

func TestFeatureGate(t *testing.T) {
	t.Parallel()
	a := startAnnexProcess(t, "--feature-gates=WatchList=false")
	if metrics := string(a.get(t, "/metrics").Body); !strings.Contains(metrics, `kubernetes_feature_enabled{name="WatchList",stage="BETA"} 0`) {
		t.Error("/metrics does not show that WatchList is off")
	}
	got := a.get(t, "/api/v1/namespaces?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1")
	got.Expect(t, http.StatusUnprocessableEntity, "a disabled WatchList")

}

// TestInvalidFiles breaks each file in a way that upstream's loaders accept or report badly. TestRefusesToStart of
// package e2e has the other reasons not to start.
func TestInvalidFiles(t *testing.T) {
	t.Parallel()
	const (
		policy     = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
		tracing    = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
		anonymous  = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous:\n  enabled: true\n"
		encryption = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n"
		absent     = ""
	)
	valid, users := writeFile(t, "policy.yaml", []byte(auditEverything)), newAuthority(t).file(t)
	toFile, withPolicy := "--audit-log-path="+filepath.Join(t.TempDir(), "log"), "--audit-policy-file="+valid
	for name, test := range map[string]struct {
		flag, content string
		// want follows the flag and the file in the message.
		want string
		more []string
	}{
		"audit level":             {"audit-policy-file", policy + "rules:\n- users: [a]\n  level: Most\n", `:5: rules[0].level: Unsupported value: "Most"`, []string{toFile}},
		"audit typing error":      {"audit-policy-file", policy + "rules:\n- level: None\n  user: [a]\n", ":5: rules[0].user: unknown field", []string{toFile}},
		"audit without rules":     {"audit-policy-file", policy, ":1: rules: Required value", []string{toFile}},
		"audit of another kind":   {"audit-policy-file", tracing, ":2: kind: there is no kind", []string{toFile}},
		"audit is not there":      {"audit-policy-file", absent, "no such file", []string{toFile}},
		"webhook without server":  {"audit-webhook-config-file", "clusters:\n- name: c\ncurrent-context: c\n", `:3: current-context: Not found: "c"`, []string{withPolicy}},
		"tracing rate":            {"tracing-config-file", tracing + "samplingRatePerMillion: 1000001\n", ":3: samplingRatePerMillion: Invalid value: 1000001", nil},
		"tracing scheme":          {"tracing-config-file", tracing + "endpoint: http://localhost:4317\n", `:3: endpoint: Invalid value: "http://localhost:4317"`, nil},
		"tracing typing error":    {"tracing-config-file", tracing + "samplingRate: 1\n", ":3: samplingRate: unknown field", nil},
		"tracing syntax":          {"tracing-config-file", tracing + "endpoint: [\n", ":3: did not find expected node content", nil},
		"encryption key length":   {"encryption-provider-config", encryption + "  - secretbox:\n      keys:\n      - name: a\n        secret: c2hvcnQ=\n", ":9: resources[0].providers[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\"", nil},
		"encryption typing error": {"encryption-provider-config", encryption + "  - identiti: {}\n", ":6: resources[0].providers[0].identiti: unknown field", nil},
		"anonymous on all paths":  {"authentication-config", anonymous, ":3: anonymous.conditions: Required value", nil},
		"no authentication":       {"authentication-config", absent, "no such file", nil},
		"no token webhook":        {"authentication-token-webhook-config-file", absent, "no such file", nil},
		"no CA of proxies":        {"requestheader-client-ca-file", absent, "no such file", nil},
		"unknown authorizer":      {"authorization-config", rightsFile + "- {type: ABAC, name: abac}\n", ":6: authorizers[1].type: Unsupported value", nil},
		"no authorization":        {"authorization-config", absent, "no such file", nil},
		"rights webhook":          {"authorization-webhook-config-file", rightsFile, "", []string{"--authorization-mode=Webhook"}},
		"no signing key":          {"service-account-signing-key-file", absent, "no such file", nil},
		"rubbish signing key":     {"service-account-signing-key-file", "rubbish", "", nil},
		"no verifying key":        {"service-account-key-file", absent, "no such file", nil},
		"rubbish that verifies":   {"service-account-key-file", "rubbish", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "/nowhere.yaml"
			if test.content != absent {
				file = writeFile(t, "config.yaml", []byte(test.content))
			}
			_, err := testserver.TryStartIn(t, t.TempDir(), append(test.more, "--"+test.flag+"="+file)...)
			expect.ErrorLine(t, err, "--"+test.flag, file, test.want)
		})
	}
	for flags, want := range map[string][]string{
		"--audit-log-path=/proc/no/log " + withPolicy:                            {"--audit-log-path", "/proc/no"},
		"--audit-log-path=-":                                                     {"--audit-policy-file", "--audit-log-path", "need"},
		"--audit-policy-file=/p":                                                 {"--audit-policy-file", "--audit-log-path", "need"},
		"--authorization-mode=Webhook":                                           {"--authorization-mode=Webhook needs --authorization-webhook-config-file"},
		"--authorization-mode=Node":                                              {"--authorization-mode"},
		"--authorization-webhook-config-file=" + valid:                           {"--authorization-webhook-config-file"},
		"--runtime-config=pods.example.com/v1=true":                              {"pods.example.com"},
		"--runtime-config=hosting.annex.dev/v1alpha1=false":                      {"--runtime-config", "hosting.annex.dev/v1alpha1 cannot be disabled"},
		"--client-ca-file=" + users + " --requestheader-client-ca-file=" + users: {"--requestheader-client-ca-file", "--requestheader-allowed-names"},
	} {
		_, err := testserver.TryStartIn(t, t.TempDir(), strings.Fields(flags)...)
		expect.ErrorLine(t, err, want...)
	}
}

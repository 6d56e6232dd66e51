// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// httpClientAs returns an HTTP client with another login, or without one.
func (a *annex) httpClientAs(t *testing.T, login func(*restclient.Config)) *http.Client {
	t.Helper()
	config := restclient.AnonymousClientConfig(a.AnnexConfig)
	if login != nil {
		login(config)
	}
	annexHTTP, err := restclient.HTTPClientFor(config)
	expect.NoError(t, err)
	return annexHTTP
}

func bearerToken(token string) func(*restclient.Config) {
	return func(config *restclient.Config) { config.BearerToken = token }
}

func clientCertificate(certPEM, keyPEM []byte) func(*restclient.Config) {
	return func(config *restclient.Config) { config.CertData, config.KeyData = certPEM, keyPEM }
}

// guardedPaths are paths of every server in the chain, and unknown ones.
func (a *annex) guardedPaths(t *testing.T) []string {
	t.Helper()
	widgets := a.installCRD(t, newCRD(t, anySchema))
	widgets.names(t, "v1", metav1.ListOptions{}) // retries while the watch cache fills
	return []string{
		"/", "/api", "/apis", "/openapi/v2", "/openapi/v3", "/metrics", "/version", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/api_priority_and_fairness/dump_requests",
		"/api/v1/namespaces", "/api/v1/namespaces/default/secrets", "/apis/hosting.annex.dev/v1alpha1/stores",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices",
		widgets.path("v1"), "/apis/nothing.example.com/v1/things", "/nothing",
		"/livez/ping/../../metrics", "/readyzz",
	}
}

// discoveryPaths are open to all authenticated users, by a default role.
var discoveryPaths = []string{"/api", "/apis", "/openapi/v2", "/openapi/v3", "/version"}

func TestAccessToPaths(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	paths := a.guardedPaths(t)
	foreign := newAuthority(t)
	tests := map[string]struct {
		login  func(*restclient.Config)
		code   int
		health int
		reason string
	}{
		"no credentials":                 {nil, http.StatusUnauthorized, http.StatusOK, "Unauthorized"},
		"wrong token":                    {bearerToken("wrong"), http.StatusUnauthorized, http.StatusUnauthorized, "Unauthorized"},
		"certificate of another CA":      {clientCertificate(foreign.issue(t, "admin", "system:masters")), http.StatusUnauthorized, http.StatusUnauthorized, "Unauthorized"},
		"token of a user without rights": {bearerToken(outsiderToken), http.StatusForbidden, http.StatusOK, `User \"bob\" cannot get path \"/metrics\"`},
		"token of a cluster admin":       {bearerToken(masterToken), http.StatusOK, http.StatusOK, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			annexHTTP := a.httpClientAs(t, test.login)
			for _, path := range []string{"/livez", "/readyz", "/healthz"} {
				send(t, annexHTTP, http.MethodGet, a.URL+path, "").Expect(t, test.health, "%s", path)
			}
			for _, path := range paths {
				if path == "/metrics" && test.code == http.StatusOK {
					continue // TestMetrics reads them from another process
				}
				got, want := send(t, annexHTTP, http.MethodGet, a.URL+path, ""), test.code
				if want == http.StatusForbidden && slices.Contains(discoveryPaths, path) {
					want = http.StatusOK
				}
				if ok := got.Code == want || want == http.StatusOK && got.Code == http.StatusNotFound; !ok {
					t.Errorf("%s: %d, want %d", path, got.Code, want)
				}
				if path == "/metrics" && !strings.Contains(string(got.Body), test.reason) {
					t.Errorf("%s: %s lacks %q", path, got, test.reason)
				}
			}
		})
	}
}

func TestForbiddenMessage(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	annexKube, err := kubernetes.NewForConfigAndClient(a.AnnexConfig, a.httpClientAs(t, bearerToken(outsiderToken)))
	expect.NoError(t, err)
	_, err = annexKube.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	expect.Error(t, err, `secrets is forbidden: User "bob" cannot list resource "secrets" in API group "" in the namespace "default"`)
	err = annexKube.CoreV1().Namespaces().Delete(t.Context(), "default", metav1.DeleteOptions{})
	expect.Error(t, err, `namespaces "default" is forbidden: User "bob" cannot delete resource "namespaces"`)
}

// Only the administrator can impersonate, and then has the rights of the other user.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	a := sharedAnnex(t)
	for name, test := range map[string]struct {
		annexHTTP *http.Client
		user      string
		groups    string
		code      int
	}{
		"bob as cluster admin":     {a.httpClientAs(t, bearerToken(outsiderToken)), "alice", "system:masters", http.StatusForbidden},
		"the administrator as bob": {a.HTTP, "bob", "builders", http.StatusForbidden},
		"bob in system:masters":    {a.HTTP, "bob", "system:masters", http.StatusOK},
	} {
		got := send(t, test.annexHTTP, http.MethodGet, a.URL+"/api/v1/namespaces", "", "Impersonate-User", test.user, "Impersonate-Group", test.groups)
		got.Expect(t, test.code, "%s", name)
	}
	// Headers of a front proxy are ignored: annex has none.
	got := send(t, a.httpClientAs(t, nil), http.MethodGet, a.URL+"/api/v1/namespaces", "", "X-Remote-User", "admin", "X-Remote-Group", "system:masters")
	got.Expect(t, http.StatusUnauthorized, "headers of a front proxy")
}

// Certificates of --client-ca-file authenticate too, with the CommonName as the user and
// the organizations as groups.
func TestClientCAFile(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	a := startAnnex(t, "--client-ca-file="+authority.file(t))
	a.get(t, "/api/v1/namespaces").Expect(t, http.StatusOK, "the administrator's own certificate")
	for name, test := range map[string]struct {
		groups []string
		code   int
	}{
		"member":   {[]string{"developers", "system:masters"}, http.StatusOK},
		"outsider": {[]string{"developers"}, http.StatusForbidden},
	} {
		annexHTTP := a.httpClientAs(t, clientCertificate(authority.issue(t, "carol", test.groups...)))
		send(t, annexHTTP, http.MethodGet, a.URL+"/api/v1/namespaces", "").Expect(t, test.code, "%s", name)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var info version.Info
	sharedAnnex(t).get(t, "/version").Into(t, &info)
	if info.Major != "1" || info.Minor != "37" || !strings.HasPrefix(info.GitVersion, "v1.37.") || !strings.Contains(info.GitVersion, "+annex.") || info.EmulationMinor != "37" {
		t.Errorf("version is %+v", info)
	}
}

// Metrics are global to a process, and upstream's read the etcd of the last started server,
// which may have ended: that takes 20 seconds.
func TestMetrics(t *testing.T) {
	t.Parallel()
	a := startAnnexProcess(t)
	got := a.get(t, "/metrics", "Accept", "text/plain")
	if got.Code != http.StatusOK {
		t.Fatalf("/metrics: %s", got)
	}
	described, series := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(got.Body) + "\n") {
		once := described
		name, isDescription := strings.CutPrefix(line, "# TYPE ")
		switch {
		case isDescription:
			name, _, _ = strings.Cut(name, " ")
		case strings.HasPrefix(line, "#"):
			continue
		default:
			last := strings.LastIndexByte(line, ' ')
			if _, err := strconv.ParseFloat(strings.TrimSpace(line[last+1:]), 64); err != nil {
				t.Errorf("not a sample: %q", line)
			}
			once, name = series, line[:max(last, 0)]
		}
		if once[name] {
			t.Errorf("%s is there twice", name)
		}
		once[name] = true
	}
	for _, want := range []string{
		"apiserver_request_total", "etcd_mvcc_db_total_size_in_bytes", "etcd_server_has_leader",
		"etcd_request_duration_seconds", "process_resident_memory_bytes", "go_goroutines", "kubernetes_feature_enabled", "workqueue_depth",
	} {
		if !described[want] {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	got := sharedAnnex(t).get(t, "/debug/pprof/heap")
	if got.Code != http.StatusOK || !bytes.HasPrefix(got.Body, []byte{0x1f, 0x8b}) {
		t.Errorf("a heap profile: %d, %d bytes", got.Code, len(got.Body))
	}
}

// authority is a CA for clients and servers.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &authority{key: newECDSAKey(t), certificate: &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	return template.renewed(t, template)
}

// renewed returns the authority with another certificate for its key, signed by itself
// or by another.
func (a *authority) renewed(t *testing.T, by *authority) *authority {
	t.Helper()
	template := *a.certificate
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	return &authority{certificate: by.sign(t, &template, a.key), key: a.key}
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	expect.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	expect.NoError(t, err)
	return certificate
}

// issue signs a certificate for a user, which also serves 127.0.0.1.
func (a *authority) issue(t *testing.T, name string, groups ...string) (certPEM, keyPEM []byte) {
	t.Helper()
	key := newECDSAKey(t)
	certificate := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, key)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	return certificatePEM(certificate), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func certificatePEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

// pool returns a pool with the authority.
func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// file writes the certificate of the authority.
func (a *authority) file(t *testing.T) string {
	t.Helper()
	return writeFile(t, "ca.crt", certificatePEM(a.certificate))
}

// writeFile writes a file into a folder of its own.
func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	expect.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

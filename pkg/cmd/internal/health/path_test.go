// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/group/grouptest"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/pki"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
)

var systemNamespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifestNamespace}}

func service(spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: manifestNamespace, Name: "annex"}, Spec: spec}
}

var (
	clusterIP    = service(corev1.ServiceSpec{Selector: map[string]string{"app.kubernetes.io/name": "annex"}, Ports: []corev1.ServicePort{{Port: 443}}})
	externalName = service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
)

func TestService(t *testing.T) {
	t.Parallel()
	tests := map[string]checkTest{
		"fine":         {kube(clusterIP), []want{{LevelOK, "annex-system/annex has port 443", ""}}},
		"outside":      {kube(externalName), []want{{LevelOK, "is an ExternalName of localhost, port 443", ""}}},
		"no namespace": {fixture{}, []want{{LevelFail, "there is no namespace annex-system", "kubectl apply -k artifacts/deploy/base"}}},
		"no Service":   {kube(systemNamespace), []want{{LevelFail, "there is no Service annex-system/annex", "kubectl apply -k artifacts/deploy/base"}}},
		"wrong port": {
			kube(service(corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 8443}, {Port: 80}}})),
			[]want{{LevelFail, "annex publishes port 443 of Service annex-system/annex, which has 8443, 80", "annex serve --publish-service=annex-system/annex:8443"}},
		},
		"no ports": {kube(service(corev1.ServiceSpec{})), []want{{LevelFail, "which has none", "kubectl apply -k"}}},
	}
	runCheck(t, checkService, tests)
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	slice := func(name string, ready ...bool) *discoveryv1.EndpointSlice {
		made := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: manifestNamespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "annex"},
		}}
		for i, is := range ready {
			made.Endpoints = append(made.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{name},
				Conditions: discoveryv1.EndpointConditions{Ready: new(is)},
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: "annex-" + string(rune('a'+i))},
			})
		}
		return made
	}
	tests := map[string]checkTest{
		"fine, in two families": {kube(clusterIP, slice("v4", true, true), slice("v6", true, true)), []want{{LevelOK, "2 ready", ""}}},
		"outside":               {kube(externalName), []want{{LevelOK, "resolves localhost", ""}}},
		"nothing":               {kube(clusterIP), []want{{LevelFail, "nothing is behind Service", "get pods"}}},
		"none ready":            {kube(clusterIP, slice("v4", false, false)), []want{{LevelFail, "none of the 2 replicas", "logs"}}},
		"one ready":             {kube(clusterIP, slice("v4", true, false)), []want{{LevelWarn, "1 of 2 replicas are ready", "get pods"}}},
	}
	runCheck(t, checkEndpoints, tests)
}

// lease returns the Lease of annex's controllers, renewed a while ago.
func lease(holder string, renewed time.Duration) *coordinationv1.Lease {
	at := metav1.NewMicroTime(noon.Add(-renewed))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: manifestNamespace, Name: manifestLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at, LeaseDurationSeconds: new(int32(15))},
	}
}

func TestLeader(t *testing.T) {
	t.Parallel()
	tests := map[string]checkTest{
		"fine":     {kube(lease("pod-0", 2*time.Second)), []want{{LevelOK, "pod-0 runs the controllers", ""}}},
		"never":    {fixture{}, []want{{LevelFail, "no annex has started", "kubectl -n annex-system logs"}}},
		"given up": {kube(lease("", time.Second)), []want{{LevelFail, "has given up the Lease", "logs"}}},
		"lost":     {kube(lease("pod-0", time.Minute)), []want{{LevelFail, "pod-0 has not renewed its Lease for 1m0s", "logs"}}},
	}
	runCheck(t, checkLeader, tests)
}

func authority(t *testing.T, name string, from, until time.Duration) *pki.Authority {
	t.Helper()
	made, err := pki.NewAuthority(name, noon.Add(from), noon.Add(until))
	expect.NoError(t, err)
	return made
}

func TestFrontProxy(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	trust := func(ca, names string) fixture {
		return kube(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
			Data:       map[string]string{"requestheader-client-ca-file": ca, "requestheader-allowed-names": names},
		})
	}
	recent := string(authority(t, "recent", -day, 365*day).CertPEM())
	old := string(authority(t, "old", -100*day, day).CertPEM())
	expired := string(authority(t, "expired", -100*day, -day).CertPEM())
	future := string(authority(t, "future", day, 100*day).CertPEM())
	tests := map[string]checkTest{
		"fine":        {trust(recent, `["proxy","aggregator"]`), []want{{LevelOK, `signed by "recent", for proxy or aggregator`, ""}}},
		"any name":    {trust(recent, ""), []want{{LevelOK, "for any name", ""}}},
		"rotating":    {trust(old+recent, `["proxy"]`), []want{{LevelOK, `"old" or "recent"`, ""}, {LevelWarn, `"old" expires at`, "kubectl -n kube-system get configmap"}}},
		"expired":     {trust(expired, `["proxy"]`), []want{{LevelOK, `"expired"`, ""}, {LevelFail, `"expired" expired at`, "get configmap"}}},
		"future":      {trust(future, `["proxy"]`), []want{{LevelOK, `"future"`, ""}, {LevelFail, "are the clocks right", "get configmap"}}},
		"no map":      {fixture{}, []want{{LevelFail, "cannot be read", "get configmap extension-apiserver-authentication"}}},
		"no proxying": {trust("", ""), []want{{LevelFail, "does not proxy to aggregated servers at all", "--requestheader-client-ca-file"}}},
		"damaged":     {trust("x", ""), []want{{LevelFail, "contains no PEM certificate", "get configmap"}}},
		"no list":     {trust(recent, "proxy"), []want{{LevelFail, "is not a list", "get configmap"}}},
	}
	runCheck(t, checkFrontProxy, tests)
}

// published is an APIService of annex that is available, changed by edits.
func published(name string, edits ...func(*apiregistrationv1.APIService)) *apiregistrationv1.APIService {
	version, group, _ := strings.Cut(name, ".")
	made := grouptest.Published(group, version, "")
	for _, edit := range edits {
		edit(made)
	}
	return made
}

func condition(status apiregistrationv1.ConditionStatus, reason, message string) func(*apiregistrationv1.APIService) {
	return func(a *apiregistrationv1.APIService) { grouptest.Available(a, status, reason, message) }
}

func by(label string) func(*apiregistrationv1.APIService) {
	return func(a *apiregistrationv1.APIService) { a.Labels = map[string]string{"annex.dev/published-by": label} }
}

func to(namespace string, port int32) func(*apiregistrationv1.APIService) {
	return func(a *apiregistrationv1.APIService) {
		a.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: namespace, Name: "annex", Port: &port}
	}
}

func local(a *apiregistrationv1.APIService) { a.Spec.Service = nil }

func TestAPIService(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edits []func(*apiregistrationv1.APIService)
		want  want
	}{
		"fine":             {nil, want{LevelOK, "reports v1alpha1.hosting.annex.dev as available", ""}},
		"of another annex": {[]func(*apiregistrationv1.APIService){by("other.annex"), to("other", 8443)}, want{LevelFail, `belongs to the annex that publishes as "other.annex"`, "annex doctor --publish-service=other/annex:8443"}},
		"made by hand":     {[]func(*apiregistrationv1.APIService){by("")}, want{LevelFail, "was not created by annex", "kubectl label apiservice v1alpha1.hosting.annex.dev annex.dev/published-by=annex-system.annex"}},
		"of another owner": {[]func(*apiregistrationv1.APIService){by(""), to("other", 443)}, want{LevelFail, "leads to other/annex and is not annex's", "kubectl get apiservice"}},
		"of main":          {[]func(*apiregistrationv1.APIService){by(""), local}, want{LevelFail, "the main cluster serves hosting.annex.dev/v1alpha1 itself", "kubectl get crds"}},
		"made local":       {[]func(*apiregistrationv1.APIService){local}, want{LevelFail, "leads to no Service", "logs"}},
		"moved":            {[]func(*apiregistrationv1.APIService){to("annex-system", 1)}, want{LevelFail, "leads to annex-system/annex:1 and not to annex-system/annex:443", "logs"}},
		"unverified":       {[]func(*apiregistrationv1.APIService){func(a *apiregistrationv1.APIService) { a.Spec.InsecureSkipTLSVerify = true }}, want{LevelFail, "insecureSkipTLSVerify", "logs"}},
		"not checked":      {[]func(*apiregistrationv1.APIService){func(a *apiregistrationv1.APIService) { a.Status.Conditions = nil }}, want{LevelFail, "has not yet checked", "kubectl get apiservice"}},
		"no Service":       {[]func(*apiregistrationv1.APIService){condition("False", "ServiceNotFound", "m")}, want{LevelFail, "ServiceNotFound: m", "kubectl apply -k"}},
		"wrong port":       {[]func(*apiregistrationv1.APIService){condition("False", "ServicePortError", "m")}, want{LevelFail, "--publish-service has the wrong port", "get service annex"}},
		"no endpoints":     {[]func(*apiregistrationv1.APIService){condition("False", "MissingEndpoints", "m")}, want{LevelFail, "no replica is ready", "get pods"}},
		"wrong CA":         {[]func(*apiregistrationv1.APIService){condition("False", "FailedDiscoveryCheck", "x509: unknown authority")}, want{LevelFail, "wrong authorities", "kubectl patch apiservice v1alpha1.hosting.annex.dev"}},
		"wrong front proxy": {[]func(*apiregistrationv1.APIService){condition("False", "FailedDiscoveryCheck", "bad status from https://x: 401")},
			want{LevelFail, "annex does not trust the front proxy", "extension-apiserver-authentication"}},
		"not listening": {[]func(*apiregistrationv1.APIService){condition("False", "FailedDiscoveryCheck", "dial tcp: connection refused")}, want{LevelFail, "nothing listens", "logs"}},
		"firewall":      {[]func(*apiregistrationv1.APIService){condition("False", "FailedDiscoveryCheck", "context deadline exceeded")}, want{LevelFail, "10250", "logs"}},
		"unknown":       {[]func(*apiregistrationv1.APIService){condition("Unknown", "Odd", "m")}, want{LevelFail, "Odd: m", "logs"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := fixture{apiServices: []runtime.Object{published(HostingAPIService, test.edits...)}}
			compare(t, checkAPIService(t.Context(), w.environment()), []want{test.want})
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		compare(t, checkAPIService(t.Context(), fixture{}.environment()), []want{{LevelFail, "there is no APIService v1alpha1.hosting.annex.dev", "logs"}})
	})
}

func TestPublished(t *testing.T) {
	t.Parallel()
	w := fixture{apiServices: []runtime.Object{
		published(HostingAPIService, condition("False", "Odd", "another check's")),
		published("v1.a.example.com"),
		published("v1.b.example.com", condition("False", "FailedDiscoveryCheck", "connection refused")),
		published("v1.c.example.com", by("other.annex")),
		published("v1.d.example.com", by(""), to("other", 443), condition("False", "ServiceNotFound", "m")),
		published("v1.e.example.com", by(""), local),
	}}
	compare(t, checkPublished(t.Context(), w.environment()), []want{
		{LevelOK, "1 group versions beside annex's own", ""},
		{LevelFail, "does not reach annex for v1.b.example.com", "logs"},
		{LevelWarn, "APIService v1.d.example.com, which is not annex's", "kubectl get apiservice v1.d.example.com"},
		{LevelWarn, `another annex publishes as "other.annex": v1.c.example.com`, "kubectl get apiservices -l annex.dev/published-by=other.annex"},
	})
}

// TestPublishedService: the Service that annex publishes is used whatever its name.
func TestPublishedService(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"published":    {[]runtime.Object{published(HostingAPIService, by("other.annex"), to("other", 8443))}, "other/annex:8443"},
		"made by hand": {[]runtime.Object{published(HostingAPIService, by(""), to("other", 8443))}, "annex-system/annex:443"},
		"none":         {nil, "annex-system/annex:443"},
	} {
		e := fixture{apiServices: test.objects}.environment()
		e.ServiceGiven = false
		_, err := e.readObjects(t.Context())
		expect.NoError(t, err)
		if got := e.Service.String(); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// serveTLS listens with a certificate of an authority, and returns its address.
func serveTLS(t *testing.T, by *pki.Authority, lifetime time.Duration) string {
	t.Helper()
	pair, err := by.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "annex"}, DNSNames: []string{"annex.annex-system.svc"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, noon, lifetime)
	expect.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	expect.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients refuse it on purpose
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	ours, theirs := authority(t, "ours", -day, 365*day), authority(t, "theirs", -day, 365*day)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: manifestNamespace, Name: "annex-serving-ca"}}
	expect.NoError(t, (&servingca.State{Signing: ours}).Write(secret))
	damaged := secret.DeepCopy()
	damaged.Type = corev1.SecretTypeOpaque
	bundle := func(of []byte) func(*apiregistrationv1.APIService) {
		return func(a *apiregistrationv1.APIService) { a.Spec.CABundle = of }
	}
	good, old := published(HostingAPIService, bundle(ours.CertPEM())), authority(t, "old", -100*day, day)
	address, soon, expired := serveTLS(t, ours, 90*day), serveTLS(t, ours, time.Second), serveTLS(t, ours, -time.Minute)
	tests := map[string]struct {
		published []runtime.Object
		kube      []runtime.Object
		server    string
		want      []want
	}{
		"fine": {[]runtime.Object{good}, []runtime.Object{secret}, address, []want{
			{LevelOK, `verifies annex with "ours", until 2027-06-01`, ""}, {LevelOK, "for annex.annex-system.svc, valid until 2026-08-30T12:00:00Z", ""},
		}},
		"not from here": {[]runtime.Object{good}, []runtime.Object{secret, clusterIP}, "", []want{
			{LevelOK, "verifies annex", ""}, {LevelOK, "not reached from here (use --annex-server", ""},
		}},
		"provided certificate": {[]runtime.Object{good}, nil, address, []want{{LevelOK, "verifies annex", ""}, {LevelOK, "valid until", ""}}},
		"nothing published":    {nil, []runtime.Object{secret}, "", []want{{LevelWarn, "annex has published nothing", "logs"}}},
		"wrong bundle": {[]runtime.Object{published(HostingAPIService, bundle(theirs.CertPEM()))}, []runtime.Object{secret}, address, []want{
			{LevelFail, "is not the one in Secret annex-system/annex-serving-ca", `kubectl patch apiservice v1alpha1.hosting.annex.dev --type=merge`},
			{LevelFail, "that the main cluster cannot verify", "kubectl patch apiservice"},
		}},
		"one of two wrong": {[]runtime.Object{good, published("v1.a.example.com", bundle(theirs.CertPEM()))}, []runtime.Object{secret}, address, []want{
			{LevelFail, "caBundle of APIService v1.a.example.com", "kubectl patch apiservice v1.a.example.com"}, {LevelOK, "valid until", ""},
		}},
		"no bundle":          {[]runtime.Object{published(HostingAPIService)}, []runtime.Object{secret}, "", []want{{LevelFail, "contains no PEM certificate", "kubectl patch apiservice"}}},
		"not rotated":        {[]runtime.Object{published(HostingAPIService, bundle(old.CertPEM()))}, []runtime.Object{clusterIP}, "", []want{{LevelFail, `"old" expires at`, "logs"}, {LevelOK, "not reached", ""}}},
		"rotated":            {[]runtime.Object{published(HostingAPIService, bundle(append(old.CertPEM(), ours.CertPEM()...)))}, []runtime.Object{clusterIP}, "", []want{{LevelWarn, `"old" expires at`, "logs"}, {LevelOK, "verifies annex", ""}, {LevelOK, "not reached", ""}}},
		"damaged Secret":     {[]runtime.Object{good}, []runtime.Object{damaged, clusterIP}, "", []want{{LevelFail, "it has the type", "kubectl -n annex-system get secret annex-serving-ca"}, {LevelOK, "not reached", ""}}},
		"not renewed":        {[]runtime.Object{good}, []runtime.Object{secret}, soon, []want{{LevelOK, "verifies annex", ""}, {LevelFail, `annex's certificate "annex" expires`, "logs"}}},
		"expired":            {[]runtime.Object{good}, []runtime.Object{secret}, expired, []want{{LevelOK, "verifies annex", ""}, {LevelFail, "has expired and was not renewed", "logs"}}},
		"server unavailable": {[]runtime.Object{good}, []runtime.Object{secret}, freeport.Refusing(t), []want{{LevelOK, "verifies annex", ""}, {LevelFail, "--annex-server", "logs"}}},
		"reached by name":    {[]runtime.Object{good}, []runtime.Object{secret, externalName}, "", []want{{LevelOK, "verifies annex", ""}, {LevelOK, "", ""}}},
		"no Service to it":   {[]runtime.Object{good}, []runtime.Object{secret}, "", []want{{LevelOK, "verifies annex", ""}, {LevelOK, "its Service cannot be read", ""}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := fixture{apiServices: test.published, kube: test.kube}.environment()
			e.AnnexServer = test.server
			compare(t, checkCertificates(t.Context(), e), test.want)
		})
	}
}

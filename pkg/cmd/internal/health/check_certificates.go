// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/pki"
)

// dialTimeout bounds the attempt to reach annex from here, which may fail.
const dialTimeout = 3 * time.Second

// checkCertificates compares three things that must match: the CAs with which the main
// cluster verifies annex, annex's own CAs, and annex's serving certificate, if it can be
// reached from here.
func checkCertificates(ctx context.Context, e *environment) []Finding {
	published := e.published()
	if len(published) == 0 {
		return []Finding{warn(e.logs(), "annex has published nothing that the main cluster could verify")}
	}
	var findings []Finding
	shared, note := e.sharedAuthorities(ctx)
	if note != nil {
		findings = append(findings, *note)
	}
	for i := range published {
		findings = append(findings, e.compareAuthorities(&published[i], shared)...)
	}
	first := max(0, slices.IndexFunc(published, func(a apiregistrationv1.APIService) bool { return a.Name == HostingAPIService }))
	authorities, err := pki.ParseBundle(published[first].Spec.CABundle)
	if err != nil {
		return findings // reported above
	}
	findings = append(findings, expiring(authorities, "the authority", e.now(), e.logs(), "AnnexCertificateExpires")...)
	e.server.expires(latest(authorities))
	if Failed(findings) == 0 {
		findings = append(findings, ok("the main cluster verifies annex with %s, until %s", subjects(authorities), latest(authorities).Format(time.DateOnly)))
	}
	return append(findings, e.served(ctx, published[first].Name, authorities)...)
}

// sharedAuthorities reads the CA bundle that annex's replicas share, if there is one.
func (e *environment) sharedAuthorities(ctx context.Context) ([]byte, *Finding) {
	secret, err := e.Kube.CoreV1().Secrets(e.Service.Namespace).Get(ctx, servingca.SecretName(e.Service.Name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// annex runs with --tls-cert-file, or has never run.
		return nil, nil
	case err != nil:
		f := e.orSkip(err, warn(canI("get", "secrets", e.Service.Namespace), "Secret %s/%s cannot be read: %v", e.Service.Namespace, servingca.SecretName(e.Service.Name), err))
		return nil, &f
	}
	if _, err := servingca.Parse(secret); err != nil {
		f := fail(fmt.Sprintf("kubectl -n %s get secret %s -o yaml", e.Service.Namespace, servingca.SecretName(e.Service.Name)), "%v", err)
		return nil, &f
	}
	return secret.Data[servingca.BundleKey], nil
}

func (e *environment) compareAuthorities(of *apiregistrationv1.APIService, shared []byte) []Finding {
	fix := e.rightAuthorities(of.Name)
	if shared == nil {
		fix = e.logs()
	}
	if _, err := pki.ParseBundle(of.Spec.CABundle); err != nil {
		return []Finding{fail(fix, "the caBundle of APIService %s: %v", of.Name, err)}
	}
	if shared != nil && !bytes.Equal(bytes.TrimSpace(of.Spec.CABundle), bytes.TrimSpace(shared)) {
		return []Finding{fail(fix, "the caBundle of APIService %s is not the one in Secret %s/%s: the main cluster verifies annex with the wrong authorities, and annex has not corrected it",
			of.Name, e.Service.Namespace, servingca.SecretName(e.Service.Name))}
	}
	return nil
}

// rightAuthorities is the command that sets an APIService's caBundle to the shared one.
func (e *environment) rightAuthorities(name string) string {
	return fmt.Sprintf(`kubectl patch apiservice %s --type=merge -p "{\"spec\":{\"caBundle\":\"$(kubectl -n %s get secret %s -o jsonpath='{.data.ca-bundle\.crt}')\"}}"`,
		name, e.Service.Namespace, servingca.SecretName(e.Service.Name))
}

func latest(certificates []*x509.Certificate) time.Time {
	return slices.MaxFunc(certificates, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

func (e *environment) served(ctx context.Context, apiService string, authorities []*x509.Certificate) []Finding {
	address, why := e.address()
	if address == "" {
		return []Finding{ok("annex is not reached from here (%s): the main cluster itself verifies what it serves with", why)}
	}
	roots := x509.NewCertPool()
	for _, authority := range authorities {
		roots.AddCert(authority)
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: dialTimeout},
		Config:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: e.Service.ServerName(), Time: e.now},
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	connection, err := dialer.DialContext(ctx, "tcp", address)
	var untrusted *tls.CertificateVerificationError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return []Finding{fail(e.logs(), "annex serves with a certificate at %s that has expired and was not renewed, or a clock is wrong: %v", address, invalid)}
	case errors.As(err, &untrusted):
		return []Finding{fail(e.rightAuthorities(apiService), "annex serves with a certificate at %s that the main cluster cannot verify: %v", address, untrusted.Err)}
	case err != nil && e.AnnexServer != "":
		return []Finding{fail(e.logs(), "--annex-server %s cannot be reached: %v", address, err)}
	case err != nil:
		return []Finding{ok("annex is not reached from here (%v): the main cluster itself verifies what it serves with", err)}
	}
	defer connection.Close()
	leaf := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
	e.server.expires(leaf.NotAfter)
	return orOK(expiring([]*x509.Certificate{leaf}, "annex's certificate", e.now(), e.logs(), "AnnexCertificateExpires"),
		"annex serves with a certificate for %s, valid until %s", e.Service.ServerName(), leaf.NotAfter.Format(time.RFC3339))
}

// address returns the address at which annex may be reached from here, or why there is none.
func (e *environment) address() (address, why string) {
	switch {
	case e.AnnexServer != "":
		return e.AnnexServer, ""
	case e.backendErr != nil:
		return "", "its Service cannot be read"
	}
	host := ""
	switch spec := e.backend.Spec; {
	case spec.Type == corev1.ServiceTypeExternalName:
		host = spec.ExternalName
	case e.inCluster && spec.ClusterIP != corev1.ClusterIPNone:
		host = spec.ClusterIP
	}
	if host == "" {
		return "", "use --annex-server after kubectl port-forward"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(e.Service.Port))), ""
}

// Keys of the ConfigMap with which the main cluster describes how its proxy logs in.
const (
	frontProxyCAKey    = "requestheader-client-ca-file"
	frontProxyNamesKey = "requestheader-allowed-names"
)

// checkFrontProxy checks how the main cluster proves to annex on whose behalf a
// request is. checkRBAC checks that annex can read it.
func checkFrontProxy(ctx context.Context, e *environment) []Finding {
	where := maincluster.AuthenticationNamespace + "/" + maincluster.AuthenticationConfigMap
	show := fmt.Sprintf("kubectl -n %s get configmap %s -o yaml", maincluster.AuthenticationNamespace, maincluster.AuthenticationConfigMap)
	trust, err := e.Kube.CoreV1().ConfigMaps(maincluster.AuthenticationNamespace).Get(ctx, maincluster.AuthenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return []Finding{fail(show, "ConfigMap %s, which describes how the main cluster's proxy logs in, cannot be read: %v", where, err)}
	}
	if trust.Data[frontProxyCAKey] == "" {
		return []Finding{fail("kube-apiserver --requestheader-client-ca-file=… --proxy-client-cert-file=… --proxy-client-key-file=…",
			"ConfigMap %s has no %s: the main cluster does not proxy to aggregated servers at all", where, frontProxyCAKey)}
	}
	authorities, err := pki.ParseBundle([]byte(trust.Data[frontProxyCAKey]))
	if err != nil {
		return []Finding{fail(show, "%s in ConfigMap %s: %v", frontProxyCAKey, where, err)}
	}
	var names []string
	if listed := trust.Data[frontProxyNamesKey]; listed != "" {
		if err := json.Unmarshal([]byte(listed), &names); err != nil {
			return []Finding{fail(show, "%s in ConfigMap %s is not a list: %v", frontProxyNamesKey, where, err)}
		}
	}
	allowed := "any name"
	if len(names) > 0 {
		allowed = strings.Join(names, " or ")
	}
	findings := []Finding{ok("its certificate is signed by %s, for %s", subjects(authorities), allowed)}
	return append(findings, expiring(authorities, "the front proxy's authority", e.now(), show, "")...)
}

func subjects(certificates []*x509.Certificate) string {
	var all []string
	for _, certificate := range certificates {
		all = append(all, fmt.Sprintf("%q", certificate.Subject.CommonName))
	}
	return strings.Join(all, " or ")
}

// expiring returns findings about certificates that have expired or are in the last tenth
// of their life, by which they should have been replaced. If alertName is set, it has the level
// of the last one to expire.
func expiring(certificates []*x509.Certificate, what string, now time.Time, fix, alertName string) []Finding {
	var findings []Finding
	for _, certificate := range certificates {
		left := certificate.NotAfter.Sub(now)
		lifetime := certificate.NotAfter.Sub(certificate.NotBefore)
		switch {
		case now.Before(certificate.NotBefore):
			findings = append(findings, fail(fix, "%s %q is not valid before %s: are the clocks right?", what, certificate.Subject.CommonName, certificate.NotBefore.Format(time.RFC3339)))
		case left <= 0:
			findings = append(findings, fail(fix, "%s %q expired at %s", what, certificate.Subject.CommonName, certificate.NotAfter.Format(time.RFC3339)))
		case left < expiresSoon && alertName != "" && certificate.NotAfter.Equal(latest(certificates)):
			findings = append(findings, alert(alertName, fix, "%s %q expires at %s and has not been replaced", what, certificate.Subject.CommonName, certificate.NotAfter.Format(time.RFC3339)))
		case left < lifetime/10:
			findings = append(findings, warn(fix, "%s %q expires at %s and has not been replaced", what, certificate.Subject.CommonName, certificate.NotAfter.Format(time.RFC3339)))
		}
	}
	return findings
}

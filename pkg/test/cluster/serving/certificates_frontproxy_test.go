// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	authenticationNamespace = metav1.NamespaceSystem
	authenticationConfigMap = "extension-apiserver-authentication"
)

// frontProxy reads the current client certificate of the main cluster's front proxy.
func frontProxy(t *testing.T) tls.Certificate {
	t.Helper()
	file := func(name string) string { return filepath.Join(mainCluster.Dir, name) }
	pair, err := tls.LoadX509KeyPair(file("front-proxy-client.crt"), file("front-proxy-client.key"))
	expect.NoError(t, err)
	return pair
}

// asProxied sends a request to annex on a new connection, with a front proxy's headers for an
// administrator, and returns status and body.
func asProxied(t *testing.T, annex *annextest.Annex, logins ...tls.Certificate) (int, string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(getAPIService(t, hostingName).Spec.CABundle)
	client := &http.Client{Timeout: poll.Timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName,
			// Also a certificate that annex does not accept.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(logins) == 0 {
					return &tls.Certificate{}, nil
				}
				return &logins[0], nil
			},
		},
	}}
	response, err := clients.Send(t.Context(), client, http.MethodGet, "https://"+annex.Address()+stores, "", "X-Remote-User", "jane", "X-Remote-Group", "system:masters")
	if err != nil {
		return 0, err.Error()
	}
	return response.Code, string(response.Body)
}

// prober sends requests through the main cluster until it is stopped, and counts the responses.
type prober struct {
	cancel    context.CancelFunc
	done      chan struct{}
	mu        sync.Mutex
	responses map[string]int
}

func startProber(t *testing.T) *prober {
	t.Helper()
	client, err := restclient.HTTPClientFor(mainCluster.Config)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	p := &prober{cancel: cancel, done: make(chan struct{}), responses: map[string]int{}}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			response, err := clients.Send(ctx, client, http.MethodGet, mainCluster.URL+stores, "")
			if err != nil {
				continue
			}
			result := "200 OK"
			if response.Code != http.StatusOK {
				result = response.String()
			}
			p.mu.Lock()
			p.responses[result]++
			p.mu.Unlock()
		}
	}()
	return p
}

// end checks that requests succeed now, and that none was taken for anonymous.
func (p *prober) end(t *testing.T) {
	t.Helper()
	before := p.succeeded()
	poll.UntilDone(t, "more requests through the main cluster", func() (bool, string) {
		now := p.succeeded()
		return now >= before+20, fmt.Sprintf("%d responses, %d before", now, before)
	})
	p.cancel()
	<-p.done
	for response := range p.responses {
		if strings.Contains(response, "anonymous") || strings.HasPrefix(response, "403") {
			t.Errorf("a user of the main cluster was not recognized: %s", response)
		}
	}
	t.Logf("responses: %v", p.responses)
}

func (p *prober) succeeded() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.responses["200 OK"]
}

// TestFrontProxyRotation replaces CA and certificate of the main cluster's front proxy at once.
// kube-apiserver publishes the old CA with the new one until the ConfigMap is deleted, which
// annex follows.
func TestFrontProxyRotation(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	before := frontProxy(t)
	if status, body := asProxied(t, annex, before); status != http.StatusOK {
		t.Fatalf("the front proxy gets %d: %s", status, body)
	}
	probes := startProber(t)
	expect.NoError(t, mainCluster.RotateFrontProxyCA(t.Context()))
	client, err := restclient.HTTPClientFor(mainCluster.Config)
	expect.NoError(t, err)
	poll.UntilDone(t, "the new front proxy is accepted", func() (bool, string) {
		status, body := asProxied(t, annex, frontProxy(t))
		return status == http.StatusOK, fmt.Sprint(status, body)
	})
	poll.UntilDone(t, "requests through the main cluster work", func() (bool, string) {
		err := getOK(t.Context(), client, mainCluster.URL+stores)
		return err == nil, fmt.Sprint(err)
	})
	expect.Delete(t, kube(t, mainCluster.Config).CoreV1().ConfigMaps(authenticationNamespace), authenticationConfigMap)
	poll.UntilDone(t, "the previous front proxy is refused", func() (bool, string) {
		status, body := asProxied(t, annex, before)
		return status == http.StatusUnauthorized, fmt.Sprint(status, body)
	})
	if status, body := asProxied(t, annex, frontProxy(t)); status != http.StatusOK {
		t.Errorf("the front proxy gets %d: %s", status, body)
	}
	probes.end(t)
}

// TestAuthenticationConfigMapIsDeleted deletes the ConfigMap with the front proxy's CA. annex
// keeps the last CA, and trusts no other.
func TestAuthenticationConfigMapIsDeleted(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	foreign, err := newCA(t, "foreign").Issue(&x509.Certificate{
		Subject:     frontProxyLeaf(t).Subject,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, frontProxyLeaf(t).NotBefore, frontProxyLeaf(t).NotAfter.Sub(frontProxyLeaf(t).NotBefore))
	expect.NoError(t, err)
	pair, err := tls.X509KeyPair(foreign.CertPEM, foreign.KeyPEM)
	expect.NoError(t, err)
	configMaps := kube(t, mainCluster.Config).CoreV1().ConfigMaps(authenticationNamespace)
	probes := startProber(t)
	expect.Delete(t, configMaps, authenticationConfigMap)
	refused := func() {
		t.Helper()
		for name, logins := range map[string][]tls.Certificate{"without a certificate": nil, "of a foreign CA": {pair}} {
			if status, body := asProxied(t, annex, logins...); status != http.StatusUnauthorized {
				t.Errorf("headers %s get %d: %s", name, status, body)
			}
		}
	}
	refused()
	poll.UntilDone(t, "the main cluster publishes it again", func() (bool, string) {
		refused()
		_, err := configMaps.Get(t.Context(), authenticationConfigMap, metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	refused()
	probes.end(t)
	for response := range probes.responses {
		if !strings.HasPrefix(response, "200") {
			t.Errorf("a request through the main cluster failed: %s", response)
		}
	}
}

func frontProxyLeaf(t *testing.T) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(frontProxy(t).Certificate[0])
	expect.NoError(t, err)
	return leaf
}

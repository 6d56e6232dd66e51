// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	authenticationNamespace = metav1.NamespaceSystem
	authenticationConfigMap = "extension-apiserver-authentication"
)

// frontProxy is the login of the main cluster's front proxy, as it is in its
// directory now.
func frontProxy(t *testing.T) tls.Certificate {
	t.Helper()
	file := func(name string) string { return filepath.Join(mainCluster.Dir, name) }
	pair, err := tls.LoadX509KeyPair(file("front-proxy-client.crt"), file("front-proxy-client.key"))
	expect.NoError(t, err)
	return pair
}

// asProxied asks annex itself, with the headers of a front proxy that speaks for an
// administrator, on a new connection, and returns the status and the answer.
func asProxied(t *testing.T, annex *annextest.Annex, logins ...tls.Certificate) (int, string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(published(t).Spec.CABundle)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName,
			// Also one that annex does not ask for: it must not help.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(logins) == 0 {
					return &tls.Certificate{}, nil
				}
				return &logins[0], nil
			},
		},
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+annex.Address()+defaultPath, http.NoBody)
	expect.NoError(t, err)
	request.Header.Set("X-Remote-User", "somebody")
	request.Header.Set("X-Remote-Group", "system:masters")
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	expect.NoError(t, err)
	return response.StatusCode, string(body)
}

// watcher asks through the main cluster until it is ended and keeps what it was
// answered.
type watcher struct {
	cancel  context.CancelFunc
	done    chan struct{}
	mu      sync.Mutex
	answers map[string]int
}

func watch(t *testing.T) *watcher {
	t.Helper()
	client, err := restclient.HTTPClientFor(mainCluster.Config)
	expect.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := &watcher{cancel: cancel, done: make(chan struct{}), answers: map[string]int{}}
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, mainCluster.URL+defaultPath, http.NoBody)
			if err != nil {
				return
			}
			response, err := client.Do(request)
			if err != nil {
				continue
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			answer := response.Status
			if response.StatusCode != http.StatusOK {
				answer += " " + string(body)
			}
			w.mu.Lock()
			w.answers[answer]++
			w.mu.Unlock()
		}
	}()
	return w
}

// end checks that requests succeed now and that nobody was taken for anonymous.
func (w *watcher) end(t *testing.T) {
	t.Helper()
	before := w.succeeded()
	poll.UntilDone(t, "more requests through the main cluster", func() (bool, string) {
		now := w.succeeded()
		return now >= before+20, fmt.Sprintf("%d answers, %d before", now, before)
	})
	w.cancel()
	<-w.done
	for answer := range w.answers {
		if strings.Contains(answer, "anonymous") || strings.HasPrefix(answer, "403") {
			t.Errorf("a user of the main cluster was taken for somebody else: %s", answer)
		}
	}
	t.Logf("answers: %v", w.answers)
}

func (w *watcher) succeeded() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers["200 OK"]
}

// TestFrontProxyRotation replaces the authority and the login of the main cluster's
// front proxy at once. kube-apiserver goes on publishing the old authority beside
// the new one until somebody deletes the ConfigMap; annex follows that as well.
func TestFrontProxyRotation(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	before := frontProxy(t)
	if status, body := asProxied(t, annex, before); status != http.StatusOK {
		t.Fatalf("the front proxy is answered %d: %s", status, body)
	}
	asked := watch(t)
	expect.NoError(t, mainCluster.RotateFrontProxyCA(t.Context()))
	client, err := restclient.HTTPClientFor(mainCluster.Config)
	expect.NoError(t, err)
	poll.UntilDone(t, "the new front proxy is known", func() (bool, string) {
		status, body := asProxied(t, annex, frontProxy(t))
		return status == http.StatusOK, fmt.Sprint(status, body)
	})
	poll.UntilDone(t, "requests through the main cluster work", func() (bool, string) {
		err := get(t.Context(), client, mainCluster.URL+defaultPath)
		return err == nil, fmt.Sprint(err)
	})
	expect.Delete(t, mainClient(t).CoreV1().ConfigMaps(authenticationNamespace), authenticationConfigMap)
	poll.UntilDone(t, "the front proxy of before is a stranger", func() (bool, string) {
		status, body := asProxied(t, annex, before)
		return status == http.StatusUnauthorized, fmt.Sprint(status, body)
	})
	if status, body := asProxied(t, annex, frontProxy(t)); status != http.StatusOK {
		t.Errorf("the front proxy is answered %d: %s", status, body)
	}
	asked.end(t)
}

// TestAuthenticationConfigMapIsDeleted deletes what says whom to trust. annex goes
// on with what it read last, and trusts nobody else.
func TestAuthenticationConfigMapIsDeleted(t *testing.T) {
	annex := annextest.Start(t, mainCluster)
	stranger, err := newCA(t, "stranger").Issue(&x509.Certificate{
		Subject:     frontProxyLeaf(t).Subject,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, frontProxyLeaf(t).NotBefore, frontProxyLeaf(t).NotAfter.Sub(frontProxyLeaf(t).NotBefore))
	expect.NoError(t, err)
	strange, err := tls.X509KeyPair(stranger.CertPEM, stranger.KeyPEM)
	expect.NoError(t, err)
	configMaps := mainClient(t).CoreV1().ConfigMaps(authenticationNamespace)
	asked := watch(t)
	expect.NoError(t, configMaps.Delete(t.Context(), authenticationConfigMap, metav1.DeleteOptions{}))
	refused := func() {
		t.Helper()
		for who, logins := range map[string][]tls.Certificate{"without a certificate": nil, "of a stranger": {strange}} {
			if status, body := asProxied(t, annex, logins...); status != http.StatusUnauthorized {
				t.Errorf("headers %s are answered %d: %s", who, status, body)
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
	asked.end(t)
	for answer := range asked.answers {
		if !strings.HasPrefix(answer, "200") {
			t.Errorf("a request through the main cluster failed: %s", answer)
		}
	}
}

func frontProxyLeaf(t *testing.T) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(frontProxy(t).Certificate[0])
	expect.NoError(t, err)
	return leaf
}

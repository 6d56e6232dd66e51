// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// serverName is the name that the main cluster expects in annex's certificate.
const serverName = annextest.ServiceName + "." + annextest.Namespace + ".svc"

// connections repeats two kinds of requests: gets of an object through the main cluster, whose proxy
// keeps its connections, and new connections to annex, verified as the proxy does.
type connections struct {
	cancel   context.CancelFunc
	running  sync.WaitGroup
	mu       sync.Mutex
	proxied  int
	verified int
	issuers  map[string]bool
	failures []string
}

func startConnections(t *testing.T, installation *annextest.Installation) *connections {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := &connections{cancel: cancel, issuers: map[string]bool{}}
	t.Cleanup(func() { cancel(); c.running.Wait() })
	main := clients.For(t, mainCluster.Config)
	c.repeat(ctx, func() error {
		c.count(&c.proxied)
		return getOK(ctx, main.HTTP, mainCluster.URL+stores)
	})
	c.repeat(ctx, func() error {
		found, err := main.APIServices.Get(ctx, hostingName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get the APIService: %w", err)
		}
		c.count(&c.verified)
		issuer, err := handshake(ctx, installation.Balancer.Address(), found.Spec.CABundle)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.issuers[issuer] = true
		return err
	})
	return c
}

func (c *connections) repeat(ctx context.Context, request func() error) {
	c.running.Go(func() {
		for ctx.Err() == nil {
			if err := request(); err != nil && ctx.Err() == nil {
				c.mu.Lock()
				c.failures = append(c.failures, time.Now().Format(time.TimeOnly+".000")+" "+err.Error())
				c.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}

func (c *connections) count(of *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*of++
}

// end stops the load, and fails the test if a request failed or if the number of CAs that were
// seen is different.
func (c *connections) end(t *testing.T, authorities int) {
	t.Helper()
	c.cancel()
	c.running.Wait()
	for i, failure := range c.failures {
		if i == 10 {
			t.Errorf("and %d more", len(c.failures)-i)
			break
		}
		t.Error(failure)
	}
	delete(c.issuers, "")
	if c.proxied < 50 || c.verified < 50 || len(c.issuers) != authorities {
		t.Errorf("%d requests and %d new connections, with certificates of %v, want %d CAs", c.proxied, c.verified, c.issuers, authorities)
	}
	t.Logf("%d requests through the main cluster and %d new connections, %d failures", c.proxied, c.verified, len(c.failures))
}

// getOK fails unless the response is 200.
func getOK(ctx context.Context, client *http.Client, url string) error {
	response, err := clients.Send(ctx, client, http.MethodGet, url, "")
	if err == nil && response.Code != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response)
	}
	return err
}

// handshake connects as the main cluster does, and returns the issuer of annex's certificate.
func handshake(ctx context.Context, address string, bundle []byte) (issuer string, err error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return "", errors.New("the APIService has no CA bundle")
	}
	ctx, cancel := context.WithTimeout(ctx, poll.Timeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: serverName}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("connect to annex: %w", err)
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.CommonName, nil
}

func sharedSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	return expect.Get(t, kube(t, mainCluster.Config).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName))
}

// deleteCA deletes the CA's Secret, which a running replica restores.
func deleteCA(t *testing.T) {
	t.Helper()
	// In a cleanup the test's context is canceled.
	err := kube(t, mainCluster.Config).CoreV1().Secrets(annextest.Namespace).Delete(context.WithoutCancel(t.Context()), servingca.SecretName(annextest.ServiceName), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func annotate(t *testing.T, annotation, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	expect.Patch(t, kube(t, mainCluster.Config).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName), patch)
}

func mustParse(t *testing.T, secret *corev1.Secret) *servingca.State {
	t.Helper()
	state, err := servingca.Parse(secret)
	expect.NoError(t, err)
	return state
}

func patchAPIService(t *testing.T, spec map[string]any) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	expect.NoError(t, err)
	expect.Patch(t, apiServices(t), hostingName, string(patch))
}

func grep(text, part string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// enough reports whether the load is large enough for a check.
func (c *connections) enough() (done bool, saw string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proxied >= 100 && c.verified >= 100, fmt.Sprintf("%d requests, %d connections", c.proxied, c.verified)
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/annex-dev/annex/pkg/aggregated/servingca"
	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/maincluster"
	"github.com/annex-dev/annex/pkg/test/poll"
)

const (
	serverName  = annextest.ServiceName + "." + annextest.Namespace + ".svc"
	apiService  = "v1alpha1.hosting.annex.dev"
	defaultPath = "/apis/hosting.annex.dev/v1alpha1/stores/default"
)

// mainCluster is shared by the tests, which run sequentially because each installs annex.
var mainCluster *maincluster.Cluster

func TestMain(m *testing.M) {
	options := maincluster.Options{Controllers: []string{maincluster.NoControllers}}
	os.Exit(maincluster.RunTests(m, options, func(cluster *maincluster.Cluster) { mainCluster = cluster }))
}

func mainClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	return clients.For(t, mainCluster.Config).Kube
}

func published(t *testing.T) *apiregistrationv1.APIService {
	t.Helper()
	return expect.Get(t, clients.For(t, mainCluster.Config).APIServices, apiService)
}

// load repeats two kinds of requests: gets of an object through the main cluster, whose proxy
// keeps its connections, and new connections to annex, verified as the proxy does.
type load struct {
	cancel   context.CancelFunc
	running  sync.WaitGroup
	mu       sync.Mutex
	proxied  int
	verified int
	issuers  map[string]bool
	failures []string
}

func startLoad(t *testing.T, installation *annextest.Installation) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, issuers: map[string]bool{}}
	t.Cleanup(func() { cancel(); l.running.Wait() })
	main := clients.For(t, mainCluster.Config)
	l.repeat(ctx, func() error {
		l.count(&l.proxied)
		return get(ctx, main.HTTP, mainCluster.URL+defaultPath)
	})
	l.repeat(ctx, func() error {
		found, err := main.APIServices.Get(ctx, apiService, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get the APIService: %w", err)
		}
		l.count(&l.verified)
		issuer, err := handshake(ctx, installation.Balancer.Address(), found.Spec.CABundle)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.issuers[issuer] = true
		return err
	})
	return l
}

func (l *load) repeat(ctx context.Context, request func() error) {
	l.running.Go(func() {
		for ctx.Err() == nil {
			if err := request(); err != nil && ctx.Err() == nil {
				l.mu.Lock()
				l.failures = append(l.failures, time.Now().Format(time.TimeOnly+".000")+" "+err.Error())
				l.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
}

func (l *load) count(of *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*of++
}

// end stops the load, and fails the test if a request failed or if the number of CAs that were
// seen is different.
func (l *load) end(t *testing.T, authorities int) {
	t.Helper()
	l.cancel()
	l.running.Wait()
	for i, failure := range l.failures {
		if i == 10 {
			t.Errorf("and %d more", len(l.failures)-i)
			break
		}
		t.Error(failure)
	}
	delete(l.issuers, "")
	if l.proxied < 50 || l.verified < 50 || len(l.issuers) != authorities {
		t.Errorf("%d requests and %d new connections, with certificates of %v, want %d CAs", l.proxied, l.verified, l.issuers, authorities)
	}
	t.Logf("%d requests through the main cluster and %d new connections, %d failures", l.proxied, l.verified, len(l.failures))
}

func get(ctx context.Context, client *http.Client, url string) error {
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
	return expect.Get(t, mainClient(t).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName))
}

// deleteCA deletes the CA's Secret, which a running replica restores.
func deleteCA(t *testing.T) {
	t.Helper()
	// In a cleanup the test's context is canceled.
	err := mainClient(t).CoreV1().Secrets(annextest.Namespace).Delete(context.WithoutCancel(t.Context()), servingca.SecretName(annextest.ServiceName), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

func annotate(t *testing.T, annotation, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, value)
	expect.Patch(t, mainClient(t).CoreV1().Secrets(annextest.Namespace), servingca.SecretName(annextest.ServiceName), patch)
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
	expect.Patch(t, clients.For(t, mainCluster.Config).APIServices, apiService, string(patch))
}

func metrics(t *testing.T, annex *annextest.Annex) string {
	t.Helper()
	raw, err := clients.For(t, annex.AnnexConfig).Kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	return string(raw)
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
func (l *load) enough() (done bool, saw string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.proxied >= 100 && l.verified >= 100, fmt.Sprintf("%d requests, %d connections", l.proxied, l.verified)
}

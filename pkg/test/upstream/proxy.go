// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsscheme "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// definitionsPath is the URL path of CRDs.
const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// proxy forwards requests to the main cluster as its administrator. It delays the
// response to the creation of a CRD until annex hosts it: the tests create objects at once,
// and annex does not take over a group of which the main cluster has objects.
type proxy struct {
	annexHosting annexclient.Interface
	server       *httptest.Server
	token        string

	mu       sync.Mutex
	created  int
	unhosted []string
}

func startProxy(mainConfig *restclient.Config) (*proxy, error) {
	annexHosting, err := annexclient.NewForConfig(mainConfig)
	if err != nil {
		return nil, err
	}
	transport, err := restclient.TransportFor(mainConfig)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(mainConfig.Host)
	if err != nil {
		return nil, err
	}
	p := &proxy{annexHosting: annexHosting, token: rand.Text()}
	reverse := &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        func(req *httputil.ProxyRequest) { req.SetURL(target) },
		FlushInterval:  -1, // watches
		ModifyResponse: p.holdBack,
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if subtle.ConstantTimeCompare([]byte(req.Header.Get("Authorization")), []byte("Bearer "+p.token)) == 0 {
			http.Error(w, "the token is missing", http.StatusUnauthorized)
			return
		}
		req.Header.Del("Authorization")
		reverse.ServeHTTP(w, req)
	}))
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	return p, nil
}

func (p *proxy) writeKubeconfig(dir string) (string, error) {
	const name = "proxy"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   p.server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: p.token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(dir, "proxy.kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

// holdBack waits until annex hosts the CRD that the response reports as created.
func (p *proxy) holdBack(response *http.Response) error {
	req := response.Request
	if req.Method != http.MethodPost || req.URL.Path != definitionsPath || req.URL.Query().Has("dryRun") || response.StatusCode != http.StatusCreated {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if _, _, err := extensionsscheme.Codecs.UniversalDeserializer().Decode(body, nil, &definition); err != nil {
		return fmt.Errorf("decode a created CRD: %w", err)
	}
	err = p.waitHosted(req.Context(), definition.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.created++
	if err != nil {
		p.unhosted = append(p.unhosted, fmt.Sprintf("%s: %v", definition.Name, err))
	}
	return nil
}

// hostedWithin bounds the wait for annex to host a CRD.
const hostedWithin = 20 * time.Second

// waitHosted waits until the main cluster sends requests for the resource to annex.
func (p *proxy) waitHosted(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, hostedWithin)
	defer cancel()
	var last string
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = p.missing(ctx, name)
		return last == "", nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, last)
	}
	return nil
}

// missing describes the conditions that are not true yet.
func (p *proxy) missing(ctx context.Context, name string) string {
	hosted, err := p.annexHosting.HostingV1alpha1().HostedResources().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	var missing []string
	for _, condition := range []string{hostingv1alpha1.HostedResourceDefinitionSynced, hostingv1alpha1.HostedResourcePublished} {
		if !meta.IsStatusConditionTrue(hosted.Status.Conditions, condition) {
			missing = append(missing, fmt.Sprintf("%s: %+v", condition, meta.FindStatusCondition(hosted.Status.Conditions, condition)))
		}
	}
	return strings.Join(missing, ", ")
}

// outcome reports whether annex hosted every CRD: otherwise the results are meaningless.
func (p *proxy) outcome() outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	result := outcome{test: fmt.Sprintf("annex hosts each of the %d CRDs that the tests create", p.created), state: passed}
	if p.created == 0 || len(p.unhosted) > 0 {
		result.state, result.reason = failed, "not hosted within "+hostedWithin.String()+":\n"+strings.Join(p.unhosted, "\n")
	}
	return result
}

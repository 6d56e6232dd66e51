// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clients has the clients of an API server that tests need, and sends single HTTP
// requests.
package clients

import (
	"errors"
	"net/http"
	"testing"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsv1client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	apiregistrationv1client "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"

	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	hostingv1alpha1client "github.com/annex-dev/annex/pkg/generated/clientset/versioned/typed/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/test/expect"
)

// Clients are clients with one login.
type Clients struct {
	// Config is the configuration of all clients.
	Config *restclient.Config
	// HTTP is the HTTP client of all others, so they share a connection, which no other Clients use.
	HTTP *http.Client
	// Kube is for the kinds of Kubernetes.
	Kube kubernetes.Interface
	// Dynamic is for all kinds.
	Dynamic dynamic.Interface
	// Metadata is for the metadata of all kinds.
	Metadata metadata.Interface
	// Extensions is for CRDs.
	Extensions apiextensionsclient.Interface
	// APIServices is for APIServices.
	APIServices apiregistrationv1client.APIServiceInterface
	// Hosting is for annex's kinds.
	Hosting hostingclient.Interface
}

// New returns clients with a login.
func New(config *restclient.Config) (*Clients, error) {
	httpClient, err := restclient.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Clients{Config: config, HTTP: httpClient}
	var errs [6]error
	c.Kube, errs[0] = kubernetes.NewForConfigAndClient(config, httpClient)
	c.Dynamic, errs[1] = dynamic.NewForConfigAndClient(config, httpClient)
	c.Metadata, errs[2] = metadata.NewForConfigAndClient(metadata.ConfigFor(config), httpClient)
	c.Extensions, errs[3] = apiextensionsclient.NewForConfigAndClient(config, httpClient)
	apiregistration, err := apiregistrationv1client.NewForConfigAndClient(config, httpClient)
	errs[4], c.APIServices = err, apiregistration.APIServices()
	c.Hosting, errs[5] = hostingclient.NewForConfigAndClient(config, httpClient)
	return c, errors.Join(errs[:]...)
}

// For is New, and ends the test on an error.
func For(t testing.TB, config *restclient.Config) *Clients {
	t.Helper()
	c, err := New(config)
	expect.NoError(t, err)
	return c
}

// CRDs is for CRDs.
func (c *Clients) CRDs() apiextensionsv1client.CustomResourceDefinitionInterface {
	return c.Extensions.ApiextensionsV1().CustomResourceDefinitions()
}

// Stores is for Stores.
func (c *Clients) Stores() hostingv1alpha1client.StoreInterface {
	return c.Hosting.HostingV1alpha1().Stores()
}

// HostedResources is for HostedResources.
func (c *Clients) HostedResources() hostingv1alpha1client.HostedResourceInterface {
	return c.Hosting.HostingV1alpha1().HostedResources()
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package maincluster connects to the main cluster: it holds clients of it, and
// delegates authentication and authorization to it.
package maincluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// informerResync is how often informers deliver all objects again, as in
	// kube-apiserver.
	informerResync = 10 * time.Minute

	// clientQPS and clientBurst limit the requests of annex's informers and controllers
	// to the main cluster. Reviews have limits of their own.
	clientQPS, clientBurst = 50, 100

	// firstContactTimeout bounds one attempt to reach the main cluster at start.
	firstContactTimeout = 10 * time.Second
)

// The ConfigMap that tells aggregated servers which certificates and headers to trust.
const (
	AuthenticationNamespace = metav1.NamespaceSystem
	AuthenticationConfigMap = "extension-apiserver-authentication"
	requestHeaderCAKey      = "requestheader-client-ca-file"
	clientCAKey             = "client-ca-file"
)

// Location is how the main cluster is reached.
type Location struct {
	// Kubeconfig is the path of a kubeconfig; empty means the service account of
	// annex's pod.
	Kubeconfig string
}

// Config loads the client configuration of the location.
func (l Location) Config() (*restclient.Config, error) {
	if l.Kubeconfig == "" {
		config, err := restclient.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--main-in-cluster: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--main-kubeconfig %s: %w", l.Kubeconfig, err)
	}
	return config, nil
}

// Cluster holds clients of the main cluster.
type Cluster struct {
	Location Location
	// Config has no rate limit; clients that are created from it set their own.
	Config *restclient.Config

	Kube            kubernetes.Interface
	Dynamic         dynamic.Interface
	APIExtensions   apiextensionsclient.Interface
	APIRegistration aggregatorclient.Interface

	// Informers are those of the server: admission plugins, flow control, Services.
	Informers informers.SharedInformerFactory
}

// Open creates the clients. It sends no request.
func Open(location Location) (*Cluster, error) {
	config, err := location.Config()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "annex"
	limited := restclient.CopyConfig(config)
	limited.QPS, limited.Burst = clientQPS, clientBurst
	config.QPS = -1
	c := &Cluster{Location: location, Config: config}
	var errs [4]error
	c.Kube, errs[0] = kubernetes.NewForConfig(limited)
	c.Dynamic, errs[1] = dynamic.NewForConfig(limited)
	c.APIExtensions, errs[2] = apiextensionsclient.NewForConfig(limited)
	c.APIRegistration, errs[3] = aggregatorclient.NewForConfig(limited)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("create clients of the main cluster: %w", err)
	}
	c.Informers = informers.NewSharedInformerFactory(c.Kube, informerResync)
	ignoreFrozen(c.Informers)
	return c, nil
}

// ignoreFrozen makes informers leave out the policies that freeze the main cluster's copy of a group:
// annex applies the main cluster's policies to its own objects, and these are not for them.
func ignoreFrozen(factory informers.SharedInformerFactory) {
	others := func(options *metav1.ListOptions) { options.LabelSelector = "!" + hostingv1alpha1.FrozenGroupLabel }
	factory.InformerFor(&admissionregistrationv1.ValidatingAdmissionPolicy{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return admissioninformers.NewFilteredValidatingAdmissionPolicyInformer(client, resync, cache.Indexers{}, others)
	})
	factory.InformerFor(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return admissioninformers.NewFilteredValidatingAdmissionPolicyBindingInformer(client, resync, cache.Indexers{}, others)
	})
}

// Wait returns once the main cluster responds and annex can read the trusted
// certificates, or when ctx is done. Meanwhile it logs the reason.
func (c *Cluster) Wait(ctx context.Context) error {
	return retry(ctx, c.Config.Host, c.firstContact)
}

// firstContact checks that the main cluster responds, that annex may read the
// ConfigMap, and that the cluster proxies to aggregated servers at all.
func (c *Cluster) firstContact(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, firstContactTimeout)
	defer cancel()
	trust, err := c.Kube.CoreV1().ConfigMaps(AuthenticationNamespace).Get(ctx, AuthenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", AuthenticationNamespace, AuthenticationConfigMap, explain(err))
	}
	if trust.Data[requestHeaderCAKey] == "" {
		return fmt.Errorf("ConfigMap %s/%s has no %s: kube-apiserver does not run with --requestheader-client-ca-file, so it cannot proxy to aggregated servers",
			AuthenticationNamespace, AuthenticationConfigMap, requestHeaderCAKey)
	}
	return nil
}

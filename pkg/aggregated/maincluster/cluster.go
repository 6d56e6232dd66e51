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

	"go.opentelemetry.io/otel/trace"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

const (
	// informerResync is the time after which informers deliver all objects again, as in
	// kube-apiserver.
	informerResync = 10 * time.Minute

	// clientQPS and clientBurst limit the requests of annex's informers and controllers
	// to the main cluster. Reviews have limits of their own.
	clientQPS, clientBurst = 50, 100

	// firstContactTimeout bounds one attempt to reach the main cluster at start.
	firstContactTimeout = 10 * time.Second
)

// The ConfigMap with the certificates and headers that aggregated servers trust.
const (
	AuthenticationNamespace = metav1.NamespaceSystem
	AuthenticationConfigMap = "extension-apiserver-authentication"
	requestHeaderCAKey      = "requestheader-client-ca-file"
	clientCAKey             = "client-ca-file"
)

// loadConfig loads a kubeconfig. Without one it returns the login of the service account of annex's pod.
func loadConfig(kubeconfig string) (*restclient.Config, error) {
	if kubeconfig == "" {
		config, err := restclient.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--main-in-cluster: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--main-kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// Cluster holds clients of the main cluster.
type Cluster struct {
	// Config has no rate limit; clients that are created from it set their own.
	Config *restclient.Config

	Kube            kubernetes.Interface
	Dynamic         dynamic.Interface
	APIExtensions   apiextensionsclient.Interface
	APIRegistration aggregatorclient.Interface

	// Informers are for the server: admission plugins, flow control, Services.
	Informers informers.SharedInformerFactory
}

// Open creates the clients, from a kubeconfig or, without one, in annex's pod. It sends no request.
func Open(kubeconfig string) (*Cluster, error) {
	config, err := loadConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "annex"
	limited := restclient.CopyConfig(config)
	limited.QPS, limited.Burst = clientQPS, clientBurst
	config.QPS = -1
	c := &Cluster{Config: config}
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

// ServiceResolver resolves the Services of webhooks to their cluster IP or external
// name, as kube-apiserver does.
func (c *Cluster) ServiceResolver() webhook.ServiceResolver {
	return aggregatorapiserver.NewClusterIPServiceResolver(c.Informers.Core().V1().Services().Lister())
}

// WebhookCredentials authenticate annex to webhooks: one at kubernetes.default.svc is
// the main cluster itself.
func (c *Cluster) WebhookCredentials(traces trace.TracerProvider) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.Config, traces)
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login finds the server of client commands and logs in, as kubectl does.
package login

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
	"github.com/annex-dev/annex/pkg/version"
)

// Options select the server.
type Options struct{ kubeconfig, context string }

// AddFlags adds the flags of the options. Server completes "The kubeconfig of".
func (o *Options) AddFlags(fs *pflag.FlagSet, server string) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig,
		"The kubeconfig of "+server+". If not set, $KUBECONFIG or ~/.kube/config, as kubectl does; in a pod, its service account.")
	fs.StringVar(&o.context, "context", o.context, "The context of the kubeconfig to use.")
}

// AnnexOrMain describes the server of commands that also reach annex through its main
// cluster.
const AnnexOrMain = "annex, or of its main cluster"

// Given reports whether a flag selects the server.
func (o *Options) Given() bool { return o.kubeconfig != "" || o.context != "" }

// Config returns the configuration of a client without rate limit: the server has one.
func (o *Options) Config(userAgent string) (*restclient.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: load the login: %w", err)
	}
	config.QPS = -1
	config.UserAgent = userAgent
	return config, nil
}

// MainConfig is Config for commands that need a main cluster. They would take annex itself for an
// empty one, so it is an error. If the server does not answer, the command reports that.
func (o *Options) MainConfig(ctx context.Context, userAgent string) (*restclient.Config, error) {
	config, err := o.Config(userAgent)
	if err != nil {
		return nil, err
	}
	var found apimachineryversion.Info
	if answer, err := get(ctx, config, "/version"); err == nil && json.Unmarshal(answer, &found) == nil && version.IsAnnex(found.GitVersion) {
		return nil, fmt.Errorf("%s is annex itself, and this command needs the main cluster of an annex: "+
			"name that with --kubeconfig or $KUBECONFIG; a standalone annex has none", config.Host)
	}
	return config, nil
}

// AnnexConfig is Config for commands that need annex's own kinds, from annex or through its main
// cluster.
func (o *Options) AnnexConfig(ctx context.Context, userAgent string) (*restclient.Config, error) {
	config, err := o.Config(userAgent)
	if err != nil {
		return nil, err
	}
	if _, err := get(ctx, config, "/apis/"+hostingv1alpha1.SchemeGroupVersion.String()); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s does not serve %s: it is neither annex nor a main cluster that annex is installed in",
			config.Host, hostingv1alpha1.SchemeGroupVersion)
	}
	return config, nil
}

// modeTimeout bounds a request that finds out what the server is.
const modeTimeout = 10 * time.Second

func get(ctx context.Context, config *restclient.Config, path string) ([]byte, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: create the client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, modeTimeout)
	defer cancel()
	return client.RESTClient().Get().AbsPath(path).Do(ctx).Raw()
}

// NewAnnexClient returns a client of annex's own kinds.
func NewAnnexClient(config *restclient.Config) (annexclient.Interface, error) {
	clients, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: create the client: %w", err)
	}
	return clients, nil
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package login finds the server of client commands and logs in, as kubectl does.
package login

import (
	"fmt"

	"github.com/spf13/pflag"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
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

// NewAnnexClient returns a client of annex's own kinds.
func NewAnnexClient(config *restclient.Config) (annexclient.Interface, error) {
	clients, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: create the client: %w", err)
	}
	return clients, nil
}

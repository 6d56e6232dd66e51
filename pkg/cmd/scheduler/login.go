// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/runtime"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// login says which annex is meant, as kubectl does.
type login struct{ kubeconfig, context string }

func (l *login) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&l.kubeconfig, "kubeconfig", l.kubeconfig,
		"The kubeconfig of annex, or of the cluster it stands behind. If not set, $KUBECONFIG or ~/.kube/config, as kubectl does; in a pod, its service account.")
	fs.StringVar(&l.context, "context", l.context, "The context of the kubeconfig to use.")
}

// config is how to reach annex, without a limit on requests: annex has one.
func (l *login) config(userAgent string) (*restclient.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = l.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: l.context})
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: load the login: %w", err)
	}
	config.QPS = -1
	config.UserAgent = userAgent
	return config, nil
}

// hosting makes a client of annex's own kinds, which have no protobuf encoding.
func hosting(config *restclient.Config) (annexclient.Interface, error) {
	config = restclient.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	clients, err := annexclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: make a client: %w", err)
	}
	return clients, nil
}

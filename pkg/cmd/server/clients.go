// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"

	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// clients are clients of this server.
type clients struct {
	loopback   *restclient.Config
	kube       kubernetes.Interface
	extensions apiextensionsclient.Interface
	hosting    annexclient.Interface
	dynamic    dynamic.Interface
	metadata   metadata.Interface
	// kinds is the cluster that serves the Kubernetes kinds.
	kinds *kubernetesCluster
}

func newClients(loopback *restclient.Config) (*clients, error) {
	c := &clients{loopback: loopback}
	var errs [5]error
	c.kube, errs[0] = kubernetes.NewForConfig(loopback)
	c.extensions, errs[1] = apiextensionsclient.NewForConfig(loopback)
	c.hosting, errs[2] = annexclient.NewForConfig(loopback)
	c.dynamic, errs[3] = dynamic.NewForConfig(loopback)
	c.metadata, errs[4] = metadata.NewForConfig(loopback)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("create clients of this server: %w", err)
	}
	return c, nil
}

// rest sends requests for paths.
func (c *clients) rest() restclient.Interface { return c.kube.Discovery().RESTClient() }

// kubernetesCluster is the cluster that serves the Kubernetes kinds, annex itself or
// the main one. Admission, authorization and flow control read them through it; the
// chain starts the informers.
type kubernetesCluster struct {
	kube      kubernetes.Interface
	dynamic   dynamic.Interface
	informers informers.SharedInformerFactory
}

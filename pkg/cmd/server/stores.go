// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/aggregated/maincluster"
	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/stores"
)

// secretReader reads the certificates for Stores where Secrets are: in the main
// cluster if there is one, else in annex. They are read one at a time, when they are
// needed, so that annex need not see any others there.
func secretReader(loopback *restclient.Config, main *maincluster.Cluster) (stores.ReadSecret, error) {
	var kube kubernetes.Interface
	if main != nil {
		kube = main.Kube
	} else {
		var err error
		if kube, err = kubernetes.NewForConfig(loopback); err != nil {
			return nil, fmt.Errorf("make a client of Secrets: %w", err)
		}
	}
	return func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
		return kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}, nil
}

// followStores asks for the informer of Stores, and returns what connects to those
// until its context is done.
func (s *storage) followStores(informers annexinformers.SharedInformerFactory) func(context.Context) {
	informer := informers.Hosting().V1alpha1().Stores().Informer()
	return func(ctx context.Context) {
		if err := s.Stores.Run(ctx, informer); err != nil {
			klog.FromContext(ctx).Error(err, "Stores are not followed")
		}
	}
}

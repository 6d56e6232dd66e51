// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	annexinformers "github.com/annex-dev/annex/pkg/generated/informers/externalversions"
	"github.com/annex-dev/annex/pkg/storage/etcd/stores"
)

// secretReader reads the certificates of Stores from Secrets of the cluster that serves
// the Kubernetes kinds. It reads one at a time, so that annex needs no permission to
// list Secrets there.
func secretReader(kube kubernetes.Interface) stores.ReadSecret {
	return func(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
		return kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
}

// watchStores requests the informer of Stores, and returns a function that connects to
// those until its context is done.
func (s *storage) watchStores(informers annexinformers.SharedInformerFactory) func(context.Context) {
	informer := informers.Hosting().V1alpha1().Stores().Informer()
	return func(ctx context.Context) {
		if err := s.Stores.Run(ctx, informer); err != nil {
			klog.FromContext(ctx).Error(err, "Stores are not watched")
		}
	}
}

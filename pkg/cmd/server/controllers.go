// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/controller/bootstrap"
	hostingclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// startControllers adds the hooks that make the system's objects and run the
// controllers once the chain serves. Controllers run in running.
func startControllers(chain *apiserver.Chain, loopback *restclient.Config, store *storage, running *sync.WaitGroup) error {
	annexClient, err := kubernetes.NewForConfig(loopback)
	if err != nil {
		return fmt.Errorf("make a client for controllers: %w", err)
	}
	jsonLoopback := restclient.CopyConfig(loopback)
	jsonLoopback.ContentType = runtime.ContentTypeJSON // annex's own kinds have no protobuf
	annexHosting, err := hostingclient.NewForConfig(jsonLoopback)
	if err != nil {
		return fmt.Errorf("make a client for annex's own kinds: %w", err)
	}
	// Readiness waits for this hook: who sees a ready annex finds the namespaces.
	return chain.AddPostStartHook("annex-bootstrap", func(hook genericapiserver.PostStartHookContext) error {
		err := bootstrap.Run(hook, bootstrap.Config{
			AnnexNamespaces: annexClient.CoreV1().Namespaces(),
			AnnexStores:     annexHosting.HostingV1alpha1().Stores(),
			DefaultStore:    store.Spec(),
		})
		if err != nil {
			// The hook's context is done: an error would end the process instead
			// of letting it drain.
			klog.FromContext(hook).V(1).Info("Stopped before the system's objects were made", "err", err)
		}
		return nil
	})
}

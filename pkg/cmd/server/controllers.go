// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"sync"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller"
	annexclient "github.com/annex-dev/annex/pkg/generated/clientset/versioned"
)

// addControllers adds the hooks that make the system's objects and run the
// controllers once the chain serves. Controllers run in running.
func (s *server) addControllers(running *sync.WaitGroup) error {
	config, err := s.controllerConfig()
	if err != nil {
		return err
	}
	// Readiness waits for this hook: who sees a ready annex finds the namespaces.
	err = s.chain.AddPostStartHook("annex-bootstrap", func(hook genericapiserver.PostStartHookContext) error {
		if err := controller.Bootstrap(hook, config); err != nil {
			// The hook's context is done: an error would end the process instead
			// of letting it drain.
			klog.FromContext(hook).V(1).Info("Stopped before the system's objects were made", "err", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.chain.AddPostStartHook("annex-controllers", func(hook genericapiserver.PostStartHookContext) error {
		controllers, err := controller.New(config)
		if err != nil {
			return err
		}
		running.Go(func() { controllers.Run(hook) })
		return nil
	})
}

// controllerConfig makes the clients that controllers use: of annex itself,
// with the rights of the loopback, and of the main cluster.
func (s *server) controllerConfig() (controller.Config, error) {
	config := controller.Config{
		AnnexDefinitionInformer: s.chain.Extensions.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		Usage:                   s.store.Usage,
		AnnexEtcd:               s.store.client,
		EtcdEndpoints:           s.store.Endpoints(),
		DefaultStore:            s.store.Spec(),
	}
	// The server starts the informers that somebody asked for by then.
	config.AnnexDefinitionInformer.Informer()
	if s.main != nil {
		config.Main = s.mainConfig()
	} else {
		config.AnnexNamespaceInformer = s.config.Extra.Informers.Core().V1().Namespaces()
		config.AnnexNamespaceInformer.Informer()
	}
	loopback := s.config.Generic.LoopbackClientConfig
	// annex's own kinds have no protobuf encoding.
	jsonLoopback := restclient.CopyConfig(loopback)
	jsonLoopback.ContentType = runtime.ContentTypeJSON
	var err error
	if config.AnnexKube, err = kubernetes.NewForConfig(loopback); err != nil {
		return config, fmt.Errorf("make a client of the Kubernetes kinds: %w", err)
	}
	if config.AnnexAPIExtensions, err = apiextensionsclient.NewForConfig(loopback); err != nil {
		return config, fmt.Errorf("make a client of CRDs: %w", err)
	}
	if config.AnnexMetadata, err = metadata.NewForConfig(loopback); err != nil {
		return config, fmt.Errorf("make a client of metadata: %w", err)
	}
	if config.AnnexHosting, err = annexclient.NewForConfig(jsonLoopback); err != nil {
		return config, fmt.Errorf("make a client of annex's own kinds: %w", err)
	}
	return config, nil
}

// mainConfig is what controllers know of the cluster that annex stands behind.
func (s *server) mainConfig() *controller.MainCluster {
	return &controller.MainCluster{
		Kube:            s.main.Kube,
		Dynamic:         s.main.Dynamic,
		APIExtensions:   s.main.APIExtensions,
		APIRegistration: s.main.APIRegistration,
		PublishService:  controller.Service(s.options.Main.PublishService),
		CABundle:        s.identity,
	}
}

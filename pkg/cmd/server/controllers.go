// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/leader"
)

// standaloneLease is the Lease that the replica with the controllers holds where
// annex stands alone.
const standaloneLease = "annex-controllers"

// stopControllersTimeout bounds how long a stop waits for the controllers to end
// their work and to give up the lease, which takes milliseconds.
const stopControllersTimeout = 5 * time.Second

// addControllers adds the hooks that make the system's objects and run the
// controllers while this replica leads. Controllers run in running, until
// stopControllers is called.
func (s *server) addControllers(running *sync.WaitGroup) error {
	config, err := s.controllerConfig()
	if err != nil {
		return err
	}
	bootstrapped := make(chan struct{})
	// Readiness waits for this hook: who sees a ready annex finds the objects.
	err = s.chain.AddPostStartHook("annex-bootstrap", func(hook genericapiserver.PostStartHookContext) error {
		if err := controller.Bootstrap(hook, config); err != nil {
			// The hook's context is done: an error would end the process instead
			// of letting it drain.
			klog.FromContext(hook).V(1).Info("Stopped before the system's objects were made", "err", err)
			return nil
		}
		close(bootstrapped)
		return nil
	})
	if err != nil {
		return err
	}
	stopping, stopped := make(chan struct{}), make(chan struct{})
	s.stopControllers = func() {
		close(stopping)
		select {
		case <-stopped:
		case <-time.After(stopControllersTimeout):
			klog.Background().Info("The controllers did not stop in time, draining all the same", "timeout", stopControllersTimeout)
		}
	}
	return s.chain.AddPostStartHook("annex-controllers", func(hook genericapiserver.PostStartHookContext) error {
		running.Go(func() {
			defer close(stopped)
			ctx, cancel := context.WithCancel(hook)
			defer cancel()
			defer context.AfterFunc(wait.ContextForChannel(stopping), cancel)()
			select {
			case <-ctx.Done():
			case <-bootstrapped: // the lease may be in a namespace that this made
				s.runControllers(ctx, config)
			}
		})
		return nil
	})
}

// runControllers runs them until ctx is done: at once where there cannot be
// another replica, else in the terms that this one leads for.
func (s *server) runControllers(ctx context.Context, config controller.Config) {
	lead := func(ctx context.Context) {
		controllers, err := controller.New(config)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The controllers do not run")
			return
		}
		controllers.Run(ctx)
	}
	election := leader.Config{Identity: leader.NewIdentity(), Timing: s.options.Leader.Timing}
	switch {
	case config.Main != nil:
		election.Leases = config.Main.Kube.CoordinationV1()
		election.Namespace, election.Name = config.Main.PublishService.Namespace, s.options.Main.PublishService.Lease()
	case s.store.Shared():
		election.Leases = config.AnnexKube.CoordinationV1()
		election.Namespace, election.Name = hosting.NamespaceAnnexSystem, standaloneLease
	default:
		lead(ctx)
		return
	}
	if err := leader.Run(ctx, election, lead); err != nil {
		klog.FromContext(ctx).Error(err, "The controllers do not run")
	}
}

// controllerConfig makes the clients that controllers use: of annex itself, with
// the rights of the loopback, and those of the main cluster, with annex's there.
func (s *server) controllerConfig() (controller.Config, error) {
	hosting := s.config.Extra.HostingInformers.Hosting().V1alpha1()
	config := controller.Config{
		AnnexHosting:                s.config.Extra.AnnexHosting,
		AnnexHostedResourceInformer: hosting.HostedResources(),
		AnnexStoreInformer:          hosting.Stores(),
		AnnexDefinitionInformer:     s.chain.Extensions.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		CollectGarbage:              s.options.Etcd.EnableGarbageCollection,
		Usage:                       s.store.Usage,
		Stores:                      s.store.Stores,
		Unreadable:                  s.config.Extra.StorageLayers.Unreadable,
		DefaultStore:                s.store.Spec(),
	}
	if s.main != nil {
		config.Main = s.mainConfig()
	} else {
		config.AnnexInformers = s.config.Extra.Informers
		config.AnnexNamespaceInformer = config.AnnexInformers.Core().V1().Namespaces()
		if s.identity.root != nil {
			config.RootCA = s.identity.root
		}
	}
	config.RequestInformers()
	loopback := s.config.Generic.LoopbackClientConfig
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
	return config, nil
}

// mainConfig is what controllers know of the cluster that annex stands behind.
func (s *server) mainConfig() *controller.MainCluster {
	return &controller.MainCluster{
		Kube:            s.main.Kube,
		Dynamic:         s.main.Dynamic,
		APIExtensions:   s.main.APIExtensions,
		APIRegistration: s.main.APIRegistration,
		AnsweredBy: func(ctx context.Context, version schema.GroupVersion) (string, error) {
			return s.main.AnsweredBy(ctx, version, hostingv1alpha1.PublishedByHeader)
		},
		PublishService: controller.Service(s.options.Main.PublishService),
		CABundle:       s.identity,
	}
}

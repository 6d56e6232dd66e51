// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/controller"
	"github.com/annex-dev/annex/pkg/leader"
	"github.com/annex-dev/annex/pkg/storage/archive"
	"github.com/annex-dev/annex/pkg/version"
)

// stopControllersTimeout bounds how long a shutdown waits for the controllers to stop
// and to release the Lease, which takes milliseconds.
const stopControllersTimeout = 5 * time.Second

// addControllers adds the hooks that create the system's objects and run the controllers
// while this replica leads. They run in running until stopControllers is called.
func (s *server) addControllers(running *sync.WaitGroup) error {
	config, err := s.controllerConfig()
	if err != nil {
		return err
	}
	bootstrapped := make(chan struct{})
	// /readyz waits for this hook, so a ready server has these objects.
	err = s.chain.AddPostStartHook("annex-bootstrap", func(hook genericapiserver.PostStartHookContext) error {
		if err := controller.Bootstrap(hook, config); err != nil {
			// The hook's context is done. An error would end the process instead of
			// letting it drain.
			klog.FromContext(hook).V(1).Info("Stopped before the system's objects were created", "err", err)
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
			klog.Background().Info("The controllers did not stop in time, draining without waiting for them", "timeout", stopControllersTimeout)
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
			case <-bootstrapped: // the Lease may be in a namespace that this creates
				s.runControllers(ctx, config)
			}
		})
		return nil
	})
}

// runControllers runs them until ctx is done: while this replica leads, or all the time
// if there cannot be another.
func (s *server) runControllers(ctx context.Context, config controller.Config) {
	lead := func(ctx context.Context) {
		controllers, err := controller.New(config)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The controllers do not run")
			return
		}
		controllers.Run(ctx)
	}
	election, replicas := s.mode.election(s.options, config, s.store)
	if !replicas {
		lead(ctx)
		return
	}
	election.Identity, election.Timing = leader.NewIdentity(), s.options.Leader.Timing
	election.Labels = map[string]string{version.Label: version.Annex()}
	election.OnOther = s.static.settle
	if err := leader.Run(ctx, election, lead); err != nil {
		klog.FromContext(ctx).Error(err, "The controllers do not run")
	}
}

func (s *server) controllerConfig() (controller.Config, error) {
	hosting := s.config.Extra.HostingInformers.Hosting().V1alpha1()
	config := controller.Config{
		AnnexLogin:                    s.clients.loopback,
		AnnexKube:                     s.clients.kube,
		AnnexAPIExtensions:            s.clients.extensions,
		AnnexHosting:                  s.clients.hosting,
		AnnexMetadata:                 s.clients.metadata,
		AnnexDynamic:                  s.clients.dynamic,
		AnnexHostedResourceInformer:   hosting.HostedResources(),
		AnnexStoreInformer:            hosting.Stores(),
		AnnexMigrationInformer:        hosting.Migrations(),
		AnnexInjectionProfileInformer: hosting.InjectionProfiles(),
		AnnexStaticSourceInformer:     hosting.StaticSources(),
		AnnexDefinitionInformer:       s.chain.Definitions.Outlines(),
		AnnexWholeDefinitions:         s.chain.Definitions.Whole(nil),
		Mode:                          s.mode.controllers(s.options, s.config, s.chain),
		Usage:                         s.store.Usage,
		Stores:                        s.store.Stores,
		NewMover:                      s.chain.NewMover,
		NewImporter:                   s.chain.NewImporter,
		NewExporter:                   s.chain.NewExporter,
		Unreadable:                    s.config.Extra.StorageLayers.Unreadable,
		Caches:                        s.config.Extra.StorageLayers.Caches,
		StaticSources:                 s.static.sources,
		StaticSettled:                 s.static.settle,
		DefaultStore:                  s.store.Spec(),
	}
	config.RequestInformers()
	if dir := s.options.Data.ArchiveDir; dir != "" {
		kept, err := archive.New(dir)
		if err != nil {
			return config, fmt.Errorf("--archive-dir: %w", err)
		}
		config.Archive = kept
	}
	return config, nil
}

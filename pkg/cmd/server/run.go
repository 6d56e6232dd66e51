// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/apiserver"
	"github.com/annex-dev/annex/pkg/cmd/server/options"
	"github.com/annex-dev/annex/pkg/datadir"
)

// readyPollInterval is short, because a start takes about a second.
const readyPollInterval = 10 * time.Millisecond

// startGracePeriod bounds the wait of a shutdown for a start in progress.
const startGracePeriod = 10 * time.Second

// minServingPeriod is the shortest time that annex serves after it became ready. Some of
// upstream's controllers check only every 100 ms whether their caches have synced,
// readiness does not wait for them, and they log an error if shutdown comes before.
const minServingPeriod = 300 * time.Millisecond

// Ready describes a server that has become ready.
type Ready struct {
	// URL is the address of the server.
	URL string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
}

// Run serves until ctx is done, drains, and stops the embedded etcd last. It calls
// onReady once, when the server is ready. Errors name the flag or file that has to
// change.
func Run(ctx context.Context, o options.CompletedOptions, onReady func(Ready)) (err error) {
	dir, err := datadir.Open(o.Data.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	// Before annex listens: connections to a port that is not served yet would hang
	// while the main cluster is unavailable.
	mode, err := newMode(ctx, o)
	if err != nil {
		return ignoreShutdown(ctx, err)
	}
	if err := o.Serving.Listen(ctx); err != nil {
		return err
	}
	// The HTTP server closes a listener that it took over; closing it twice is
	// harmless.
	defer o.Serving.Close()

	// Errors in files and flags are found before storage is touched.
	identity, err := ensureIdentity(ctx, o, dir, mode)
	if err != nil {
		return ignoreShutdown(ctx, err)
	}
	config, clients, err := newConfig(ctx, o, mode, identity)
	if err != nil {
		return ignoreShutdown(ctx, err)
	}
	static, err := newStatic(o.Static)
	if err != nil {
		return err
	}
	config.Extra.Runnables = append(config.Extra.Runnables, static.sources.Run)
	// Storage outlives everything that writes to it.
	store, err := startStorage(context.WithoutCancel(ctx), o.Etcd, dir, config.Generic.TracerProvider, secretReader(clients.kinds.kube))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	config.Extra.Etcd = o.Etcd.Served(store.endpoints)
	config.Extra.EtcdShared = store.Shared()
	config.Extra.Store = store.Store
	config.Extra.Runnables = append(config.Extra.Runnables, store.watchStores(config.Extra.HostingInformers))

	completed, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := completed.NewChain()
	if err != nil {
		return err
	}
	if err := identity.WriteKubeconfig(dir.AdminKubeconfig(), o.Serving.URL()); err != nil {
		return err
	}
	server := &server{options: o, config: config, mode: mode, clients: clients, chain: chain, store: store, identity: identity, static: static}
	return server.run(ctx, func() {
		onReady(Ready{URL: o.Serving.URL(), Kubeconfig: dir.AdminKubeconfig()})
	})
}

// ignoreShutdown returns nil for the error of a wait that a shutdown ended.
func ignoreShutdown(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return nil
	}
	return err
}

// server is the chain and everything that runs beside it.
type server struct {
	options  options.CompletedOptions
	config   *apiserver.Config
	mode     mode
	clients  *clients
	chain    *apiserver.Chain
	store    *storage
	identity *identity
	static   *static

	// stopControllers is set by addControllers, and called once.
	stopControllers func()
}

// run returns when everything has stopped: because ctx is done, or because the
// embedded etcd failed.
func (s *server) run(ctx context.Context, onReady func()) error {
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	defer running.Wait()
	defer stop(nil)
	// Requests during the drain are authenticated and authorized like all others.
	deciding, stopDeciding := context.WithCancel(context.WithoutCancel(ctx))
	defer stopDeciding()

	if err := s.addControllers(&running); err != nil {
		return err
	}
	if err := s.addDrain(serving); err != nil {
		return err
	}
	if err := s.addWarmUp(); err != nil {
		return err
	}
	if err := s.static.addTo(s.chain); err != nil {
		return err
	}
	settled := make(chan struct{})
	for _, run := range s.config.Extra.Runnables {
		running.Go(func() { run(deciding) })
	}
	running.Go(func() { s.identity.Run(serving) })
	running.Go(func() { s.mode.run(serving) })
	running.Go(func() { s.config.Extra.StorageLayers.Compression.Run(serving) })
	running.Go(func() { s.config.Extra.StorageLayers.Caches.Run(serving) })
	running.Go(func() { s.shutDownWhenDone(ctx, serving, settled, stop) })
	running.Go(func() {
		if waitReady(serving, s.clients.rest()) {
			onReady()
			sleep(serving, minServingPeriod)
			close(settled)
		}
	})
	if err := s.chain.Run(serving); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	if cause := context.Cause(serving); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// shutDownWhenDone stops serving when ctx is done or the embedded etcd fails. A
// shutdown during the start waits for the start: upstream's hooks treat a canceled
// context as an error, and end the process.
func (s *server) shutDownWhenDone(ctx, serving context.Context, settled <-chan struct{}, stop context.CancelCauseFunc) {
	select {
	case <-serving.Done():
		return
	case err := <-s.store.Failed():
		stop(fmt.Errorf("the embedded etcd stopped: %w", err))
		return
	case <-ctx.Done():
	}
	select {
	case <-serving.Done():
	case <-settled:
	case <-time.After(startGracePeriod):
	}
	stop(context.Cause(ctx))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func waitReady(ctx context.Context, annexREST restclient.Interface) bool {
	err := wait.PollUntilContextCancel(ctx, readyPollInterval, true, func(ctx context.Context) (bool, error) {
		return annexREST.Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
	return err == nil
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/annex-dev/annex/pkg/serving"
)

// migrationPeriod is how long clients have to leave: up to a second until they are
// asked at a moment that harms none of their requests, and two for what crosses
// that on its way.
const migrationPeriod = 3 * time.Second

// addDrain has the chain served by a server whose clients can be asked to leave,
// and adds the hook that does so once serving is done. Readiness fails from then
// on; requests are refused only after the hook returned.
func (s *server) addDrain(serving context.Context) error {
	http, err := s.replaceHTTPServer()
	if err != nil {
		return err
	}
	return s.chain.AddPreShutdownHook("annex-drain", func() error {
		var draining sync.WaitGroup
		defer draining.Wait()
		// First: another replica takes over while this one still serves, and a
		// lease that is kept in annex itself can still be written.
		draining.Go(s.stopControllers)
		if errors.Is(context.Cause(serving), context.Canceled) {
			draining.Go(func() { s.migrateClients(http) })
		} // else there is nothing left to serve from
		return nil
	})
}

func (s *server) replaceHTTPServer() (*serving.Server, error) {
	upstream := s.chain.Aggregator.GenericAPIServer
	return serving.Replace(upstream.SecureServingInfo, upstream.Handler, serving.Options{
		MaxAge:          s.options.Draining.MaxConnectionAge,
		Chance:          s.options.Generic.GoawayChance,
		ShutdownTimeout: upstream.ShutdownTimeout,
	})
}

// migrateClients goes on serving until clients use other replicas.
func (s *server) migrateClients(http *serving.Server) {
	delay := s.options.Generic.ShutdownDelayDuration
	if delay <= 0 {
		return
	}
	logger := klog.Background()
	logger.V(1).Info("Going on until nobody opens new connections", "duration", delay)
	time.Sleep(delay)
	logger.V(1).Info("Asking clients to leave", "duration", migrationPeriod)
	ctx, cancel := context.WithTimeout(context.Background(), migrationPeriod)
	defer cancel()
	http.Leave(ctx)
}

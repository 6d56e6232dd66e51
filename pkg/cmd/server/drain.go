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

// addDrain replaces upstream's HTTP server by one that can send clients elsewhere, and
// adds the hook that does so when shutdown begins. /readyz fails from then on; requests
// are rejected only after the hook returned.
func (s *server) addDrain(serving context.Context) error {
	http, err := s.replaceHTTPServer()
	if err != nil {
		return err
	}
	return s.chain.AddPreShutdownHook("annex-drain", func() error {
		var draining sync.WaitGroup
		defer draining.Wait()
		// The controllers stop first: another replica takes over while this one still
		// serves, and a Lease that is stored in annex itself can still be written.
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

// migrateClients serves until clients use other replicas.
func (s *server) migrateClients(http *serving.Server) {
	delay := s.options.Generic.ShutdownDelayDuration
	if delay <= 0 {
		return
	}
	logger := klog.Background()
	logger.V(1).Info("Serving until clients open no new connections", "duration", delay)
	time.Sleep(delay)
	logger.V(1).Info("Moving clients to other replicas", "timeout", serving.MaxLeave)
	ctx, cancel := context.WithTimeout(context.Background(), serving.MaxLeave)
	defer cancel()
	http.Leave(ctx)
}

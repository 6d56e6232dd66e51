// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package injector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

const (
	// maxReview bounds a review: it has the object twice, and objects have at most 16 MiB.
	maxReview = 48 << 20

	readTimeout = 30 * time.Second
	idleTimeout = 90 * time.Second
	// stopTimeout bounds requests after the end.
	stopTimeout = 10 * time.Second
)

func serve(ctx context.Context, listener net.Listener, certificate certificateFunc, handler http.Handler) error {
	server := &http.Server{
		Handler: handler,
		// Probes have no certificate. Handlers verify others'.
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate, ClientAuth: tls.RequestClientCert},
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		stopped <- server.Shutdown(deadline)
	})
	err := server.ServeTLS(listener, "", "")
	if stop() {
		return fmt.Errorf("serve: %w", err) // before ctx was done
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("wait for open requests: %w", err)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	klog.FromContext(ctx).Info("Stopped")
	return nil
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/apimachinery/pkg/util/wait"
)

// enableHTTP2 serves HTTP/2 over connections of type conn. net/http's own HTTP/2 cannot use
// them, so this needs x/net/http2, as upstream does.
func (s *Server) enableHTTP2() error {
	//nolint:staticcheck // SA1019: see above.
	config := &http2.Server{
		IdleTimeout:                  idleTimeout,
		MaxConcurrentStreams:         uint32(s.streams),
		MaxUploadBufferPerStream:     streamBuffer,
		MaxReadFrameSize:             streamBuffer,
		MaxUploadBufferPerConnection: int32(streamBuffer * min(s.streams, MaxStreams)),
	}
	if err := http2.ConfigureServer(s.http, config); err != nil { //nolint:staticcheck // SA1019: see above.
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	s.http.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, tlsConn *tls.Conn, handler http.Handler) {
		c := newConn(tlsConn, newClient(s.streams))
		s.connected(tlsConn, c.client)
		ctx, cancel := context.WithCancel(context.WithValue(baseContext(handler), clientKey{}, c.client))
		var leaving sync.WaitGroup
		defer leaving.Wait()
		defer cancel()
		leaving.Go(func() { s.leave(ctx, c) })
		//nolint:staticcheck // SA1019: see above.
		config.ServeConn(c, &http2.ServeConnOpts{Context: ctx, Handler: handler, BaseConfig: server})
	}
	return nil
}

// baseContext returns the context of the handler's connection, which net/http passes to
// HTTP/2 in this way.
func baseContext(handler http.Handler) context.Context {
	if based, ok := handler.(interface{ BaseContext() context.Context }); ok {
		return based.BaseContext()
	}
	return context.Background()
}

// clientKey is the context key of the client of a request: net/http passes nothing else from
// a connection to its handlers.
type clientKey struct{}

// leave closes the connection for new requests at its maximum age or on request.
func (s *Server) leave(ctx context.Context, c *conn) {
	var aged <-chan time.Time
	if s.options.MaxAge > 0 {
		// Clients that connected at the same time, as after a restart, leave at different times.
		aged = time.After(wait.Jitter(s.options.MaxAge, 0.1))
	}
	select {
	case <-ctx.Done():
		return
	case <-aged:
	case <-c.client.draining:
	}
	c.client.leave(ctx, c)
}

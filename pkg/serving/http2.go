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

// enableHTTP2 has the server speak HTTP/2 over connections that frames can be put
// into. net/http's own HTTP/2 cannot be given any but its own, so this needs the
// package that it was made from, as upstream does.
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
		c := newConn(tlsConn, s.streams)
		s.add(c)
		defer s.remove(c)
		ctx, cancel := context.WithCancel(context.WithValue(baseContext(handler), clientKey{}, c.client))
		var seeingOff sync.WaitGroup
		defer seeingOff.Wait()
		defer cancel()
		seeingOff.Go(func() { s.seeOff(ctx, c) })
		//nolint:staticcheck // SA1019: see above.
		config.ServeConn(c, &http2.ServeConnOpts{Context: ctx, Handler: handler, BaseConfig: server})
	}
	return nil
}

// baseContext is the context of the connection that a handler serves: how net/http
// hands it on to HTTP/2.
func baseContext(handler http.Handler) context.Context {
	if based, ok := handler.(interface{ BaseContext() context.Context }); ok {
		return based.BaseContext()
	}
	return context.Background()
}

// clientKey finds the client of a request in its context.
type clientKey struct{}

// seeOff asks the client to leave once it is time or somebody wants it.
func (s *Server) seeOff(ctx context.Context, c *conn) {
	var aged <-chan time.Time
	if s.options.MaxAge > 0 {
		// Not all that came together, as after a restart, leave together.
		timer := time.NewTimer(wait.Jitter(s.options.MaxAge, 0.1))
		defer timer.Stop()
		aged = timer.C
	}
	select {
	case <-ctx.Done():
		return
	case <-aged:
	case <-c.client.asked:
	}
	c.client.seeOff(ctx, c)
}

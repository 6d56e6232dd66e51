// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"
)

// What upstream's HTTP server allows.
const (
	maxHeaderBytes    = 1 << 20
	idleTimeout       = 90 * time.Second
	readHeaderTimeout = 32 * time.Second
	keepAlivePeriod   = 3 * time.Minute
	// streamBuffer holds nearly every object in one frame.
	streamBuffer   = 256 << 10
	defaultStreams = 100
)

// MaxStreams is the highest limit on the streams of a connection: the buffers of
// all together have to be a number of 31 bits.
const MaxStreams = 1<<31/streamBuffer - 1

// leaveInterval is how often connections that came since are asked to leave too.
const leaveInterval = 100 * time.Millisecond

// Options say when clients are asked to leave while the server runs.
type Options struct {
	// MaxAge is how long a connection is used for new requests; 0 is for ever.
	// Requests that began before, such as watches, go on.
	MaxAge time.Duration
	// Chance is the probability that a request has its client leave; 0 to 1.
	Chance float64
	// ShutdownTimeout bounds how long requests that are open at the end may take.
	ShutdownTimeout time.Duration
}

// Server is an HTTPS server in place of upstream's.
type Server struct {
	options      Options
	http         *http.Server
	certificates *dynamiccertificates.DynamicServingCertificateController
	listener     net.Listener
	streams      int

	mu      sync.Mutex
	conns   map[*conn]struct{}
	leaving bool
}

// Replace makes a Server that serves handler in place of the HTTP server that
// upstream is about to start with info: it takes over the listener.
func Replace(info *genericapiserver.SecureServingInfo, handler http.Handler, options Options) (*Server, error) {
	config, certificates, err := newTLSConfig(info)
	if err != nil {
		return nil, err
	}
	s := &Server{
		options:      options,
		certificates: certificates,
		listener:     info.Listener,
		streams:      info.HTTP2MaxStreamsPerConnection,
		conns:        map[*conn]struct{}{},
	}
	if s.streams <= 0 {
		s.streams = defaultStreams
	}
	s.http = &http.Server{
		Handler:           s.handle(handler),
		TLSConfig:         config,
		MaxHeaderBytes:    maxHeaderBytes,
		IdleTimeout:       idleTimeout,
		ReadHeaderTimeout: readHeaderTimeout,
		ErrorLog:          log.New(errorLog{}, "", 0),
	}
	if !info.DisableHTTP2 {
		if err := s.enableHTTP2(); err != nil {
			return nil, err
		}
	}
	info.Listener = &stand{server: s, stopped: make(chan struct{})}
	return s, nil
}

func (s *Server) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// handle counts requests, and has clients of HTTP/1.1 leave when it is time.
func (s *Server) handle(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client, ok := r.Context().Value(clientKey{}).(*client); ok {
			if s.options.Chance > 0 && rand.Float64() < s.options.Chance {
				client.ask()
			}
			client.begin(r.Context())
			defer client.end()
		} else if s.isLeaving() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

func (s *Server) isLeaving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving
}

// Leave asks all clients to send their next requests over other connections, and
// goes on asking those that come meanwhile until ctx is done. All requests are
// served all the time.
func (s *Server) Leave(ctx context.Context) {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	for {
		s.mu.Lock()
		for c := range s.conns {
			c.client.ask()
		}
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaveInterval):
		}
	}
}

// run serves until stopped is closed and then until all requests are answered.
func (s *Server) run(stopped <-chan struct{}) error {
	go s.certificates.Run(1, stopped)
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(tls.NewListener(keepAliveListener{s.listener}, s.http.TLSConfig)) }()
	select {
	case err := <-served:
		return err
	case <-stopped:
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.options.ShutdownTimeout)
	defer cancel()
	if err := s.shutDown(ctx); err != nil {
		klog.Background().V(1).Info("Closing connections with requests that did not end in time", "timeout", s.options.ShutdownTimeout)
		return errors.Join(s.http.Close(), <-served)
	}
	return <-served
}

// shutDown ends all connections that have no requests, and waits for the others. It
// begins again and again: net/http tells connections that it ends, but none whose
// handshake ends later.
func (s *Server) shutDown(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, leaveInterval)
		err := s.http.Shutdown(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// stand stands where upstream expects a listener. It never has a connection, and
// is done when the Server is.
type stand struct {
	server  *Server
	once    sync.Once
	stopped chan struct{}
}

// Accept runs the Server.
func (l *stand) Accept() (net.Conn, error) {
	err := l.server.run(l.stopped)
	if errors.Is(err, http.ErrServerClosed) {
		err = net.ErrClosed
	}
	return nil, err
}

// Close has the Server end; Accept returns when it has.
func (l *stand) Close() error {
	l.once.Do(func() { close(l.stopped) })
	return nil
}

// Addr is where the Server listens.
func (l *stand) Addr() net.Addr { return l.server.listener.Addr() }

// keepAliveListener has connections to machines that are gone end some time.
type keepAliveListener struct {
	net.Listener
}

// Accept waits for a connection.
func (l keepAliveListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		// Without them the connection works as well.
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
	return c, err
}

// errorLog has net/http's complaints logged as upstream does: handshakes fail all
// the time, by probes and scanners.
type errorLog struct{}

// Write logs a line.
func (errorLog) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	if strings.HasPrefix(line, "http: TLS handshake error") {
		klog.Background().V(5).Info("A connection failed", "reason", line)
	} else {
		klog.Background().Info("The HTTP server says", "line", line)
	}
	return len(p), nil
}

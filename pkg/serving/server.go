// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving is an HTTPS server that can move clients to other replicas without
// losing a request.
//
// An aggregator sends all requests over one HTTP/2 connection. To close it, Go's server
// sends GOAWAY with the last request that it has received. Requests in flight are dropped,
// and the aggregator can only resend those without a body: writes get 503. RFC 9113
// section 6.8 describes the alternative: a first GOAWAY that excludes no request, and a
// second one after everything that crossed it has arrived. Go's server does not send the
// first one, so this package inserts it between two frames of Go's.
//
// Upstream's API server starts its own HTTP server. It gets a listener without connections:
// the Server of this package listens instead, and ends when upstream closes that listener.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

	"github.com/annex-dev/annex/pkg/stack"
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

// MaxStreams is the highest limit on the streams of a connection: the size of all their
// buffers has to fit into 31 bits.
const MaxStreams = 1<<31/streamBuffer - 1

const (
	// leaveInterval is the time between passes over the connections while clients leave.
	leaveInterval = 100 * time.Millisecond
	// crossing is the time for requests that cross a GOAWAY.
	crossing = 2 * time.Second
	// minLeave is the time for clients that learn late of the other replicas.
	minLeave = 3 * time.Second
	// MaxLeave is the time in which even clients on a busy machine leave.
	MaxLeave = longestPause + crossing
)

// Options configure when clients have to use a new connection.
type Options struct {
	// MaxAge bounds the time in which a connection is used for new requests; 0 is unlimited. Open
	// requests, such as watches, continue.
	MaxAge time.Duration
	// Chance is the probability, 0 to 1, that a request makes its client leave.
	Chance float64
	// ShutdownTimeout bounds the wait for open requests when the server stops.
	ShutdownTimeout time.Duration
}

// Server is an HTTPS server in place of upstream's.
type Server struct {
	options      Options
	http         *http.Server
	certificates *dynamiccertificates.DynamicServingCertificateController
	listener     net.Listener
	streams      int

	mu sync.Mutex
	// clients has the clients of HTTP/2 by their connections, and nil for connections that are not set up yet.
	clients map[net.Conn]*client
	leaving bool
}

// Replace returns a Server that serves handler in place of the HTTP server that upstream
// is about to start with info, whose listener it takes over.
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
		clients:      map[net.Conn]*client{},
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
		ConnState:         s.connectionState,
		ErrorLog:          log.New(errorLog{}, "", 0),
	}
	if !info.DisableHTTP2 {
		if err := s.enableHTTP2(); err != nil {
			return nil, err
		}
	}
	info.Listener = &placeholder{server: s, stopped: make(chan struct{})}
	return s, nil
}

// connectionState records new connections until they are closed or turn out to be of HTTP/1.1.
func (s *Server) connectionState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state == http.StateNew {
		s.clients[c] = nil
	} else {
		delete(s.clients, c)
	}
}

// connected records the client of a new connection of HTTP/2.
func (s *Server) connected(c *tls.Conn, client *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients[c] = client
}

// handle counts requests, and closes connections of HTTP/1.1 while clients leave.
func (s *Server) handle(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		stack.Grow()
		if client, ok := r.Context().Value(clientKey{}).(*client); ok {
			if s.options.Chance > 0 && rand.Float64() < s.options.Chance {
				client.drain()
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

// Leave makes all clients, including new ones, send their next requests over other connections.
// It still serves all requests, and returns once no client can send more, or when ctx is done.
func (s *Server) Leave(ctx context.Context) {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
	for end := time.Now().Add(minLeave); ; {
		left, latest := s.drain()
		if latest = latest.Add(crossing); latest.After(end) {
			end = latest
		}
		if left && time.Now().After(end) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(leaveInterval):
		}
	}
}

// drain makes all clients leave. It returns whether all have left, and when the latest did.
func (s *Server) drain() (left bool, latest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = true
	for _, c := range s.clients {
		var at time.Time
		if c != nil {
			c.drain()
			at = c.leftAt()
		}
		if at.IsZero() {
			left = false
		} else if at.After(latest) {
			latest = at
		}
	}
	return left, latest
}

// run serves until stopped is closed, and then until all requests have ended.
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

// shutDown closes idle connections and waits for the others. It repeats this, because
// net/http does not notify connections whose handshake ends later.
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

// placeholder is the listener that upstream gets. It never has a connection.
type placeholder struct {
	server  *Server
	once    sync.Once
	stopped chan struct{}
}

// Accept runs the Server until it ends.
func (l *placeholder) Accept() (net.Conn, error) {
	err := l.server.run(l.stopped)
	if errors.Is(err, http.ErrServerClosed) {
		err = net.ErrClosed
	}
	return nil, err
}

// Close stops the Server.
func (l *placeholder) Close() error {
	l.once.Do(func() { close(l.stopped) })
	return nil
}

// Addr returns the Server's address.
func (l *placeholder) Addr() net.Addr { return l.server.listener.Addr() }

// keepAliveListener closes connections to machines that are gone, and sends TLS records together.
type keepAliveListener struct {
	net.Listener
}

// Accept waits for a connection.
func (l keepAliveListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		// The connection works without keepalive.
		_ = tcp.SetKeepAlive(true)
		_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
	}
	if err != nil {
		return nil, err
	}
	return &records{Conn: c}, nil
}

// errorLog logs net/http's errors as upstream does: TLS handshakes of probes and scanners
// always fail.
type errorLog struct{}

// Write logs a line.
func (errorLog) Write(p []byte) (int, error) {
	line := strings.TrimSpace(string(p))
	if strings.HasPrefix(line, "http: TLS handshake error") {
		klog.Background().V(5).Info("A connection failed", "reason", line)
	} else {
		klog.Background().Info("HTTP server error", "message", line)
	}
	return len(p), nil
}

// newTLSConfig returns the configuration of upstream's server, and the controller that
// reloads its certificates. Upstream runs their sources.
func newTLSConfig(info *genericapiserver.SecureServingInfo) (*tls.Config, *dynamiccertificates.DynamicServingCertificateController, error) {
	config := &tls.Config{
		MinVersion:       max(tls.VersionTLS12, info.MinTLSVersion),
		CipherSuites:     info.CipherSuites,
		CurvePreferences: info.CurvePreferences,
		NextProtos:       []string{"h2", "http/1.1"},
	}
	if info.DisableHTTP2 {
		config.NextProtos = []string{"http/1.1"}
	}
	if info.ClientCA != nil {
		// Requested and not verified here: there are other ways to log in.
		config.ClientAuth = tls.RequestClientCert
	}
	controller := dynamiccertificates.NewDynamicServingCertificateController(config, info.ClientCA, info.Cert, info.SNICerts, nil)
	if info.ClientCA != nil {
		info.ClientCA.AddListener(controller)
	}
	if info.Cert != nil {
		info.Cert.AddListener(controller)
	}
	for _, cert := range info.SNICerts {
		cert.AddListener(controller)
	}
	if err := controller.RunOnce(); err != nil {
		return nil, nil, fmt.Errorf("load the serving certificates: %w", err)
	}
	serving := config.Clone()
	serving.GetConfigForClient = controller.GetConfigForClient
	return serving, controller, nil
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package embeddedetcd runs a single-member etcd inside the process.
//
// It is reachable only through one unix socket in a directory that only its owner may enter:
// etcd has no authentication here, so a TCP port, even on loopback, would let every local user
// read every Secret. There is no peer listener either. (A unix peer URL is no alternative: embed
// would open it in the abstract namespace, where file permissions do not apply.)
//
// etcd registers its metrics in prometheus.DefaultRegisterer when its packages are loaded, which
// is not the registry of a Kubernetes server's /metrics: handlers must gather from both.
//
// The package imports no other package of annex.
package embeddedetcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
)

const (
	// Close lets requests finish for closeGrace. Watches never do; etcd alone would wait
	// seven seconds for them.
	closeGrace = time.Second
	// readyTimeout bounds the election of the only member, and the applying of the
	// last part of the log before it.
	readyTimeout = time.Minute
	// closeTimeout bounds Close. etcd writes its last batch, which takes long on a disk that
	// others keep busy: this is no error.
	closeTimeout = time.Minute
	// abandonTimeout bounds the wait for an etcd that has failed, which may wait for goroutines
	// that it lost, and for one that still starts.
	abandonTimeout = 10 * time.Second
)

// Server is a running etcd.
type Server struct {
	cfg     Config
	log     klog.Logger
	zap     *zap.Logger
	etcd    *embed.Etcd
	client  *clientv3.Client
	closing atomic.Bool

	// failed is done when etcd has found something fatal, its cause.
	failed context.Context
	fail   context.CancelCauseFunc
	errc   chan error

	mu          sync.Mutex
	grpcServers []*grpc.Server
	closeOnce   func() error
	done        chan struct{}
}

// Start runs an etcd and returns when it answers, or with an error that names the path at fault.
// ctx bounds the start and has the logger; the server runs until Close, because storage outlives
// its users.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s := newServer(cfg, klog.LoggerWithName(klog.FromContext(ctx), "etcd"))
	if err := s.start(ctx); err != nil {
		return nil, fmt.Errorf("embedded etcd in %s: %w", cfg.Dir, err)
	}
	return s, nil
}

func newServer(cfg Config, log klog.Logger) *Server {
	s := &Server{cfg: cfg, log: log, errc: make(chan error, 1), done: make(chan struct{})}
	s.failed, s.fail = context.WithCancelCause(context.Background())
	s.closeOnce = sync.OnceValue(s.close)
	s.zap = newZapLogger(log, &s.closing, s.fail)
	return s
}

func (s *Server) start(ctx context.Context) error {
	if err := s.cfg.prepare(); err != nil {
		return err
	}
	if err := checkDatabase(s.cfg.Dir); err != nil {
		return err
	}
	if err := s.removeUnfinished(); err != nil {
		return err
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Endpoint()},
		Logger:    s.zap,
		// Only the server limits the size of requests. Responses have no limit.
		MaxCallSendMsgSize: math.MaxInt32,
		MaxCallRecvMsgSize: math.MaxInt32,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("create a client: %w", err), s.Close())
	}
	s.client = client
	go s.forwardErrors()
	return nil
}

type started struct {
	etcd *embed.Etcd
	err  error
}

// startEtcd starts etcd in a goroutine, which ends when etcd finds something fatal.
func (s *Server) startEtcd(ctx context.Context) error {
	ec, err := s.cfg.embedConfig(s.zap, s.addGRPCServer)
	if err != nil {
		return err
	}
	result := make(chan started, 1)
	go func() {
		// etcd panics on some damaged write-ahead logs.
		defer func() {
			if r := recover(); r != nil {
				result <- started{err: fmt.Errorf("its data is damaged, restore it from a backup: %v", r)}
			}
		}()
		etcd, err := embed.StartEtcd(ec)
		result <- started{etcd: etcd, err: err}
	}()
	select {
	case r := <-result:
		if r.err != nil {
			return r.err
		}
		s.etcd = r.etcd
	case <-s.failed.Done():
		return context.Cause(s.failed)
	case <-ctx.Done():
		s.abandon(result)
		return fmt.Errorf("starting: %w", context.Cause(ctx))
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case <-time.After(readyTimeout):
		err = fmt.Errorf("it is not ready after %s", readyTimeout)
	case <-s.failed.Done():
		err = context.Cause(s.failed)
	case err = <-s.etcd.Err():
	case <-ctx.Done():
		err = fmt.Errorf("wait until it is ready: %w", context.Cause(ctx))
	}
	return errors.Join(err, s.Close())
}

// abandon closes an etcd that starts after all: embed cannot be interrupted, and
// the directory is free only when it is closed.
func (s *Server) abandon(result <-chan started) {
	s.closing.Store(true)
	select {
	case r := <-result:
		if r.etcd != nil {
			r.etcd.Close()
		}
	case <-s.failed.Done():
	case <-time.After(abandonTimeout):
	}
}

func (s *Server) addGRPCServer(gs *grpc.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grpcServers = append(s.grpcServers, gs)
}

// forwardErrors reports the first error until the server is closed.
func (s *Server) forwardErrors() {
	var err error
	select {
	case <-s.failed.Done():
		err = context.Cause(s.failed)
	case e, ok := <-s.etcd.Err():
		if !ok {
			return
		}
		err = e
	case <-s.done:
		return
	}
	if !s.closing.Load() && err != nil {
		s.errc <- fmt.Errorf("embedded etcd in %s: %w", s.cfg.Dir, err)
	}
}

// Endpoint returns the URL of the socket, for clients of this user.
func (s *Server) Endpoint() string { return "unix://" + s.cfg.SocketPath }

// Client returns the shared client, which Close closes. Like the API server's own clients it
// uses the socket.
func (s *Server) Client() *clientv3.Client { return s.client }

// Err reports an error that ends etcd, such as a full disk. Nothing is acknowledged from then
// on; the process has to end.
func (s *Server) Err() <-chan error { return s.errc }

// Close stops etcd after closeGrace for requests in flight. All users of the storage should have
// stopped before. It may be called twice.
func (s *Server) Close() error { return s.closeOnce() }

func (s *Server) close() error {
	s.closing.Store(true)
	defer close(s.done)
	var err error
	if s.client != nil {
		if closeErr := s.client.Close(); closeErr != nil && !errors.Is(closeErr, context.Canceled) {
			err = fmt.Errorf("close the client: %w", closeErr)
		}
	}
	force := time.AfterFunc(closeGrace, s.dropConnections)
	defer force.Stop()

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.etcd.Close()
	}()
	return errors.Join(err, s.awaitStopped(stopped))
}

// awaitStopped waits for etcd, which may fail before and meanwhile.
func (s *Server) awaitStopped(stopped <-chan struct{}) error {
	select {
	case <-stopped:
		return nil
	case <-s.failed.Done():
	case <-time.After(closeTimeout):
		return fmt.Errorf("embedded etcd in %s did not stop within %s", s.cfg.Dir, closeTimeout)
	}
	select {
	case <-stopped:
		return nil
	case <-time.After(abandonTimeout):
		return fmt.Errorf("embedded etcd in %s did not stop within %s after it failed: %w", s.cfg.Dir, abandonTimeout, context.Cause(s.failed))
	}
}

func (s *Server) dropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, gs := range s.grpcServers {
		gs.Stop()
	}
}

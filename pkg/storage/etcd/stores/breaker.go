// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"
)

// breaker holds the connection for requests, or the reason for refusing them. It is immutable; a
// Store replaces it by another.
type breaker struct {
	// unavailable is the error of refused requests, nil if requests pass.
	unavailable *UnavailableError
	// connection is nil before the first one.
	connection *connection
	// cluster is the ID of the only etcd cluster whose answers are accepted.
	cluster uint64
	// fence is the condition of all requests, nil for the etcd inside the process, which cannot
	// be replaced while it runs.
	fence *fence
	// tripped is done when the breaker was replaced by one that refuses requests; its cause is
	// the reason.
	tripped context.Context
	trip    context.CancelCauseFunc
}

func newBreaker(refused *UnavailableError, conn *connection, cluster uint64, fence *fence) *breaker {
	g := &breaker{unavailable: refused, connection: conn, cluster: cluster, fence: fence}
	g.tripped, g.trip = context.WithCancelCause(context.Background())
	return g
}

// setBreaker replaces the breaker.
func (s *Store) setBreaker(g *breaker) {
	before := s.breaker.Swap(g)
	if g.unavailable != nil {
		before.trip(g.unavailable)
	}
	if before.connection != nil && before.connection != g.connection {
		before.connection.retire()
	}
}

// call is one admitted request.
type call struct {
	*breaker
	store  *Store
	caller context.Context
	end    func()
	// floor is the highest revision that was known when the request began, and checkpoint the
	// fence's checkpoint at that time.
	floor, checkpoint int64
}

// admit admits a request, or returns why it is refused. The caller ends the call. The returned
// context ends with the caller's context, and when the breaker trips.
func (s *Store) admit(ctx context.Context, operation string) (context.Context, *call, error) {
	g := s.current(ctx)
	for g.unavailable == nil && !g.connection.acquire() {
		g = s.breaker.Load() // it was replaced
	}
	if g.unavailable != nil {
		s.metrics.refused(operation)
		return nil, nil, g.unavailable
	}
	bound, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.tripped, func() { cancel(context.Cause(g.tripped)) })
	c := &call{breaker: g, store: s, caller: ctx, floor: s.highest.Load(), end: func() {
		stop()
		cancel(nil)
		g.connection.release()
	}}
	if g.fence != nil {
		c.checkpoint = g.fence.checkpoint.Load()
	}
	return bound, c, nil
}

// check returns the error for the caller: of an answer from another cluster, or of etcd with the
// name of the Store.
func (c *call) check(header *etcdserverpb.ResponseHeader, err error) error {
	if err != nil {
		if c.caller.Err() == nil && c.tripped.Err() != nil {
			return context.Cause(c.tripped)
		}
		if err = asStoreError(c.store.name, err); isUnavailable(err) {
			c.store.probeSoon()
		}
		return err
	}
	if header.GetClusterId() == c.cluster {
		return nil
	}
	return c.store.tripWrongCluster(c.breaker, header.GetClusterId())
}

func isUnavailable(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable)
}

// tripWrongCluster trips the breaker because of an answer from another cluster.
func (s *Store) tripWrongCluster(g *breaker, found uint64) error {
	return s.trip(g, ReasonWrongCluster, wrongCluster("its endpoints lead", found, g.cluster))
}

// trip refuses requests until the next probe, because of an answer of etcd.
func (s *Store) trip(g *breaker, reason, message string) error {
	refused := &UnavailableError{Store: s.name, Reason: reason, Message: message}
	if s.breaker.CompareAndSwap(g, newBreaker(refused, g.connection, g.cluster, g.fence)) {
		g.trip(refused)
	}
	s.probeSoon()
	return refused
}

// wrongCluster is the message for an etcd cluster other than the pinned one. what is for example
// "its endpoints lead".
func wrongCluster(what string, found, pinned uint64) string {
	return fmt.Sprintf("%s to the etcd cluster %s, but its data is in the cluster %s", what, FormatClusterID(found), FormatClusterID(pinned))
}

// FormatClusterID formats the ID of an etcd cluster as etcdctl does.
func FormatClusterID(id uint64) string { return strconv.FormatUint(id, 16) }

// connection is a client of an etcd with certain endpoints and credentials.
type connection struct {
	target      target
	credentials *credentials // nil without any
	client      *clientv3.Client
	// shared is set for a client that the caller of Open closes.
	shared bool
	// isEtcd is set once the server was found to perform transactions. Only probes use it.
	isEtcd bool
	// watcher is the client's, and counts the streams that it opens.
	watcher clientv3.Watcher
	streams streams
	// retired is done when another connection has replaced this one.
	retired context.Context
	cancel  context.CancelFunc

	mu     sync.Mutex
	users  int
	closed bool
}

func newConnection(t target, creds *credentials, client *clientv3.Client, keep bool) *connection {
	c := &connection{target: t, credentials: creds, client: client, shared: keep}
	c.streams.verifying = semaphore.NewWeighted(1)
	c.watcher = clientv3.NewWatchFromWatchClient(countedStreams{etcdserverpb.NewWatchClient(client.ActiveConnection()), &c.streams}, client)
	c.retired, c.cancel = context.WithCancel(context.Background())
	return c
}

// tls returns the TLS configuration, nil for the default.
func (c *connection) tls() *tls.Config {
	if c.credentials == nil {
		return nil
	}
	return c.credentials.config
}

// acquire reports whether the connection may be used; release must follow.
func (c *connection) acquire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.users++
	return true
}

func (c *connection) release() {
	c.mu.Lock()
	c.users--
	last := c.closed && c.users == 0
	c.mu.Unlock()
	if last {
		c.closeClient()
	}
}

// retire ends watches at once and closes the client after the last request.
func (c *connection) retire() {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	unused := c.users == 0
	c.mu.Unlock()
	if already {
		return
	}
	c.cancel()
	_ = c.watcher.Close() // its watches have ended
	if unused {
		c.closeClient()
	}
}

func (c *connection) closeClient() {
	if !c.shared {
		// No request uses it.
		_ = c.client.Close()
	}
}

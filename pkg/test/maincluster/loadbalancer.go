// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	defaultProbeInterval = 200 * time.Millisecond
	probeTimeout         = time.Second
	dialTimeout          = time.Second
)

// LoadBalancerOptions say how a LoadBalancer learns which endpoints are ready.
type LoadBalancerOptions struct {
	// ReadyTLS is how an endpoint is asked at https://ENDPOINT/readyz, as the kubelet
	// would for a readiness probe, except that the certificate is verified. Without
	// it an endpoint is ready from the start, until SetReady says otherwise.
	ReadyTLS *tls.Config
	// ProbeInterval is the time between two questions; 200 ms if not given.
	ProbeInterval time.Duration
}

// LoadBalancer does on loopback what a Service and kube-proxy do in a cluster: each
// new connection goes to the next ready endpoint, without a look at what is said on
// it, and stays there also when the endpoint is no longer ready or removed. With no
// ready endpoint a connection is reset at once.
type LoadBalancer struct {
	opts     LoadBalancerOptions
	listener net.Listener
	probe    *http.Client
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu        sync.Mutex
	endpoints []*endpoint
	next      int
	open      map[net.Conn]string // both ends of each connection, and its endpoint
}

// endpoint is one server behind the balancer.
type endpoint struct {
	address string
	ready   bool
	cancel  context.CancelFunc // ends its probes
}

// NewLoadBalancer listens on a free port of 127.0.0.1 until Close.
func NewLoadBalancer(opts LoadBalancerOptions) (*LoadBalancer, error) {
	if opts.ProbeInterval == 0 {
		opts.ProbeInterval = defaultProbeInterval
	}
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", localAddress(0))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen for connections to balance: %w", err)
	}
	b := &LoadBalancer{opts: opts, listener: listener, cancel: cancel, open: map[net.Conn]string{}}
	if opts.ReadyTLS != nil {
		// A connection for each probe, as the kubelet does: an old one would still
		// reach a server that no longer accepts any.
		b.probe = &http.Client{Timeout: probeTimeout, Transport: &http.Transport{TLSClientConfig: opts.ReadyTLS, DisableKeepAlives: true}}
	}
	b.tasks.Go(func() { b.accept(ctx) })
	return b, nil
}

// Address is where it listens.
func (b *LoadBalancer) Address() string { return b.listener.Addr().String() }

// Port is the port it listens on, on 127.0.0.1.
func (b *LoadBalancer) Port() int { return b.listener.Addr().(*net.TCPAddr).Port }

// Add takes an endpoint, host:port, among those that get connections. One that is
// known already stays as it is.
func (b *LoadBalancer) Add(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if slices.ContainsFunc(b.endpoints, func(e *endpoint) bool { return e.address == address }) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	added := &endpoint{address: address, ready: b.probe == nil, cancel: cancel}
	b.endpoints = append(b.endpoints, added)
	if b.probe != nil {
		b.tasks.Go(func() { b.watchReadiness(ctx, added) })
	}
}

// Remove sends no more connections to an endpoint; those that it has go on.
func (b *LoadBalancer) Remove(address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endpoints = slices.DeleteFunc(b.endpoints, func(e *endpoint) bool {
		if e.address == address {
			e.cancel()
		}
		return e.address == address
	})
}

// SetReady says by hand whether an endpoint is ready, where nothing probes it.
func (b *LoadBalancer) SetReady(address string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.endpoints {
		if e.address == address && b.probe == nil {
			e.ready = ready
		}
	}
}

// Ready are the endpoints that get new connections.
func (b *LoadBalancer) Ready() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []string
	for _, e := range b.endpoints {
		if e.ready {
			ready = append(ready, e.address)
		}
	}
	return ready
}

// Connections counts the open connections of each endpoint.
func (b *LoadBalancer) Connections() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := map[string]int{}
	for _, address := range b.open {
		counts[address]++
	}
	for address := range counts {
		counts[address] /= 2 // each has two ends
	}
	return counts
}

// Close stops listening and ends every connection.
func (b *LoadBalancer) Close() error {
	b.cancel()
	err := b.listener.Close()
	b.mu.Lock()
	for _, e := range b.endpoints {
		e.cancel()
	}
	for connection := range b.open {
		_ = connection.Close() // it may have ended by itself
	}
	b.mu.Unlock()
	b.tasks.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close the balancer: %w", err)
	}
	return nil
}

func (b *LoadBalancer) watchReadiness(ctx context.Context, e *endpoint) {
	ticker := time.NewTicker(b.opts.ProbeInterval)
	defer ticker.Stop()
	for {
		ready := b.isReady(ctx, e.address)
		b.mu.Lock()
		e.ready = ready
		b.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *LoadBalancer) isReady(ctx context.Context, address string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := b.probe.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (b *LoadBalancer) accept(ctx context.Context) {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return // closed
		}
		b.tasks.Go(func() { b.serve(ctx, client.(*net.TCPConn)) })
	}
}

// serve joins a connection with one to the next ready endpoint.
func (b *LoadBalancer) serve(ctx context.Context, client *net.TCPConn) {
	address, ok := b.pick()
	if !ok {
		reset(client)
		return
	}
	connection, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		reset(client)
		return
	}
	server := connection.(*net.TCPConn)
	b.mu.Lock()
	b.open[client], b.open[server] = address, address
	b.mu.Unlock()
	defer func() {
		_, _ = client.Close(), server.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, client)
		delete(b.open, server)
	}()
	// Close has closed what was in b.open; this one may have come later.
	if ctx.Err() != nil {
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { forward(server, client) })
	directions.Go(func() { forward(client, server) })
	directions.Wait()
}

// pick goes round the ready endpoints.
func (b *LoadBalancer) pick() (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.endpoints {
		b.next++
		if e := b.endpoints[b.next%len(b.endpoints)]; e.ready {
			return e.address, true
		}
	}
	return "", false
}

// forward copies one direction, and passes on how it ended.
func forward(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		reset(to)
		reset(from)
		return
	}
	_ = to.CloseWrite() // the other side may be gone
}

func reset(connection *net.TCPConn) {
	_ = connection.SetLinger(0) // makes Close a reset
	_ = connection.Close()
}

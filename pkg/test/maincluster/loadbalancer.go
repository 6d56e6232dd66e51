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

	"github.com/annex-dev/annex/pkg/test/freeport"
)

const (
	defaultProbeInterval = 200 * time.Millisecond
	probeTimeout         = time.Second
	dialTimeout          = time.Second
)

// LoadBalancerOptions configure the readiness probes of a LoadBalancer.
type LoadBalancerOptions struct {
	// ReadyTLS is used for probes of https://ENDPOINT/readyz, like readiness probes of a kubelet,
	// but with verification of the certificate. Without it an endpoint is ready until SetReady.
	ReadyTLS *tls.Config
	// ProbeInterval is the time between two probes. Defaults to 200 ms.
	ProbeInterval time.Duration
}

// LoadBalancer replaces a Service and kube-proxy on loopback: each new TCP connection goes to
// the next ready endpoint, and stays there even if that becomes unready or is removed. Without
// a ready endpoint the connection is reset.
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
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", freeport.Address(0))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listen for connections to balance: %w", err)
	}
	b := &LoadBalancer{opts: opts, listener: listener, cancel: cancel, open: map[net.Conn]string{}}
	if opts.ReadyTLS != nil {
		// Like the kubelet, probe with new connections: old ones reach a server that no longer
		// accepts any.
		b.probe = &http.Client{Timeout: probeTimeout, Transport: &http.Transport{TLSClientConfig: opts.ReadyTLS, DisableKeepAlives: true}}
	}
	b.tasks.Go(func() { b.accept(ctx) })
	return b, nil
}

// Address returns its address, host:port.
func (b *LoadBalancer) Address() string { return b.listener.Addr().String() }

// Port returns its port on 127.0.0.1.
func (b *LoadBalancer) Port() int { return b.listener.Addr().(*net.TCPAddr).Port }

// Add adds an endpoint, host:port, unless it is known.
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

// Remove removes an endpoint. Its open connections continue.
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

// SetReady sets the readiness of an endpoint that is not probed.
func (b *LoadBalancer) SetReady(address string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.endpoints {
		if e.address == address && b.probe == nil {
			e.ready = ready
		}
	}
}

// Ready returns the endpoints that receive new connections.
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
		_ = connection.Close() // it may be closed already
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

// serve forwards a connection to the next ready endpoint.
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
	// Close has closed the connections in b.open; this one may be newer.
	if ctx.Err() != nil {
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { forward(server, client) })
	directions.Go(func() { forward(client, server) })
	directions.Wait()
}

// pick returns the next ready endpoint, round robin.
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

// forward copies one direction, and ends it in the same way.
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

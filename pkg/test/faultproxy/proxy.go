// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy forwards connections to a server and lets tests cut, delay and
// redirect them.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// Proxy forwards a TCP port of this machine to a unix socket, until Close.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	down   bool
	delay  time.Duration
	conns  map[net.Conn]struct{}
	flows  chan struct{} // closed unless the Proxy is frozen
	closed chan struct{}
}

// New returns a Proxy to a socket.
func New(ctx context.Context, target string) (*Proxy, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}, flows: make(chan struct{}), closed: make(chan struct{})}
	close(p.flows)
	p.running.Go(p.accept)
	return p, nil
}

// Address returns its address, host:port.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Close stops the Proxy.
func (p *Proxy) Close() {
	close(p.closed)
	_ = p.listener.Close() // the error does not matter
	p.Cut()
	p.running.Wait()
}

// Retarget forwards to another socket, and closes all connections.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.hangUp()
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	p.hangUp()
}

// Restore undoes Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Disconnect closes all connections, like a killed server. New ones are accepted.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangUp()
}

// Freeze stops forwarding until resume is called. Connections stay open, as in a network that
// drops packets.
func (p *Proxy) Freeze() (resume func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	flows := make(chan struct{})
	p.flows = flows
	return sync.OnceFunc(func() { close(flows) })
}

// waitFlows waits until the Proxy is not frozen, and reports whether it is open.
func (p *Proxy) waitFlows() bool {
	p.mu.Lock()
	flows := p.flows
	p.mu.Unlock()
	select {
	case <-flows:
		return true
	case <-p.closed:
		return false
	}
}

// SetDelay delays the data in each direction.
func (p *Proxy) SetDelay(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

func (p *Proxy) delayed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// hangUp closes all connections. The caller holds the lock.
func (p *Proxy) hangUp() {
	for conn := range p.conns {
		_ = conn.Close() // it may be closed already
	}
	clear(p.conns)
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.connect(near)
	}
}

func (p *Proxy) connect(near net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		_ = near.Close() // so that the client gets an error
		return
	}
	far, err := (&net.Dialer{}).DialContext(context.Background(), "unix", p.target) // a local socket connects at once
	if err != nil {
		_ = near.Close() // so that the client gets an error
		return
	}
	p.conns[near], p.conns[far] = struct{}{}, struct{}{}
	p.carry(near, far)
	p.carry(far, near)
}

// chunk is the result of one read, and the time at which it is forwarded.
type chunk struct {
	data []byte
	due  time.Time
}

// carry copies one direction with the delay. Reading continues meanwhile, so delays do not add
// up.
func (p *Proxy) carry(from, to net.Conn) {
	chunks := make(chan chunk, 64)
	done := make(chan struct{})
	p.running.Go(func() {
		defer close(chunks)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case chunks <- chunk{data: buffer[:n], due: time.Now().Add(p.delayed())}:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	p.running.Go(func() {
		defer close(done)
		defer p.forget(from, to)
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if !p.waitFlows() {
				return
			}
			if _, err := to.Write(c.data); err != nil {
				return
			}
		}
	})
}

// forget closes connections and stops tracking them.
func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // it may be closed already
		delete(p.conns, conn)
	}
}

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

// Proxy leads from a port of this machine to a unix socket. The port is taken for as
// long as the Line lives, so that an endpoint is never another's.
type Proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	down   bool
	delay  time.Duration
	conns  map[net.Conn]struct{}
}

// New returns a Line to a socket.
func New(ctx context.Context, target string) (*Proxy, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Proxy{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	return l, nil
}

// Address is where the Line begins, as host:port.
func (l *Proxy) Address() string { return l.listener.Addr().String() }

// Close ends the Line for good.
func (l *Proxy) Close() {
	_ = l.listener.Close() // nobody waits for what it says
	l.Cut()
	l.running.Wait()
}

// Retarget has the Line lead elsewhere.
func (l *Proxy) Retarget(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.hangUp()
}

// Cut ends all connections and lets no other begin.
func (l *Proxy) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.hangUp()
}

// Restore takes back Cut.
func (l *Proxy) Restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// SetDelay has everything take longer by delay, in each direction.
func (l *Proxy) SetDelay(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *Proxy) delayed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// hangUp has l.mu locked.
func (l *Proxy) hangUp() {
	for conn := range l.conns {
		_ = conn.Close() // it may be closed already
	}
	clear(l.conns)
}

func (l *Proxy) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.connect(near)
	}
}

func (l *Proxy) connect(near net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		_ = near.Close() // so the client learns
		return
	}
	far, err := (&net.Dialer{}).DialContext(context.Background(), "unix", l.target) // a socket answers at once
	if err != nil {
		_ = near.Close() // so the client learns
		return
	}
	l.conns[near], l.conns[far] = struct{}{}, struct{}{}
	l.carry(near, far)
	l.carry(far, near)
}

// parcel is what was read at once, and when it may be handed on.
type parcel struct {
	data []byte
	due  time.Time
}

// carry copies one direction, as late as the line is slow. What follows waits no
// longer for that.
func (l *Proxy) carry(from, to net.Conn) {
	parcels := make(chan parcel, 64)
	done := make(chan struct{})
	l.running.Go(func() {
		defer close(parcels)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				select {
				case parcels <- parcel{data: buffer[:n], due: time.Now().Add(l.delayed())}:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	l.running.Go(func() {
		defer close(done)
		defer l.forget(from, to)
		for p := range parcels {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				return
			}
		}
	})
}

// forget ends both directions: what half is left of a connection is of no use.
func (l *Proxy) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // it may be closed already
		delete(l.conns, conn)
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package line is a connection to a server that tests cut off, lead elsewhere and slow
// down.
package line

import (
	"context"
	"net"
	"sync"
	"time"
)

// Line leads from a port of this machine to a unix socket. The port is taken for as
// long as the Line lives, so that an endpoint is never another's.
type Line struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	down   bool
	delay  time.Duration
	conns  map[net.Conn]struct{}
}

// New returns a Line to a socket.
func New(ctx context.Context, target string) (*Line, error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Line{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	return l, nil
}

// Address is where the Line begins, as host:port.
func (l *Line) Address() string { return l.listener.Addr().String() }

// Close ends the Line for good.
func (l *Line) Close() {
	_ = l.listener.Close() // nobody waits for what it says
	l.Cut()
	l.running.Wait()
}

// To has the Line lead elsewhere.
func (l *Line) To(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.hangUp()
}

// Cut ends all connections and lets no other begin.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.hangUp()
}

// Mend takes back Cut.
func (l *Line) Mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// Slow has everything take longer by delay, in each direction.
func (l *Line) Slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *Line) delayed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// hangUp has l.mu locked.
func (l *Line) hangUp() {
	for conn := range l.conns {
		_ = conn.Close() // it may be closed already
	}
	clear(l.conns)
}

func (l *Line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.connect(near)
	}
}

func (l *Line) connect(near net.Conn) {
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
func (l *Line) carry(from, to net.Conn) {
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
func (l *Line) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // it may be closed already
		delete(l.conns, conn)
	}
}

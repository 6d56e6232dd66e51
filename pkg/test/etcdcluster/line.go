// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package etcdcluster

import (
	"net"
	"sync"
	"time"
)

// line leads from a port of this machine to the socket of a member. The port is
// taken for as long as the line lives, so that an endpoint is never another's.
type line struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	down   bool
	delay  time.Duration
	conns  map[net.Conn]struct{}
}

func newLine(target string) (*line, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &line{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	return l, nil
}

func (l *line) address() string { return l.listener.Addr().String() }

// close ends the line for good.
func (l *line) close() {
	l.listener.Close()
	l.cut()
	l.running.Wait()
}

// to has the line lead elsewhere.
func (l *line) to(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	l.hangUp()
}

// cut ends all connections and lets no other begin.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	l.hangUp()
}

// mend takes back cut.
func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// slow has everything take longer by delay, in each direction.
func (l *line) slow(delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

func (l *line) delayed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay
}

// hangUp has l.mu locked.
func (l *line) hangUp() {
	for conn := range l.conns {
		conn.Close()
	}
	clear(l.conns)
}

func (l *line) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.connect(near)
	}
}

func (l *line) connect(near net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		near.Close()
		return
	}
	far, err := net.Dial("unix", l.target)
	if err != nil {
		near.Close()
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
func (l *line) carry(from, to net.Conn) {
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
func (l *line) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		conn.Close()
		delete(l.conns, conn)
	}
}

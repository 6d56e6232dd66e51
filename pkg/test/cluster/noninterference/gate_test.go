// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package noninterference

import (
	"context"
	"net"
	"sync"
)

// gate is a proxy between annex and its etcd. While it is shut it forwards nothing and keeps
// connections open, like a network that drops packets.
type gate struct {
	path     string
	target   string
	listener net.Listener
	tasks    sync.WaitGroup

	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
	closed chan struct{}
	open   map[net.Conn]bool
}

func newGate(path, target string) (*gate, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	g := &gate{path: path, target: target, listener: listener, opened: make(chan struct{}), closed: make(chan struct{}), open: map[net.Conn]bool{}}
	close(g.opened)
	g.tasks.Go(g.accept)
	return g, nil
}

// shut stops forwarding until the returned function is called.
func (g *gate) shut() (reopen func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	opened := make(chan struct{})
	g.opened = opened
	return sync.OnceFunc(func() { close(opened) })
}

// cut closes all connections, like a killed etcd.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for connection := range g.open {
		_ = connection.Close() // it may have ended by itself
	}
}

func (g *gate) close() error {
	close(g.closed)
	err := g.listener.Close()
	g.cut()
	g.tasks.Wait()
	return err
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return // closed
		}
		g.tasks.Go(func() { g.serve(client) })
	}
}

func (g *gate) serve(client net.Conn) {
	defer client.Close()
	if !g.wait() {
		return
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "unix", g.target)
	if err != nil {
		return // etcd is down
	}
	defer server.Close()
	g.mu.Lock()
	g.open[client], g.open[server] = true, true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.open, client)
		delete(g.open, server)
	}()
	var directions sync.WaitGroup
	directions.Go(func() { g.forward(server, client) })
	directions.Go(func() { g.forward(client, server) })
	directions.Wait()
}

// wait waits until the gate is open, or returns false when it is closed.
func (g *gate) wait() bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return true
	case <-g.closed:
		return false
	}
}

func (g *gate) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !g.wait() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package freeport chooses ports for programs that need theirs before they listen, or again after a
// restart.
package freeport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"testing"
)

const (
	// The kernel does not use ports of this range for outgoing connections, so that the port of a
	// stopped program stays free.
	lowest, highest = 20000, 29999

	attempts = 10
)

// Find returns an unused port of 127.0.0.1.
func Find(ctx context.Context) (int, error) {
	var err error
	for range attempts {
		port := lowest + rand.IntN(highest-lowest)
		var listener net.Listener
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", Address(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("look for a free port on 127.0.0.1: %w", err)
}

// ForTest returns an address of 127.0.0.1 at which nothing listens.
func ForTest(t testing.TB) string {
	t.Helper()
	port, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Address(port)
}

// Refusing returns an address of 127.0.0.1 that refuses connections until the test ends. Its port is bound, so that no other
// server gets it, as it could get the port of a server that was closed.
func Refusing(t testing.TB) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("open a socket: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	syscall.CloseOnExec(socket)
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("bind a port of 127.0.0.1: %v", err)
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatalf("read the port of a socket: %v", err)
	}
	return Address(bound.(*syscall.SockaddrInet4).Port)
}

// Address returns the address of a port of 127.0.0.1.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

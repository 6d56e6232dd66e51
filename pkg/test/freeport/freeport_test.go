// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package freeport

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestRefusing: no client can connect, and no server can listen, as one could at the address of a closed server.
func TestRefusing(t *testing.T) {
	t.Parallel()
	address := Refusing(t)
	if connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to %s: %v, %v", address, connection, err)
	}
	if listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a listener at %s: %v, %v", address, listener, err)
	}
}

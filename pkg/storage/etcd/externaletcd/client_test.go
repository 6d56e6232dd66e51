// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package externaletcd

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// After a long outage the connection is tried as often as after a short one.
func TestReconnectInterval(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	defer listener.Close()
	var attempts atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			attempts.Add(1)
			conn.Close()
		}
	}()
	client, err := Dial([]string{"http://" + listener.Addr().String()}, nil, nil)
	expect.NoError(t, err)
	defer client.Close()
	client.ActiveConnection().Connect()
	poll.Until(t, "the etcd is tried twelve times", func() string {
		if n := attempts.Load(); n < 12 {
			return fmt.Sprintf("%d times", n)
		}
		return ""
	})
}

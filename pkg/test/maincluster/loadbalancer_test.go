// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

func newBalancer(t *testing.T, opts LoadBalancerOptions) *LoadBalancer {
	t.Helper()
	b, err := NewLoadBalancer(opts)
	expect.NoError(t, err)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newEcho starts a server that responds to each line with its address and the line.
func newEcho(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	address := listener.Addr().String()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					fmt.Fprintf(connection, "%s %s\n", address, lines.Text())
				}
			}()
		}
	}()
	return address
}

func dial(t *testing.T, b *LoadBalancer) net.Conn {
	t.Helper()
	connection, err := tryDial(t, b)
	expect.NoError(t, err)
	return connection
}

func tryDial(t *testing.T, b *LoadBalancer) (net.Conn, error) {
	t.Helper()
	connection, err := net.Dial("tcp", b.Address())
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { connection.Close() })
	return connection, connection.SetDeadline(time.Now().Add(30 * time.Second))
}

// wantReset fails if a new connection gets a response.
func wantReset(t *testing.T, b *LoadBalancer) {
	t.Helper()
	connection, err := tryDial(t, b)
	if err != nil {
		return
	}
	if endpoint, err := endpointOf(connection); err == nil {
		t.Errorf("a new connection reached %s", endpoint)
	}
}

// endpointOf returns the endpoint at the other end of a connection.
func endpointOf(connection net.Conn) (string, error) {
	if _, err := fmt.Fprintln(connection, "line"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	endpoint, _, _ := strings.Cut(line, " ")
	return endpoint, err
}

func TestBalancerIsRoundRobin(t *testing.T) {
	t.Parallel()
	b := newBalancer(t, LoadBalancerOptions{})
	endpoints := []string{newEcho(t), newEcho(t), newEcho(t)}
	for _, endpoint := range endpoints {
		b.Add(endpoint)
	}
	answered := map[string]int{}
	for range 9 {
		got, err := endpointOf(dial(t, b))
		expect.NoError(t, err)
		answered[got]++
	}
	for _, endpoint := range endpoints {
		if answered[endpoint] != 3 || b.Connections()[endpoint] != 3 {
			t.Errorf("endpoint %s answered %d of 9 and has %d connections, want 3", endpoint, answered[endpoint], b.Connections()[endpoint])
		}
	}
	b.SetReady(endpoints[0], false)
	for range 6 {
		got, err := endpointOf(dial(t, b))
		expect.NoError(t, err)
		if got == endpoints[0] {
			t.Error("an endpoint that is not ready got a connection")
		}
	}
}

func TestBalancerKeepsConnectionsOfRemovedEndpoints(t *testing.T) {
	t.Parallel()
	b := newBalancer(t, LoadBalancerOptions{})
	endpoint := newEcho(t)
	b.Add(endpoint)
	connection := dial(t, b)
	if _, err := endpointOf(connection); err != nil {
		t.Fatal(err)
	}
	b.Remove(endpoint)
	if got, err := endpointOf(connection); err != nil || got != endpoint {
		t.Errorf("an open connection got %q, %v after its endpoint was removed", got, err)
	}
	wantReset(t, b)
	connection.Close()
	poll.UntilDone(t, "the end of the connection", func() (bool, string) {
		return len(b.Connections()) == 0, fmt.Sprint(b.Connections())
	})
}

func TestBalancerResetsWithoutListener(t *testing.T) {
	t.Parallel()
	b := newBalancer(t, LoadBalancerOptions{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	b.Add(listener.Addr().String())
	listener.Close()
	wantReset(t, b)
}

func TestBalancerProbesReadiness(t *testing.T) {
	t.Parallel()
	ca, err := newAuthority("test-ca")
	expect.NoError(t, err)
	pair, err := ca.serving("test.example.svc")
	expect.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.cert, pair.key)
	expect.NoError(t, err)
	var ready atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)

	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	address := server.Listener.Addr().String()
	b := newBalancer(t, LoadBalancerOptions{ReadyTLS: &tls.Config{RootCAs: roots, ServerName: "test.example.svc"}, ProbeInterval: 5 * time.Millisecond})
	wrong := newBalancer(t, LoadBalancerOptions{ReadyTLS: &tls.Config{RootCAs: x509.NewCertPool()}, ProbeInterval: 5 * time.Millisecond})
	b.Add(address)
	wrong.Add(address)
	if len(b.Ready()) > 0 {
		t.Error("ready although /readyz fails")
	}
	ready.Store(true)
	poll.Until(t, "ready", func() string { return cmp.Diff([]string{address}, b.Ready()) })
	if len(wrong.Ready()) > 0 {
		t.Error("an endpoint with an unknown certificate counts as ready")
	}
	ready.Store(false)
	poll.UntilDone(t, "no longer ready", func() (bool, string) { return len(b.Ready()) == 0, fmt.Sprint(b.Ready()) })
}

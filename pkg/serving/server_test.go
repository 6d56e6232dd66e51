// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// service leads new connections to one replica, as a Service does once the others are not
// ready.
type service struct {
	cert, key []byte
	target    atomic.Pointer[replica]
	dials     atomic.Int32
}

func newService(t *testing.T) *service {
	t.Helper()
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("annex.annex-system.svc", nil, nil)
	expect.NoError(t, err)
	return &service{cert: certPEM, key: keyPEM}
}

// client returns the client of an aggregator: one transport, with HTTP/2 if enabled.
func (s *service) client(t *testing.T, protocols ...string) *http.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.cert)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: protocols},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			s.dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, network, s.target.Load().address)
		},
	}
	if len(protocols) == 0 {
		expect.NoError(t, http2.ConfigureTransport(transport))
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// replica is a Server, started by a stand-in for upstream.
type replica struct {
	*Server
	name    string
	address string
	stand   net.Listener
	ended   chan struct{}
}

// start starts a replica and leads new connections to it.
func (s *service) start(t *testing.T, name string, handler http.Handler, options Options) *replica {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	content, err := dynamiccertificates.NewStaticCertKeyContent("test", s.cert, s.key)
	expect.NoError(t, err)
	info := &genericapiserver.SecureServingInfo{Listener: listener, Cert: content, HTTP2MaxStreamsPerConnection: 1000}
	if options.ShutdownTimeout == 0 {
		options.ShutdownTimeout = 10 * time.Second
	}
	server, err := Replace(info, handler, options)
	expect.NoError(t, err)
	r := &replica{Server: server, name: name, address: listener.Addr().String(), stand: info.Listener, ended: make(chan struct{})}
	if r.stand.Addr() != listener.Addr() {
		t.Errorf("the address for upstream is %s", r.stand.Addr())
	}
	go func() {
		defer close(r.ended)
		if c, err := r.stand.Accept(); c != nil || !errors.Is(err, net.ErrClosed) {
			t.Errorf("upstream was given a connection %v, error %v", c, err)
		}
	}()
	t.Cleanup(r.stop)
	s.target.Store(r)
	return r
}

// stop stops the replica as upstream does, and waits.
func (r *replica) stop() {
	_ = r.stand.Close()
	<-r.ended
}

// leaveFor sends clients to other replicas, for the duration at most.
func (r *replica) leaveFor(t *testing.T, duration time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	r.Leave(ctx)
}

// unread returns a body that cannot be read twice, like the body of a proxied request.
func unread(size int) io.Reader {
	return struct{ io.Reader }{bytes.NewReader(make([]byte, size))}
}

// write sends a request with a body and returns the name of the replica that served it.
func write(ctx context.Context, client *http.Client, size int) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://annex.annex-system.svc/", unread(size))
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

// echo answers with a name after it has read everything.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, name)
	})
}

// TestNoRequestIsLost restarts replicas during writes that cannot be resent. With Go's own
// shutdown, each restart loses some.
func TestNoRequestIsLost(t *testing.T) {
	t.Parallel()
	for name, load := range map[string]func(ctx context.Context, send func()){
		"busy": busy,
		// Writes come whatever happens, as from a crowd.
		"crowd": func(ctx context.Context, send func()) { every(ctx, time.Millisecond, send) },
		// One now and then.
		"sparse": func(ctx context.Context, send func()) { every(ctx, 130*time.Millisecond, send) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			current := s.start(t, "0", echo("0"), Options{})
			client := s.client(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var sent, lost atomic.Int64
			var writers sync.WaitGroup
			writers.Go(func() {
				load(ctx, func() {
					_, err := write(ctx, client, 100<<(sent.Add(1)%8))
					if err != nil && ctx.Err() == nil && lost.Add(1) < 5 {
						t.Errorf("a request was lost: %v", err)
					}
				})
			})
			for i := range 2 {
				name := fmt.Sprint(i + 1)
				next := s.start(t, name, echo(name), Options{})
				current.leaveFor(t, MaxLeave)
				current.stop()
				current = next
			}
			cancel()
			writers.Wait()
			t.Logf("%d of %d requests were lost in 2 restarts", lost.Load(), sent.Load())
		})
	}
}

// busy calls send from 16 writers. Each waits for its responses, as kubectl and controllers do.
func busy(ctx context.Context, send func()) {
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for ctx.Err() == nil {
				send()
			}
		})
	}
	writers.Wait()
}

// every calls send repeatedly without waiting for the previous call.
func every(ctx context.Context, interval time.Duration, send func()) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for ticker := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
			sending.Go(send)
		}
	}
}

// TestLateClients: clients that reach the replica until shortly before its end lose no request.
func TestLateClients(t *testing.T) {
	t.Parallel()
	s := newService(t)
	old := s.start(t, "old", echo("old"), Options{})
	next := s.start(t, "new", echo("new"), Options{})
	s.target.Store(old)
	client := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	writers.Go(func() {
		busy(ctx, func() {
			if _, err := write(ctx, client, 2000); err != nil && ctx.Err() == nil {
				t.Errorf("a request was lost: %v", err)
				cancel()
			}
		})
	})
	time.AfterFunc(crossing+900*time.Millisecond, func() { s.target.Store(next) })
	old.leaveFor(t, MaxLeave)
	old.stop()
	cancel()
	writers.Wait()
	poll.UntilDone(t, "closed connections are forgotten", func() (bool, string) {
		old.mu.Lock()
		defer old.mu.Unlock()
		return len(old.clients) == 0, fmt.Sprint(len(old.clients), " are left")
	})
}

// TestOpenRequestsContinue: a watch and a slow write continue while their client leaves, and
// the next request goes elsewhere.
func TestOpenRequestsContinue(t *testing.T) {
	t.Parallel()
	s := newService(t)
	finish := make(chan struct{})
	old := s.start(t, "old", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			fmt.Fprint(w, "old")
			return
		}
		fmt.Fprint(w, "begin ")
		w.(http.Flusher).Flush()
		<-finish
		fmt.Fprint(w, "end")
	}), Options{})
	client := s.client(t)
	response, err := client.Get("https://annex.annex-system.svc/")
	expect.NoError(t, err)
	defer response.Body.Close()

	s.start(t, "new", echo("new"), Options{})
	old.leaveFor(t, time.Second)
	poll.UntilDone(t, "the new replica answers", func() (bool, string) {
		got, err := write(t.Context(), client, 10)
		expect.NoError(t, err)
		return got == "new", got
	})
	for range 2 {
		if got, err := write(t.Context(), client, 10); err != nil || got != "new" {
			t.Errorf("answered by %q, error %v", got, err)
		}
	}
	if dials := s.dials.Load(); dials != 2 {
		t.Errorf("%d connections were made, want 2", dials)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); old.stop() }()
	close(finish)
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "begin end" {
		t.Errorf("the open request ended with %q, error %v", body, err)
	}
	<-stopped
}

// TestMaxAge: connections change while requests continue, and none is lost.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]Options{
		"by age":    {MaxAge: 20 * time.Millisecond},
		"by chance": {Chance: 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.start(t, "a", echo("a"), options)
			client := s.client(t)
			var writers sync.WaitGroup
			for range 8 {
				writers.Go(func() {
					for until := time.Now().Add(poll.Timeout); !t.Failed() && s.dials.Load() < 5 && time.Now().Before(until); {
						if _, err := write(t.Context(), client, 2000); err != nil {
							t.Errorf("a request was lost: %v", err)
						}
					}
				})
			}
			writers.Wait()
			if dials := s.dials.Load(); dials < 5 {
				t.Errorf("%d connections were made in %s", dials, poll.Timeout)
			}
		})
	}
}

// TestRequestsThatDoNotEnd: they are closed after the timeout, so that the replica stops.
func TestRequestsThatDoNotEnd(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r := s.start(t, "a", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}), Options{ShutdownTimeout: 100 * time.Millisecond})
	response, err := s.client(t).Get("https://annex.annex-system.svc/")
	expect.NoError(t, err)
	defer response.Body.Close()
	r.stop()
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("a request that was cut off looks complete")
	}
}

func TestClientsWithoutALoginAreServed(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(t, "a", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto, " ", r.TLS != nil, " ", r.Context().Value(http.ServerContextKey) != nil)
	}), Options{})
	for protocol, protocols := range map[string][]string{"HTTP/2.0": nil, "HTTP/1.1": {"http/1.1"}} {
		got, err := write(t.Context(), s.client(t, protocols...), 0)
		if err != nil || !strings.HasPrefix(got, protocol+" true true") {
			t.Errorf("%s: %q, error %v", protocol, got, err)
		}
	}
}

// TestLateConnection: the server does not wait for a connection whose handshake ends after
// it has begun to stop.
func TestLateConnection(t *testing.T) {
	t.Parallel()
	s := newService(t)
	r := s.start(t, "a", echo("a"), Options{ShutdownTimeout: time.Hour})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.cert)
	conn, err := tls.Dial("tcp", r.address, &tls.Config{
		RootCAs: roots, ServerName: "annex.annex-system.svc", NextProtos: []string{http2.NextProtoTLS},
		VerifyConnection: func(tls.ConnectionState) error {
			go r.stop()
			for listens := true; listens; {
				other, err := net.Dial("tcp", r.address)
				if listens = err == nil; listens {
					other.Close()
				}
			}
			return nil
		},
	})
	expect.NoError(t, err)
	defer conn.Close()
	_, err = (&http2.Transport{}).NewClientConn(conn)
	expect.NoError(t, err)
	select {
	case <-r.ended:
	case <-time.After(time.Minute):
		t.Error("the server waits for a connection without requests")
	}
}

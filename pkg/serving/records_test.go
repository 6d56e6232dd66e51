// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// countingConn counts writes.
type countingConn struct {
	net.Conn
	writes atomic.Int64
}

// Write implements net.Conn.
func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestRecordsAreSentTogether writes frames and counts what is sent for each.
func TestRecordsAreSentTogether(t *testing.T) {
	t.Parallel()
	s := newService(t)
	pair, err := tls.X509KeyPair(s.cert, s.key)
	expect.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.cert)
	near, far := net.Pipe()
	counted := &countingConn{Conn: near}
	c := newConn(tls.Server(&records{Conn: counted}, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), newClient(100))
	received := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(tls.Client(far, &tls.Config{RootCAs: roots, ServerName: "annex.annex-system.svc", MinVersion: tls.VersionTLS12}))
		received <- all
	}()
	var sent bytes.Buffer
	write := func(frame func(*http2.Framer) error) int64 {
		var text bytes.Buffer
		expect.NoError(t, frame(http2.NewFramer(&text, nil)))
		sent.Write(text.Bytes())
		before := counted.writes.Load()
		n, err := c.Write(text.Bytes())
		expect.NoError(t, err)
		if n != text.Len() {
			t.Errorf("%d of %d bytes were written", n, text.Len())
		}
		return counted.writes.Load() - before
	}
	expect.NoError(t, c.Handshake())
	write(func(f *http2.Framer) error { return f.WriteSettings() })
	for _, size := range []int{1, 100, maxRecord, 1, maxRecord - 9, 5 * maxRecord, maxRecord, maxRecord} {
		payload := make([]byte, size)
		_, _ = rand.Read(payload)
		if got := write(func(f *http2.Framer) error { return f.WriteData(1, false, payload) }); got != 1 && size >= maxRecord {
			t.Errorf("a frame of %d bytes was sent in %d writes", size, got)
		}
	}
	expect.NoError(t, c.Close())
	if got := <-received; !bytes.Equal(got, sent.Bytes()) {
		t.Errorf("the client got %d bytes, other than the %d that were sent", len(got), sent.Len())
	}
	if _, err := c.Write(make([]byte, maxRecord+9)); err == nil {
		t.Error("a write to a closed connection succeeds")
	}
}

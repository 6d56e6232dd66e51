// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package externaletcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
)

// Probe returns why an endpoint does not answer, nil if an etcd, or a server that resembles one,
// does. ctx bounds it.
func Probe(ctx context.Context, endpoint string, tlsConfig *tls.Config) error {
	begin := time.Now()
	if err := probe(ctx, endpoint, tlsConfig); err != nil {
		return explain(err, time.Since(begin).Round(time.Second))
	}
	return nil
}

// probe opens one connection as gRPC would, up to the server's first frame. gRPC itself logs the
// cause of a failure and retries; and a TLS server rejects a client certificate only after the
// client's handshake, so dialling alone would not detect that.
func probe(ctx context.Context, endpoint string, tlsConfig *tls.Config) error {
	network, address, secure, err := parseEndpoint(endpoint)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return fmt.Errorf("set a deadline: %w", err)
		}
	}
	if secure {
		tlsConn := tls.Client(conn, clientTLS(tlsConfig, address))
		if err := tlsConn.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS handshake: %w", err)
		}
		conn = tlsConn
	}
	return greet(conn, secure)
}

func parseEndpoint(endpoint string) (network, address string, secure bool, err error) {
	const notURL = "is not a URL that begins with https://, http:// or unix://"
	u, err := url.Parse(endpoint)
	if err != nil {
		return "", "", false, errors.New(notURL) // the parser's words do not help
	}
	switch u.Scheme {
	case "http", "https":
		if u.Port() == "" {
			return "", "", false, errors.New("names no port")
		}
		return "tcp", u.Host, u.Scheme == "https", nil
	case "unix", "unixs":
		return "unix", u.Host + u.Path, u.Scheme == "unixs", nil
	default:
		return "", "", false, errors.New(notURL)
	}
}

func clientTLS(base *tls.Config, address string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		config = base.Clone()
	}
	if config.ServerName == "" {
		if host, _, err := net.SplitHostPort(address); err == nil {
			config.ServerName = host
		} else {
			config.ServerName = "localhost"
		}
	}
	config.NextProtos = []string{"h2"}
	return config
}

// The preface of an HTTP/2 connection (RFC 9113, 3.4) with an empty SETTINGS frame, which the
// server answers with a SETTINGS frame of its own.
const (
	clientHello       = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	frameHeaderLength = 9
	frameTypeOffset   = 3
	frameTypeSettings = 0x04
)

// greet sends the preface and waits for the server's preface.
func greet(conn net.Conn, secure bool) error {
	_, writeErr := io.WriteString(conn, clientHello)
	// What the server sent before it closed explains more than the failed write.
	var header [frameHeaderLength]byte
	_, err := io.ReadFull(conn, header[:])
	var remote *net.OpError
	switch {
	case err == nil && header[frameTypeOffset] == frameTypeSettings:
		return nil
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("TLS handshake: %w", err)
	case err != nil && isTimeout(err):
		return err
	}
	hint := "does it want https?"
	if secure {
		hint = "is it an etcd?"
	}
	for _, cause := range []error{err, writeErr} {
		if cause != nil {
			return fmt.Errorf("did not answer as an etcd does, %s: %w", hint, cause)
		}
	}
	return fmt.Errorf("did not answer as an etcd does, %s", hint)
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || (errors.As(err, &netErr) && netErr.Timeout())
}

// explain replaces errors of time-outs by the time waited.
func explain(err error, timeout time.Duration) error {
	if isTimeout(err) {
		return fmt.Errorf("no answer within %s", timeout)
	}
	return err
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// handshake connects the administrator to a server of the serving certificate.
func handshake(t *testing.T, files *Files, serverName string, now time.Time) error {
	t.Helper()
	serving, err := tls.LoadX509KeyPair(files.Serving, files.Serving)
	if err != nil {
		return err
	}
	admin, err := tls.LoadX509KeyPair(files.Admin, files.Admin)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(mustRead(t, files.CACert))) {
		return errors.New("no CA")
	}
	at := func() time.Time { return now }
	clientConn, serverConn := net.Pipe()
	defer clientConn.Close()
	server := tls.Server(serverConn, &tls.Config{Certificates: []tls.Certificate{serving}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, Time: at})
	done := make(chan error, 1)
	go func() {
		defer serverConn.Close()
		done <- server.Handshake()
	}()
	if err := tls.Client(clientConn, &tls.Config{Certificates: []tls.Certificate{admin}, RootCAs: roots, ServerName: serverName, Time: at}).Handshake(); err != nil {
		return err
	}
	return <-done
}

func copyOther(names ...string) func(t *testing.T, dir, otherDir string) {
	return func(t *testing.T, dir, otherDir string) {
		t.Helper()
		for _, name := range names {
			mustWrite(t, filepath.Join(dir, name), mustRead(t, filepath.Join(otherDir, name)))
		}
	}
}

func truncate(name string, size int64) func(t *testing.T, dir, otherDir string) {
	return func(t *testing.T, dir, _ string) {
		t.Helper()
		expect.NoError(t, os.Truncate(filepath.Join(dir, name), size))
	}
}

func mustEnsure(t *testing.T, dir string, opts Options) *Files {
	t.Helper()
	files, err := Ensure(dir, opts)
	expect.NoError(t, err)
	return files
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	expect.NoError(t, err)
	return string(raw)
}

func mustWrite(t *testing.T, path, body string) {
	t.Helper()
	expect.NoError(t, os.WriteFile(path, []byte(body), 0o600))
}

func mustRemove(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		expect.NoError(t, os.Remove(path))
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package externaletcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
)

func TestCheckAcceptsThisEtcd(t *testing.T) {
	t.Parallel()
	plain := startEtcd(t, nil)
	certs := newCerts(t)
	secure := startEtcd(t, certs)
	down := freeport.Refusing(t)
	tests := map[string]storagebackend.TransportConfig{
		"plain":             {ServerList: []string{plain}},
		"TLS":               {ServerList: []string{secure}, TrustedCAFile: certs.ca, CertFile: certs.cert, KeyFile: certs.key},
		"one of two":        {ServerList: []string{"http://" + down, plain}},
		"one of two, again": {ServerList: []string{plain, "http://" + down}},
	}
	for name, config := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := Check(t.Context(), config); err != nil {
				t.Error(err)
			}
			annexEtcd, err := NewClient(config)
			expect.NoError(t, err)
			defer annexEtcd.Close()
			if _, err := annexEtcd.Get(t.Context(), "key"); err != nil {
				t.Errorf("read through NewClient: %v", err)
			}
		})
	}
}

func TestCheckErrors(t *testing.T) {
	t.Parallel()
	certs := newCerts(t)
	secure := startEtcd(t, certs)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	down := freeport.Refusing(t)
	junk := filepath.Join(t.TempDir(), "junk")
	expect.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	tests := map[string]struct {
		config storagebackend.TransportConfig
		want   string
	}{
		"none":            {servers(), "--etcd-servers: no endpoint given"},
		"down":            {servers("http://" + down), "--etcd-servers: http://" + down + ": dial tcp " + down + ": connect: connection refused"},
		"all down":        {servers("http://"+down, "https://"+down), "connection refused (and none of 1 other endpoints can be used)"},
		"no socket":       {servers("unix:///nowhere/client.sock"), "no such file or directory"},
		"no URL":          {servers("127.0.0.1:2379"), "is not a URL that begins with"},
		"no port":         {servers("http://127.0.0.1"), "names no port"},
		"unknown CA":      {servers(secure), "TLS handshake: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"no client cert":  {storagebackend.TransportConfig{ServerList: []string{secure}, TrustedCAFile: certs.ca}, "TLS handshake: remote error: tls: certificate required"},
		"plain to TLS":    {servers(strings.Replace(secure, "https", "http", 1)), "did not answer as an etcd does, does it want https?"},
		"TLS to plain":    {servers(strings.Replace(web.URL, "http", "https", 1)), "TLS handshake: tls: first record does not look like a TLS handshake"},
		"a web server":    {servers(web.URL), "did not answer as an etcd does"},
		"CA file missing": {storagebackend.TransportConfig{ServerList: []string{secure}, TrustedCAFile: "/nowhere/ca"}, "--etcd-cafile: open /nowhere/ca: no such file"},
		"CA file is junk": {storagebackend.TransportConfig{ServerList: []string{secure}, TrustedCAFile: junk}, junk},
		"cert is junk":    {storagebackend.TransportConfig{ServerList: []string{secure}, TrustedCAFile: certs.ca, CertFile: junk, KeyFile: certs.key}, junk},
		"too old":         {servers(startFake(t, "3.5.12", 1)), "etcd 3.5.12 is too old, annex needs 3.5.13 or newer"},
		"one is too old":  {servers(startFake(t, version.Version, 1), startFake(t, "3.4.33", 1)), "etcd 3.4.33 is too old"},
		"no leader":       {servers(startFake(t, version.Version, 0)), "its cluster has no leader"},
		"no cluster":      {servers((&etcdtest.Imitation{}).Start(t)), "is not an etcd, it only imitates one: its status names no cluster. annex would lose changes there"},
		"transactions":    {servers((&etcdtest.Imitation{Cluster: 7}).Start(t)), "is not an etcd, it only imitates one: it does not perform transactions as etcd does: unsupported transaction"},
		"success always": {servers((&etcdtest.Imitation{Cluster: 7, Answer: &etcdserverpb.TxnResponse{Succeeded: true}}).Start(t)),
			"it answers a transaction otherwise than etcd"},
		"odd version": {servers(startFake(t, "latest", 1)), `has the version "latest"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect.ErrorLine(t, Check(t.Context(), tt.config), tt.want)
		})
	}
}

func TestCheckTimesOut(t *testing.T) {
	t.Parallel()
	l := listen(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := Check(ctx, servers("http://"+l.Addr().String()))
	if err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("got %v", err)
	}
}

func servers(list ...string) storagebackend.TransportConfig {
	return storagebackend.TransportConfig{ServerList: list}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

type certFiles struct{ ca, cert, key string }

// newCerts makes one certificate that is its own CA, for both sides.
func newCerts(t *testing.T) *certFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	certDER, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	expect.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	cert := write("cert", "CERTIFICATE", certDER)
	return &certFiles{ca: cert, cert: cert, key: write("key", "PRIVATE KEY", keyDER)}
}

func startEtcd(t *testing.T, certs *certFiles) string {
	t.Helper()
	return etcdtest.StartTCP(t, func(config *embed.Config) {
		if certs != nil {
			config.ListenClientUrls[0].Scheme = "https"
			config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = certs.cert, certs.key
			config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = certs.ca, true
		}
	}).URL
}

// fakeEtcd stands for versions that cannot run in this process.
type fakeEtcd struct {
	etcdserverpb.UnimplementedMaintenanceServer
	version string
	leader  uint64
}

// Status implements etcdserverpb.MaintenanceServer.
func (f *fakeEtcd) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1}, Version: f.version, Leader: f.leader}, nil
}

func startFake(t *testing.T, version string, leader uint64) string {
	t.Helper()
	l := listen(t)
	server := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(server, &fakeEtcd{version: version, leader: leader})
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(l); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return "http://" + l.Addr().String()
}

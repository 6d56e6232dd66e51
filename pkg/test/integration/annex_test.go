// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/annex-dev/annex/pkg/storage/etcd/keys"
	"github.com/annex-dev/annex/pkg/storage/layer/compression"
	"github.com/annex-dev/annex/pkg/test/clients"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/testserver"
)

// annex is a server with clients that act as its administrator.
type annex struct {
	*testserver.Server
	*clients.Clients
}

func newAnnex(t *testing.T, server *testserver.Server) *annex {
	t.Helper()
	return &annex{Server: server, Clients: clients.For(t, server.AnnexConfig)}
}

// startAnnex starts a server for one test.
func startAnnex(t *testing.T, flags ...string) *annex {
	t.Helper()
	return newAnnex(t, testserver.Start(t, flags...))
}

var lastNamespace atomic.Int64

// newNamespace creates a namespace that no other test uses.
func (a *annex) newNamespace(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", lastNamespace.Add(1))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	expect.Create(t, a.Kube.CoreV1().Namespaces(), namespace)
	return name
}

// response is a response with its whole body.
type response = clients.Response

// request sends one request as the administrator. Headers come in pairs.
func (a *annex) request(t *testing.T, method, path, body string, headers ...string) response {
	t.Helper()
	return send(t, a.HTTP, method, a.URL+path, body, headers...)
}

// get sends a GET as the administrator.
func (a *annex) get(t *testing.T, path string, headers ...string) response {
	t.Helper()
	return a.request(t, http.MethodGet, path, "", headers...)
}

func send(t *testing.T, annexHTTP *http.Client, method, url, body string, headers ...string) response {
	t.Helper()
	r, err := clients.Send(t.Context(), annexHTTP, method, url, body, headers...)
	expect.NoError(t, err)
	return r
}

// etcd returns a client of the server's embedded etcd.
func (a *annex) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	socket := filepath.Join(a.DataDir, "etcd", "client.sock")
	if elsewhere, err := os.ReadFile(filepath.Join(a.DataDir, "socket-dir")); err == nil {
		socket = filepath.Join(strings.TrimSpace(string(elsewhere)), "client.sock")
	}
	return newEtcdClient(t, clientv3.Config{Endpoints: []string{"unix://" + socket}})
}

func newEtcdClient(t *testing.T, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop()
	annexEtcd, err := clientv3.New(config)
	expect.NoError(t, err, "create a client of etcd")
	t.Cleanup(func() { annexEtcd.Close() })
	return annexEtcd
}

func etcdPut(t *testing.T, annexEtcd *clientv3.Client, key, value string) {
	t.Helper()
	_, err := annexEtcd.Put(t.Context(), key, value)
	expect.NoError(t, err, "write %s to etcd", key)
}

// etcdValue reads what etcd holds under a key.
func etcdValue(t *testing.T, annexEtcd *clientv3.Client, key string) []byte {
	t.Helper()
	found, err := annexEtcd.Get(t.Context(), key)
	expect.NoError(t, err, "read %s from etcd", key)
	if len(found.Kvs) != 1 {
		t.Fatalf("etcd has no key %s", key)
	}
	value, err := compression.Decode(found.Kvs[0].Value, func(id uint32) ([]byte, error) {
		return trainedDictionary(t.Context(), annexEtcd, id)
	})
	expect.NoError(t, err, "decode %s", key)
	return value
}

// trainedDictionary reads a dictionary, which a server with many objects of a resource has.
func trainedDictionary(ctx context.Context, annexEtcd *clientv3.Client, id uint32) ([]byte, error) {
	all, err := annexEtcd.Get(ctx, keys.AllDictionaries("/annex"), clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range all.Kvs {
		if strings.HasSuffix(string(kv.Key), fmt.Sprintf("/%d", id)) {
			return kv.Value, nil
		}
	}
	return nil, fmt.Errorf("etcd has no dictionary %d", id)
}

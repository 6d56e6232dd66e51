// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
)

// TestExternalEtcd serves from an external etcd that stops and starts: meanwhile writes fail, and
// afterwards everything works without a restart of annex.
func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "annex-e2e-") // short: it holds a socket
	expect.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	config := embeddedetcd.Config{Dir: filepath.Join(dir, "data"), SocketPath: filepath.Join(dir, "run", "client.sock")}
	startEtcd := func() *embeddedetcd.Server {
		t.Helper()
		etcd, err := embeddedetcd.Start(t.Context(), config)
		expect.NoError(t, err)
		return etcd
	}
	etcd := startEtcd()
	t.Cleanup(func() { _ = etcd.Close() }) // Close may be called twice

	dataDir := t.TempDir()
	s := startServerIn(t, dataDir, "--etcd-servers=unix://"+config.SocketPath, "--etcd-prefix=/elsewhere")
	s.kubectl.run(t, "apply", "-f", widgetCRD)
	s.kubectl.run(t, "wait", "--for=condition=Established", "-f", widgetCRD)
	s.kubectl.feed(t, widget("default", "before", `{}`), "create", "-f", "-")
	if _, err := os.Stat(filepath.Join(dataDir, "etcd")); !os.IsNotExist(err) {
		t.Errorf("annex created an embedded etcd: %v", err)
	}
	if kept, err := etcd.Client().Get(t.Context(), "/elsewhere/example.com/widgets/default/before"); err != nil || kept.Count != 1 {
		t.Errorf("the widget is not below --etcd-prefix: %v, %v", kept, err)
	}
	s.kubectl.run(t, "wait", "store/default", "--for=condition=Ready", "--timeout=60s")
	expect.Contains(t, s.kubectl.run(t, "get", "store", "default", "-o", "jsonpath={.spec}"), config.SocketPath)

	expect.NoError(t, etcd.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	during := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "during"}, "spec": map[string]any{},
	}}
	if _, err := s.Dynamic.Resource(widgets).Namespace("default").Create(ctx, during, metav1.CreateOptions{}); err == nil {
		t.Error("a write was acknowledged without etcd")
	}

	etcd = startEtcd()
	poll.UntilDone(t, "a write after etcd is back", func() (bool, string) {
		result := s.kubectl.try(t, widget("default", "after", `{}`), "apply", "-f", "-")
		return result.code == 0, result.stderr
	})
	s.kubectl.run(t, "get", "widget", "before", "after", "-n", "default")
	s.kubectl.run(t, "wait", "store/default", "--for=condition=Ready", "--timeout=60s")
	s.kubectl.run(t, "wait", "hostedresource/widgets.example.com", "--for=condition=Ready", "--timeout=60s")
	stop(t, s.Annex)
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package serving

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/annex-dev/annex/pkg/test/annextest"
	"github.com/annex-dev/annex/pkg/test/expect"
)

const (
	auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, resources: [{group: hosting.annex.dev}]}
`
	encryptionConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: ["*.*"]
  providers: [{secretbox: {keys: [{name: key1, secret: a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=}]}}]
`
	tracingConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
samplingRatePerMillion: 1000000
endpoint: `
)

// TestObserved: audit, encryption and tracing work as in standalone mode.
func TestObserved(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	spans, endpoint := startSpanCollector(t)
	log := filepath.Join(dir, "audit.log")
	annex := annextest.Start(t, mainCluster,
		"--audit-policy-file="+file("audit.yaml", auditPolicy), "--audit-log-path="+log,
		"--encryption-provider-config="+file("encryption.yaml", encryptionConfig),
		"--tracing-config-file="+file("tracing.yaml", tracingConfig+endpoint))

	mallory, err := mainCluster.ConfigFor("mallory")
	expect.NoError(t, err)
	// Requests that the main cluster refuses do not reach annex's log.
	if got, body := get(t, annex.ConfigAs(mallory), stores); got != http.StatusForbidden {
		t.Errorf("mallory, direct: %d: %s", got, body)
	}
	if got, body := get(t, mainCluster.Config, stores); got != http.StatusOK {
		t.Errorf("the main cluster's administrator, through it: %d: %s", got, body)
	}
	for _, path := range []string{"/statusz", "/flagz"} {
		if got, body := get(t, annex.ConfigAs(mallory), path); got != http.StatusForbidden {
			t.Errorf("%s for mallory: %d: %s", path, got, body)
		}
		if got, body := get(t, annex.ConfigAs(mainCluster.Config), path); got != http.StatusOK {
			t.Errorf("%s for the main cluster's administrator: %d: %s", path, got, body)
		}
	}
	wantEncrypted(t, annex.DataDir)
	annex.Stop(t)
	if spans.Load() == 0 {
		t.Error("no spans were exported")
	}
	content, err := os.ReadFile(log)
	expect.NoError(t, err)
	for user, decision := range map[string]string{"mallory": `"code":403`, "system:masters": `"code":200`} {
		found := false
		for line := range strings.Lines(string(content)) {
			found = found || strings.Contains(line, stores) && strings.Contains(line, fmt.Sprintf("%q", user)) && strings.Contains(line, decision)
		}
		if !found {
			t.Errorf("the log has no line with %s and %s:\n%s", user, decision, content)
		}
	}
}

// wantEncrypted fails if the embedded etcd holds unencrypted values.
func wantEncrypted(t *testing.T, dataDir string) {
	t.Helper()
	socket := filepath.Join(dataDir, "etcd", "client.sock")
	if elsewhere, err := os.ReadFile(filepath.Join(dataDir, "socket-dir")); err == nil {
		socket = filepath.Join(strings.TrimSpace(string(elsewhere)), "client.sock")
	}
	annexEtcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socket}, Logger: zap.NewNop()})
	expect.NoError(t, err)
	defer annexEtcd.Close()
	found, err := annexEtcd.Get(t.Context(), "/annex/", clientv3.WithPrefix())
	if err != nil || len(found.Kvs) == 0 {
		t.Fatalf("read from etcd: %v, %v", found, err)
	}
	for _, kv := range found.Kvs {
		// The ownership of an etcd is read before any encryption key.
		if !strings.HasPrefix(string(kv.Key), "/annex/_annex/") && !bytes.HasPrefix(kv.Value, []byte("k8s:enc:secretbox:v1:key1:")) {
			t.Errorf("etcd holds under %s: %.60q", kv.Key, kv.Value)
		}
	}
}

// spanCollector counts the spans that an OpenTelemetry collector receives from annex.
type spanCollector struct {
	coltracepb.UnimplementedTraceServiceServer
	atomic.Int64
}

// Export implements the OTLP service.
func (c *spanCollector) Export(_ context.Context, request *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, resource := range request.ResourceSpans {
		if strings.Contains(resource.Resource.String(), `"annex"`) {
			c.Add(int64(len(resource.ScopeSpans)))
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func startSpanCollector(t *testing.T) (c *spanCollector, endpoint string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	c = &spanCollector{}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, c)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return c, listener.Addr().String()
}

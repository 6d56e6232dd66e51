// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	flagzv1beta1 "k8s.io/apiserver/pkg/server/flagz/api/v1beta1"
	statuszv1beta1 "k8s.io/apiserver/pkg/server/statusz/api/v1beta1"

	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/freeport"
)

// spanCollector is an OpenTelemetry collector that keeps the received spans.
type spanCollector struct {
	coltracepb.UnimplementedTraceServiceServer

	mu       sync.Mutex
	spans    []*tracepb.Span
	services map[string]bool
}

// Export receives spans.
func (c *spanCollector) Export(_ context.Context, request *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, attribute := range resource.Resource.Attributes {
			if attribute.Key == "service.name" {
				c.services[attribute.Value.GetStringValue()] = true
			}
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// trace returns the spans of one trace, by name.
func (c *spanCollector) trace(id string) map[string]*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]*tracepb.Span{}
	for _, span := range c.spans {
		if hex.EncodeToString(span.TraceId) == id {
			found[span.Name] = span
		}
	}
	return found
}

func startSpanCollector(t *testing.T) (c *spanCollector, endpoint string) {
	t.Helper()
	c = &spanCollector{services: map[string]bool{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, c)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return c, listener.Addr().String()
}

func tracingFlag(t *testing.T, endpoint string, rate int) string {
	t.Helper()
	return "--tracing-config-file=" + writeFile(t, "tracing.yaml", fmt.Appendf(nil, `
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: %s
samplingRatePerMillion: %d
`, endpoint, rate))
}

// TestTracing traces a request of a client from the filters to etcd, for a compiled-in kind
// and for a custom resource.
func TestTracing(t *testing.T) {
	t.Parallel()
	collector, endpoint := startSpanCollector(t)
	widgets := startAnnex(t, tracingFlag(t, endpoint, 0)).installCRD(t, newCRD(t, anySchema))
	const parent = "00f067aa0ba902b7"
	traces := map[string]struct{ path, body, span string }{
		"4bf92f3577b34da6a3ce929d0e0e4736": {
			"/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"traced"}}`, "POST /api/v1/namespaces/{:namespace}/configmaps",
		},
		"4bf92f3577b34da6a3ce929d0e0e4737": {
			widgets.path("v1"), `{"apiVersion":"` + widgets.group + `/v1","kind":"Widget","metadata":{"name":"traced"}}`,
			"POST /apis/" + widgets.group + "/v1/namespaces/{:namespace}/widgets",
		},
	}
	for id, request := range traces {
		got := widgets.annex.request(t, http.MethodPost, request.path, request.body, "traceparent", "00-"+id+"-"+parent+"-01")
		if got.Code != http.StatusCreated {
			t.Fatalf("%s: %s", request.path, got)
		}
	}
	widgets.annex.Stop(t) // sends all spans
	for id, request := range traces {
		spans := collector.trace(id)
		var names []string
		for name := range spans {
			names = append(names, name)
		}
		for _, want := range []string{request.span, "audit", "authorization", "Create", "etcdserverpb.KV/Txn"} {
			if spans[want] == nil {
				t.Errorf("%s: no span %q, only %q", request.path, want, names)
			}
		}
		if root := spans[request.span]; root == nil || hex.EncodeToString(root.ParentSpanId) != parent {
			t.Errorf("%s: the span of the request is not the client's child: %v", request.path, root)
		}
	}
	if !collector.services["annex"] {
		t.Errorf("spans are of %v", collector.services)
	}
	// No other request is traced, and the rate is 0.
	for _, span := range collector.spans {
		if _, ours := traces[hex.EncodeToString(span.TraceId)]; !ours {
			t.Fatalf("an unrequested span: %s", span.Name)
		}
	}
}

// TestTracingSampling traces requests of clients that do not trace.
func TestTracingSampling(t *testing.T) {
	t.Parallel()
	collector, endpoint := startSpanCollector(t)
	a := startAnnex(t, tracingFlag(t, endpoint, 1_000_000))
	a.get(t, "/api/v1/namespaces/default")
	a.Stop(t)
	if !slices.ContainsFunc(collector.spans, func(span *tracepb.Span) bool {
		return span.Name == "GET /api/v1/namespaces/{:namespace}/namespaces/{:name}"
	}) {
		t.Error("the request was not traced")
	}
}

// TestTracingWithoutCollector serves and stops while the collector is down.
func TestTracingWithoutCollector(t *testing.T) {
	t.Parallel()
	a := startAnnex(t, tracingFlag(t, freeport.Refusing(t), 1_000_000))
	a.createConfigMap(t, "default", "c", "text")
	a.Stop(t)
}

// TestStatusAndFlags reads /statusz and /flagz as text and as JSON, and checks who may.
func TestStatusAndFlags(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, "tokens.csv", []byte(tokenFile+"monitor-token,prometheus,3,system:monitoring\n"))
	a := startAnnex(t, "--token-auth-file="+tokens)
	for path, want := range map[string][]string{
		"/statusz": {"apiserver statusz", "1.37", "/readyz", "/metrics"},
		"/flagz":   {"apiserver flagz", "token-auth-file", tokens, "data-dir", a.DataDir, "secure-port"},
	} {
		got := a.get(t, path, "Accept", "text/plain")
		expect.Contains(t, string(got.Body), want...)
		for name, test := range map[string]struct {
			login *http.Client
			code  int
		}{
			"no login":          {a.httpClientAs(t, nil), http.StatusUnauthorized},
			"no rights":         {a.httpClientAs(t, bearerToken(outsiderToken)), http.StatusForbidden},
			"a monitor":         {a.httpClientAs(t, bearerToken("monitor-token")), http.StatusOK},
			"the administrator": {a.HTTP, http.StatusOK},
		} {
			send(t, test.login, http.MethodGet, a.URL+path, "").Expect(t, test.code, "%s for %s", path, name)
		}
	}
	var status statuszv1beta1.Statusz
	a.get(t, "/statusz", "Accept", "application/json;as=Statusz;v=v1beta1;g=config.k8s.io").Into(t, &status)
	if status.StartTime.IsZero() || !slices.Contains(status.Paths, "/livez") {
		t.Errorf("the status is %+v", status)
	}
	var flags flagzv1beta1.Flagz
	a.get(t, "/flagz", "Accept", "application/json;as=Flagz;v=v1beta1;g=config.k8s.io").Into(t, &flags)
	if flags.Flags["token-auth-file"] != tokens || flags.Flags["watch-cache"] != "true" {
		t.Errorf("the flags are %v", flags.Flags)
	}
}

// TestFeatureGateMetrics compares the metrics of feature gates with the flag. Gates are
// global to a process.
func TestFeatureGateMetrics(t *testing.T) {
	t.Parallel()
	a := startAnnexProcess(t, "--feature-gates=ComponentStatusz=false,StorageVersionAPI=false")
	metrics := string(a.get(t, "/metrics", "Accept", "text/plain").Body)
	for _, want := range []string{
		`kubernetes_feature_enabled{name="ComponentFlagz",stage="BETA"} 1`,
		`kubernetes_feature_enabled{name="ComponentStatusz",stage="BETA"} 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(metrics, "apiserver_storage_size_bytes") {
		t.Error("/metrics has upstream's size of etcd: without etcd each scrape waits 20 s for it")
	}
	for path, code := range map[string]int{"/statusz": http.StatusNotFound, "/flagz": http.StatusOK} {
		a.get(t, path).Expect(t, code, "%s", path)
	}
}

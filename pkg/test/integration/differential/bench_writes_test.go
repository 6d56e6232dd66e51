// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package differential

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/storage/etcd/embeddedetcd/etcdtest"
	"github.com/annex-dev/annex/pkg/test/crds"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/test/poll"
	"github.com/annex-dev/annex/pkg/test/process"
)

const (
	certificates = "/apis/cert-manager.io/v1/namespaces/default/certificates"
	// writers is the number of clients that write at the same time.
	writers = 4
)

// BenchmarkWrites writes certificates of 2.5 kB, with cert-manager's schema, to a server without encoded reads, to one with
// them, and to one that plans writes. Each is a process with an etcd of its own in the test process, so
// that cpu-µs/op, server-allocs/op and server-B/op measure the server alone.
func BenchmarkWrites(b *testing.B) {
	servers := map[string]*remote{
		"upstream": startRemote(b, "EncodedReads=false"), "annex": startRemote(b, "PlannedWrites=false"), "planned": startRemote(b, "PlannedWrites=true"),
	}
	for _, operation := range []string{"create", "update", "status", "apply", "patch", "delete"} {
		for _, side := range []string{"upstream", "annex", "planned"} {
			b.Run(operation+"/"+side, func(b *testing.B) { servers[side].measure(b, operation) })
		}
	}
}

// remote is a server in a process of its own.
type remote struct {
	url  string
	http *http.Client
	// objects numbers those that are created.
	objects atomic.Int64
}

func startRemote(b *testing.B, gate string) *remote {
	b.Helper()
	//nolint:gosec // the test binary
	command := exec.Command(os.Args[0], "serve", "--data-dir="+b.TempDir(), "--secure-port=0",
		"--etcd-servers="+etcdtest.StartTCP(b, nil).URL, "--feature-gates="+gate)
	command.Env = append(os.Environ(), serveVariable+"=1")
	started, err := process.StartCommand(command)
	expect.NoError(b, err)
	b.Cleanup(func() { expect.Succeeds(b, started.Stop(time.Minute)) })
	expect.NoError(b, started.WaitReady(b.Context()))
	config, err := started.Config()
	expect.NoError(b, err)
	client, err := restclient.HTTPClientFor(config)
	expect.NoError(b, err)
	r := &remote{url: started.URL, http: client}
	b.Logf("%s: process %d, %s", gate, started.PID(), started.Kubeconfig)

	manifests, err := crds.Load(b.Context(), crds.Sources()[0])
	expect.NoError(b, err)
	for _, manifest := range manifests {
		if manifest.CRD.Spec.Names.Kind == "Certificate" {
			_, err := r.send(b.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", asJSON, manifest.CRD)
			expect.NoError(b, err)
		}
	}
	poll.UntilNoError(b, "certificates are served", func() error {
		_, err := r.send(b.Context(), http.MethodGet, certificates+"?resourceVersion=0", "", nil)
		return err
	})
	return r
}

// send sends a request and returns the decoded answer.
func (r *remote) send(ctx context.Context, method, path, contentType string, object any) (map[string]any, error) {
	answer, err := send(ctx, r.http, method, r.url+path, contentType, object)
	if err != nil {
		return nil, err
	}
	var decoded map[string]any
	return decoded, json.Unmarshal(answer, &decoded)
}

// newCertificate returns a certificate as a controller writes it.
func newCertificate(name string, i int) map[string]any {
	var names []any
	for n := range 12 {
		names = append(names, fmt.Sprintf("service-%02d.%s.svc.cluster.local", n, name))
	}
	return map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Certificate",
		"metadata": map[string]any{
			"name": name, "namespace": "default",
			"labels":      map[string]any{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "helm", "team": fmt.Sprint("team-", i%7)},
			"annotations": map[string]any{"meta.helm.sh/release-name": name, "example.com/checksum": strings.Repeat("0123456789abcdef", 4)},
			"ownerReferences": []any{map[string]any{
				"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": name, "uid": "0a3c9b0e-3f44-4b0c-9f0d-6d2c2f1f9a10", "controller": true,
			}},
		},
		"spec": map[string]any{
			"secretName": name + "-tls", "commonName": "service-00." + name, "duration": "2160h0m0s", "renewBefore": fmt.Sprintf("%dh0m0s", 240+i%1000),
			"issuerRef": map[string]any{"name": "letsencrypt-production", "kind": "ClusterIssuer", "group": "cert-manager.io"},
			"dnsNames":  names, "usages": []any{"server auth", "client auth", "digital signature"},
			"privateKey":     map[string]any{"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always", "encoding": "PKCS8"},
			"subject":        map[string]any{"organizations": []any{"Example"}, "countries": []any{"DE"}, "organizationalUnits": []any{"Platform"}},
			"secretTemplate": map[string]any{"labels": map[string]any{"team": "a"}, "annotations": map[string]any{"reloader.example.com/match": "true"}},
		},
	}
}

// newStatus returns the status of a certificate.
func newStatus(i int) map[string]any {
	condition := func(kind, reason string) map[string]any {
		return map[string]any{
			"type": kind, "status": "True", "reason": reason, "message": "Certificate is up to date and has not expired",
			"lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": int64(1),
		}
	}
	return map[string]any{
		"conditions": []any{condition("Ready", "Ready"), condition("Issuing", fmt.Sprint("Renewed", i))},
		"notBefore":  "2026-01-01T00:00:00Z", "notAfter": "2026-04-01T00:00:00Z", "renewalTime": "2026-03-01T00:00:00Z", "revision": int64(i),
	}
}

// measure runs the writes of a benchmark.
func (r *remote) measure(b *testing.B, operation string) {
	ctx := b.Context()
	var deleted []string
	if operation == "delete" {
		for range b.N {
			object, err := r.create(ctx)
			expect.NoError(b, err)
			deleted = append(deleted, nameOf(object))
		}
	}
	objects := make(chan map[string]any, writers)
	for range writers {
		object, err := r.create(ctx)
		expect.NoError(b, err)
		objects <- object
	}
	var writes, inLine atomic.Int64
	before := r.usage(b)
	b.SetParallelism(writers)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		if inLine.Add(1) > writers {
			return // there are more goroutines on machines with several cores
		}
		object := <-objects
		for pb.Next() {
			i := int(writes.Add(1))
			var err error
			if operation == "delete" {
				_, err = r.send(ctx, http.MethodDelete, certificates+"/"+deleted[i-1], asJSON, nil)
			} else {
				object, err = r.write(ctx, operation, object, i)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	after := r.usage(b)
	for metric, unit := range map[string]string{cpuSeconds: "cpu-µs/op", allocations: "server-allocs/op", allocatedBytes: "server-B/op"} {
		used := (after[metric] - before[metric]) / float64(b.N)
		if metric == cpuSeconds {
			used *= 1e6
		}
		b.ReportMetric(used, unit)
	}
}

// create creates another certificate.
func (r *remote) create(ctx context.Context) (map[string]any, error) {
	i := int(r.objects.Add(1))
	return r.send(ctx, http.MethodPost, certificates, asJSON, newCertificate(fmt.Sprintf("certificate-%06d", i), i))
}

// write changes an object, or creates another one.
func (r *remote) write(ctx context.Context, operation string, object map[string]any, i int) (map[string]any, error) {
	name := nameOf(object)
	path := certificates + "/" + name
	spec := map[string]any{"renewBefore": fmt.Sprintf("%dh0m0s", 240+i%1000)}
	switch operation {
	case "create":
		return r.create(ctx)
	case "update":
		object["spec"].(map[string]any)["renewBefore"] = spec["renewBefore"]
		return r.send(ctx, http.MethodPut, path, asJSON, object)
	case "status":
		object["status"] = newStatus(i)
		return r.send(ctx, http.MethodPut, path+"/status", asJSON, object)
	case "apply":
		return r.send(ctx, http.MethodPatch, path+"?fieldManager=bench&force=true", string(types.ApplyPatchType), newCertificate(name, i))
	case "patch":
		return r.send(ctx, http.MethodPatch, path, string(types.MergePatchType), map[string]any{"spec": spec})
	}
	return nil, apierrors.NewBadRequest(operation)
}

func nameOf(object map[string]any) string {
	return object["metadata"].(map[string]any)["name"].(string)
}

// Metrics of a process.
const (
	cpuSeconds     = "process_cpu_seconds_total"
	allocations    = "go_memstats_mallocs_total"
	allocatedBytes = "go_memstats_alloc_bytes_total"
)

// usage returns what the process has used so far.
func (r *remote) usage(b *testing.B) map[string]float64 {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, r.url+"/metrics", nil)
	expect.NoError(b, err)
	response, err := r.http.Do(req)
	expect.NoError(b, err)
	defer response.Body.Close()
	used := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name == cpuSeconds || name == allocations || name == allocatedBytes {
			used[name], err = strconv.ParseFloat(value, 64)
			expect.NoError(b, err)
		}
	}
	if len(used) != 3 {
		b.Fatalf("/metrics has only %v", used)
	}
	return used
}

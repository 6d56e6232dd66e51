// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"

	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/cmd/internal/health"
	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/cmd/internal/output"
	"github.com/annex-dev/annex/pkg/table"
)

// Metrics of the server. The first is annex's own: a main cluster lacks it.
const (
	budgetMetric   = "annex_cache_memory_budget_bytes"
	requestsMetric = "apiserver_request_total"
)

type topOptions struct {
	login    login.Options
	output   output.Format
	sortBy   string
	interval time.Duration
}

// sortKeys are the columns that resources can be sorted by.
var sortKeys = map[string]func(row) float64{
	"objects":  func(r row) float64 { return float64(r.Objects) },
	"bytes":    func(r row) float64 { return float64(r.Bytes) },
	"stored":   func(r row) float64 { return float64(r.Stored) },
	"cached":   func(r row) float64 { return float64(r.Cached) },
	"requests": func(r row) float64 { return ptr.Deref(r.Requests, 0) },
	"watches":  func(r row) float64 { return ptr.Deref(r.Watches, 0) },
}

// NewTopCommand returns `annex top`.
func NewTopCommand(out io.Writer) *cobra.Command {
	o := &topOptions{sortBy: "bytes", interval: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the resources that use most of annex",
		Long: "Show each resource with its objects, their size before compression and in the Store, the memory of its watch\n" +
			"caches, requests per second, and open watches. Requests are those of an interval, of the replica that answers;\n" +
			"they are unknown through a main cluster, and to users without the right to read /metrics.",
		Example: "  annex top --sort-by=requests --interval=10s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sortKeys[o.sortBy] == nil {
				return fmt.Errorf("--sort-by %q must be objects, bytes, stored, cached, requests or watches", o.sortBy)
			}
			if o.interval <= 0 {
				return fmt.Errorf("--interval %s must be positive", o.interval)
			}
			return o.run(cmd.Context(), out)
		},
	}
	fs := cmd.Flags()
	o.login.AddFlags(fs, login.AnnexOrMain)
	o.output.AddFlag(fs, output.Wide)
	fs.StringVar(&o.sortBy, "sort-by", o.sortBy, "Show the highest first of: objects, bytes, stored, cached, requests, watches.")
	fs.DurationVar(&o.interval, "interval", o.interval, "How long requests are counted.")
	return cmd
}

// load has the requests per second and the open watches of a resource.
type load struct{ requests, watches float64 }

// row is an element of -o json.
type row struct {
	Resource string `json:"resource"`
	Store    string `json:"store"`
	Objects  int64  `json:"objects"`
	Bytes    int64  `json:"bytes"`
	Stored   int64  `json:"storedBytes"`
	Cached   int64  `json:"cachedBytes"`
	// Requests and Watches are nil if they are not known.
	Requests *float64 `json:"requestsPerSecond"`
	Watches  *float64 `json:"watches"`
}

func (o *topOptions) run(ctx context.Context, out io.Writer) error {
	clients, err := o.login.ConnectAnnex(ctx, "annex-top")
	if err != nil {
		return err
	}
	loads, err := o.readLoads(ctx, clients.Kube.Discovery().RESTClient())
	if err != nil {
		return err
	}
	found, err := health.ReadObjects(ctx, clients.Annex)
	if err != nil {
		return err
	}
	rows := make([]row, len(found.Resources))
	for i := range found.Resources {
		rows[i] = rowOf(&found.Resources[i], loads)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(sortKeys[o.sortBy](b), sortKeys[o.sortBy](a)) })
	return o.output.Print(out, rows, func() error { return printTop(out, rows, o.output.Is(output.Wide)) })
}

// rowOf returns the row of a resource. Nil loads are not known.
func rowOf(of *hostingv1alpha1.HostedResource, loads map[schema.GroupResource]load) row {
	r := row{
		Resource: of.Name, Store: of.Spec.StoreName, Objects: of.Status.Objects, Bytes: of.Status.Bytes, Stored: of.Status.StoredBytes, Cached: of.Status.CachedBytes,
	}
	if loads != nil {
		l := loads[schema.ParseGroupResource(of.Name)]
		r.Requests, r.Watches = &l.requests, &l.watches
	}
	return r
}

func printTop(out io.Writer, rows []row, wide bool) error {
	w := output.NewTable(out)
	t := output.Columns{{"RESOURCE", true}, {"STORE", wide}, {"OBJECTS", true}, {"BYTES", true}, {"STORED", wide}, {"CACHED", true}, {"REQ/S", true}, {"WATCHES", true}}
	t.Header(w)
	number := func(format string, n *float64) string {
		if n == nil {
			return table.Dash
		}
		return fmt.Sprintf(format, *n)
	}
	for i := range rows {
		r := &rows[i]
		t.Row(w, r.Resource, table.OrNone(r.Store), r.Objects, table.Bytes(r.Bytes), table.Bytes(r.Stored), table.Bytes(r.Cached), number("%.1f", r.Requests), number("%.0f", r.Watches))
	}
	return w.Flush()
}

// readLoads returns the load of all resources in an interval, or nil if the server is not annex
// or its metrics cannot be read.
func (o *topOptions) readLoads(ctx context.Context, client restclient.Interface) (map[schema.GroupResource]load, error) {
	get := func() map[string]*dto.MetricFamily {
		families, err := login.Metrics(ctx, client, budgetMetric, requestsMetric, login.WatchesMetric)
		if err != nil || families[budgetMetric] == nil {
			return nil
		}
		return families
	}
	first, began := get(), time.Now()
	if first == nil {
		return nil, nil
	}
	select {
	case <-time.After(o.interval):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	second, took := get(), time.Since(began)
	if second == nil {
		return nil, nil
	}
	return loadsOf(first, second, took), nil
}

func loadsOf(first, second map[string]*dto.MetricFamily, took time.Duration) map[schema.GroupResource]load {
	loads := map[schema.GroupResource]load{}
	add := func(families map[string]*dto.MetricFamily, name string, change func(*load, *dto.Metric)) {
		for _, metric := range families[name].GetMetric() {
			of := login.MetricLabels(metric)
			resource := schema.GroupResource{Group: of["group"], Resource: of["resource"]}
			l := loads[resource]
			change(&l, metric)
			loads[resource] = l
		}
	}
	add(second, requestsMetric, func(l *load, m *dto.Metric) { l.requests += m.GetCounter().GetValue() / took.Seconds() })
	add(first, requestsMetric, func(l *load, m *dto.Metric) { l.requests -= m.GetCounter().GetValue() / took.Seconds() })
	add(second, login.WatchesMetric, func(l *load, m *dto.Metric) {
		if strings.EqualFold(login.MetricLabels(m)["verb"], "watch") {
			l.watches += m.GetGauge().GetValue()
		}
	})
	return loads
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	etcdmetrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/annex-dev/annex/pkg/version"
)

// bucketed has the prefixes of the histograms whose buckets are served by default: of those that tell how long clients,
// webhooks and disks wait. Buckets are seven of eight series of an idle server, and several for each resource and verb.
var bucketed = []string{
	"annex_",
	"apiserver_request_duration_seconds",
	"apiserver_admission_webhook_admission_duration_seconds",
	"apiserver_flowcontrol_request_wait_duration_seconds",
	"etcd_disk_backend_commit_duration_seconds",
	"etcd_disk_wal_fsync_duration_seconds",
}

var (
	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "annex", Name: "build_info", StabilityLevel: metrics.ALPHA,
		Help: "1, with the version of annex, its commit, the Kubernetes version whose API machinery it has, and the version of Go.",
	}, []string{"version", "commit", "kubernetes", "go_version"})
	registerBuildInfo = sync.OnceFunc(func() {
		legacyregistry.MustRegister(buildInfo)
		buildInfo.WithLabelValues(version.Annex(), version.Commit(), version.Kubernetes().String(), runtime.Version()).Set(1)
	})
)

// installMetrics serves upstream's metrics at /metrics, together with the metrics of the
// embedded etcd, which has a separate registry.
func installMetrics(paths *mux.PathRecorderMux, allBuckets bool) {
	// Upstream registers its metrics only while it installs its handler.
	routes.DefaultMetrics{}.Install(mux.NewPathRecorderMux("unused"))
	registerBuildInfo()
	// Metrics of Stores have their sizes. Upstream's would connect to etcd again: without an answer each scrape waits 20 s.
	etcdmetrics.SetStorageMonitorGetter(func() ([]etcdmetrics.Monitor, error) { return nil, nil })
	gatherers := prometheus.Gatherers{legacyregistry.DefaultGatherer, etcdMetrics(prometheus.DefaultGatherer)}
	var all prometheus.Gatherer = gatherers
	if !allBuckets {
		all = withoutBuckets(all)
	}
	paths.Handle("/metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{}))
}

// withoutBuckets drops buckets of histograms, which keep their sum and count, except of those in bucketed.
func withoutBuckets(all prometheus.Gatherer) prometheus.GathererFunc {
	return func() ([]*dto.MetricFamily, error) {
		families, err := all.Gather()
		for _, family := range families {
			if slices.ContainsFunc(bucketed, func(prefix string) bool { return strings.HasPrefix(family.GetName(), prefix) }) {
				continue
			}
			for _, metric := range family.Metric {
				if metric.Histogram != nil {
					metric.Histogram.Bucket = nil
				}
			}
		}
		return families, err
	}
}

// etcdMetrics drops metrics that both registries have, such as the metrics of the process: two
// values for one name are an error.
func etcdMetrics(all prometheus.Gatherer) prometheus.GathererFunc {
	return func() ([]*dto.MetricFamily, error) {
		families, err := all.Gather()
		var own []*dto.MetricFamily
		for _, family := range families {
			if strings.HasPrefix(family.GetName(), "etcd_") {
				own = append(own, family)
			}
		}
		return own, err
	}
}

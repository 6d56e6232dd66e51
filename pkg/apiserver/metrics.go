// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/legacyregistry"
)

// installMetrics serves upstream's metrics at /metrics, together with the metrics of the
// embedded etcd, which has a separate registry.
func installMetrics(paths *mux.PathRecorderMux) {
	// Upstream registers its metrics only while it installs its handler.
	routes.DefaultMetrics{}.Install(mux.NewPathRecorderMux("unused"))
	gatherers := prometheus.Gatherers{legacyregistry.DefaultGatherer, etcdMetrics(prometheus.DefaultGatherer)}
	paths.Handle("/metrics", promhttp.HandlerFor(gatherers, promhttp.HandlerOpts{}))
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

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/annex-dev/annex/pkg/test/expect"
)

func TestEtcdMetricsLeavesOutWhatOthersHave(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for _, name := range []string{"etcd_server_proposals", "go_goroutines", "process_open_fds"} {
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name}))
	}
	families, err := etcdMetrics(registry).Gather()
	expect.NoError(t, err)
	var got []string
	for _, family := range families {
		got = append(got, family.GetName())
	}
	expect.Equal(t, []string{"etcd_server_proposals"}, got, "metrics")
}

// TestWithoutBuckets serves most histograms with their sum and count only.
func TestWithoutBuckets(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for _, name := range []string{"apiserver_request_duration_seconds", "etcd_request_duration_seconds"} {
		histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Buckets: []float64{1, 2}})
		registry.MustRegister(histogram)
		histogram.Observe(1.5)
	}
	families, err := withoutBuckets(registry).Gather()
	expect.NoError(t, err)
	for i, want := range []int{2, 0} {
		got := families[i].Metric[0].Histogram
		if len(got.Bucket) != want || got.GetSampleCount() != 1 || got.GetSampleSum() != 1.5 {
			t.Errorf("%s: %v, want %d buckets", families[i].GetName(), got, want)
		}
	}
}

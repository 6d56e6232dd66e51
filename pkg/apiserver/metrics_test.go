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

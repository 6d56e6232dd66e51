// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// maxSeries bounds the series of a server without custom resources. Each costs a Prometheus some kB.
const maxSeries = 3000

// TestMetrics counts the series of a fresh server, and checks annex's own metrics against Prometheus' conventions.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	content, err := s.Kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	expect.NoError(t, err)
	series, families := 0, map[string]int{}
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "#") {
			series++
			families[line[:strings.IndexAny(line, "{ ")]]++
		}
	}
	if series > maxSeries {
		t.Errorf("%d series, want at most %d: %v", series, maxSeries, families)
	}
	for _, name := range []string{"annex_build_info", "annex_store_available", "annex_store_disk_free_bytes"} {
		if families[name] == 0 {
			t.Errorf("there is no %s", name)
		}
	}
	problems, err := promlint.New(bytes.NewReader(content)).Lint()
	expect.NoError(t, err)
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "annex_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

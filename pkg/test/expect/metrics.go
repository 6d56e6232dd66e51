// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package expect

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// MetricNames checks annex's own metrics in a scrape against Prometheus' conventions.
func MetricNames(t testing.TB, scrape string) {
	t.Helper()
	problems, err := promlint.New(strings.NewReader(scrape)).Lint()
	NoError(t, err)
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, "annex_") {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

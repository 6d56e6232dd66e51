// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"testing"

	"k8s.io/component-base/metrics"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestCountRequests counts those of one group, with the names and labels of the generic API server.
func TestCountRequests(t *testing.T) {
	t.Parallel()
	registry := metrics.NewKubeRegistry()
	total := metrics.NewCounterVec(&metrics.CounterOpts{Name: "apiserver_request_total"}, []string{"group", "code", "verb"})
	running := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: "apiserver_longrunning_requests"}, []string{"group", "verb"})
	other := metrics.NewCounterVec(&metrics.CounterOpts{Name: "other_total"}, []string{"group", "code"})
	registry.MustRegister(total, running, other)
	total.WithLabelValues("example.com", "200", "GET").Add(7)
	total.WithLabelValues("example.com", "409", "PUT").Add(2)
	total.WithLabelValues("example.com", "500", "GET").Add(3)
	total.WithLabelValues("example.com", "503", "LIST").Add(1)
	total.WithLabelValues("other.example.com", "500", "GET").Add(50)
	running.WithLabelValues("example.com", "WATCH").Set(4)
	running.WithLabelValues("example.com", "CONNECT").Set(1)
	running.WithLabelValues("other.example.com", "WATCH").Set(9)
	other.WithLabelValues("example.com", "500").Add(100)
	if got, want := countRequests(registry, "example.com"), (requests{all: 13, failed: 4, watches: 4}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	repeated := func(times int, last ...requests) []requests {
		return append(make([]requests, times), last...)
	}
	for name, test := range map[string]struct {
		counted []requests
		want    string
	}{
		"none":                        {repeated(3), ""},
		"of earlier ones":             {[]requests{{all: 50, failed: 50}, {all: 60, failed: 50}}, ""},
		"a tenth":                     {repeated(1, requests{all: 10, failed: 1}), ""},
		"more":                        {repeated(1, requests{all: 10, failed: 2}), "2 of the last 10 requests"},
		"the only one":                {repeated(1, requests{all: 1, failed: 1}), "1 of the last 1 requests"},
		"still in the window":         {repeated(window, requests{all: 1, failed: 1}), "1 of the last 1 requests"},
		"no longer":                   {append(repeated(2, requests{all: 1, failed: 1}), many(window, requests{all: 1, failed: 1})...), ""},
		"few after many that succeed": {[]requests{{}, {all: 99}, {all: 102, failed: 3}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f failures
			var got string
			for _, counted := range test.counted {
				got = f.problem(counted)
			}
			expect.Contains(t, got, test.want)
			if test.want == "" && got != "" {
				t.Errorf("reported %q", got)
			}
		})
	}
}

func many(times int, counted requests) (all []requests) {
	for range times {
		all = append(all, counted)
	}
	return all
}

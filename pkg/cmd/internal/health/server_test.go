// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
	"github.com/annex-dev/annex/pkg/test/expect"
	"github.com/annex-dev/annex/pkg/version"
)

// serving returns the environment of an annex with these responses, by path. Others are 403, and 503 without any.
func serving(t *testing.T, responses map[string]string) *environment {
	t.Helper()
	const hosting = "/apis/hosting.annex.dev/v1alpha1/"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, found := responses[r.URL.Path]
		switch {
		case responses == nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.HasPrefix(body, "[-]"):
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = fmt.Fprint(w, body)
		case found:
			_, _ = fmt.Fprint(w, body)
		case strings.HasPrefix(r.URL.Path, hosting):
			w.Header().Set("Content-Type", "application/json")
			kind := map[string]string{"stores": "Store", "hostedresources": "HostedResource", "migrations": "Migration", "staticsources": "StaticSource"}[strings.TrimPrefix(r.URL.Path, hosting)]
			_, _ = fmt.Fprintf(w, `{"apiVersion":"hosting.annex.dev/v1alpha1","kind":"%sList","items":[{"metadata":{"name":"a"}}]}`, kind)
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	clients, err := login.NewClients(&restclient.Config{Host: server.URL})
	expect.NoError(t, err)
	e, err := newEnvironment(clients, &Options{}, Direct)
	expect.NoError(t, err)
	e.now = func() time.Time { return noon }
	return e
}

func TestServer(t *testing.T) {
	t.Parallel()
	build := fmt.Sprintf(`{"gitVersion":%q}`, version.Full())
	for name, tc := range map[string]struct {
		responses map[string]string
		want      want
	}{
		"fine":      {map[string]string{"/version": build, "/readyz": "ok"}, want{LevelOK, "answers and is ready", ""}},
		"not ready": {map[string]string{"/version": build, "/readyz": "[-]etcd failed: reason withheld\n[+]ping ok\n"}, want{LevelFail, "annex is not ready: etcd failed: reason withheld", "readyz?verbose"}},
		"down":      {nil, want{LevelFail, "does not answer: 503", "docs/troubleshooting.md#annexdown"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := serving(t, tc.responses)
			compare(t, checkServer(t.Context(), e), []want{tc.want})
			if sound := tc.want.status == LevelOK; sound && (e.server.Version != version.Annex() || len(e.objects.Stores) != 1 || len(e.objects.StaticSources) != 1) {
				t.Errorf("%+v, %+v", e.server, e.objects)
			}
		})
	}
}

func TestServerMetrics(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	metric := func(name, labels string, value float64) string {
		return fmt.Sprintf("# TYPE %s gauge\n%s{%s} %f\n", name, name, labels, value)
	}
	expires := func(in time.Duration) string {
		return metric(certificateMetric, `certificate="serving"`, float64(noon.Add(in).Unix()))
	}
	for name, tc := range map[string]struct {
		metrics string
		mode    string
		want    []want
	}{
		"standalone":        {expires(22 * day), modeStandalone, []want{{LevelOK, "are fine", ""}}},
		"aggregated":        {metric(mainClusterMetric, "", 1), modeAggregated, []want{{LevelOK, "are fine", ""}}},
		"main cluster down": {metric(mainClusterMetric, "", 0), modeAggregated, []want{{LevelFail, "does not reach the main cluster", "#annexmainclusternotready"}}},
		"certificate":       {expires(20 * day), modeStandalone, []want{{LevelFail, `"serving" expires at 2026-06-21T12:00:00Z`, "#annexcertificateexpires"}}},
		"refused":           {metric(refusedMetric, "", 1), modeStandalone, []want{{LevelWarn, "keeps the previous ones", "#annexpublishedcertificaterefused"}}},
		"without the right": {"", "", []want{{LevelWarn, "are not known", "kubectl auth can-i get /metrics"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			responses := map[string]string{}
			if tc.metrics != "" {
				responses["/metrics"] = tc.metrics
			}
			e := serving(t, responses)
			compare(t, checkMetrics(t.Context(), e), tc.want)
			expect.Equal(t, tc.mode, e.server.Mode)
		})
	}
}

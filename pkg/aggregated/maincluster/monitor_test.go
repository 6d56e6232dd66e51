// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/annex-dev/annex/pkg/test/expect"
)

// TestMonitor probes a main cluster that fails once, and then three times in a row.
func TestMonitor(t *testing.T) {
	registerMetrics()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))))
		ready.Set(1)
		var seen []float64
		var quiet []bool
		const entry = `err="Get \"https://main/api\": dial tcp: connection refused"`
		answers := []error{nil, errors.New("refused"), nil, errors.New("refused"), errors.New("refused"), errors.New("refused"), nil}
		m := monitor{server: "https://main", outage: outageErrors("main")}
		m.probe = func(context.Context) error {
			is, err := testutil.GetGaugeMetricValue(ready)
			expect.NoError(t, err)
			seen, quiet = append(seen, is), append(quiet, RepeatsOutage(entry))
			answer := answers[0]
			if answers = answers[1:]; len(answers) == 0 {
				cancel()
			}
			return answer
		}
		go m.run(ctx)
		<-ctx.Done()
		synctest.Wait()
		expect.Equal(t, []float64{1, 1, 1, 1, 1, 0, 0}, seen, "the metric before each probe")
		expect.Equal(t, []bool{false, false, false, false, false, true, true}, quiet, "errors of connections repeat what is logged")
		m.observe(context.WithoutCancel(ctx), m.since.Add(3*monitorInterval), nil)
		expect.Equal(t, false, RepeatsOutage(entry), "errors repeat an outage that has ended")
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "is not ready") || !strings.Contains(lines[0], "refused") ||
			!strings.Contains(lines[1], "is ready again") || !strings.Contains(lines[1], `after="30s"`) {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

func TestOutageErrors(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]bool{
		`Get \"https://10.0.0.1:443/api\": context deadline exceeded`:                              true,
		`Get \"https://10.0.0.1:443/api\": tls: failed to verify certificate`:                      true,
		`context deadline exceeded - previous attempt: dial tcp 10.0.0.1:443: connect: refused`:    true,
		`read tcp 10.0.0.9:47016->10.0.0.1:443: read: connection reset by peer`:                    true,
		`Post \"https://10.0.0.1:4433/hook\": dial tcp 10.0.0.1:4433: connect: connection refused`: false,
		`services is forbidden: User \"annex\" cannot list resource \"services\"`:                  true,
		`failed to fetch openapi paths: the server is currently unable to handle the request`:      true,
		`pods \"a\" is forbidden: exceeded quota`:                                                  false,
		`unable to decode an event from the watch stream: invalid character`:                       false,
		`"The main cluster's setting changed" server="10.0.0.1:443"`:                               false,
	} {
		expect.Equal(t, want, outageErrors("10.0.0.1:443").MatchString(entry), entry)
	}
}

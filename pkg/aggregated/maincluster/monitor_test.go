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
		answers := []error{nil, errors.New("refused"), nil, errors.New("refused"), errors.New("refused"), errors.New("refused"), nil}
		m := monitor{server: "https://main"}
		m.probe = func(context.Context) error {
			is, err := testutil.GetGaugeMetricValue(ready)
			expect.NoError(t, err)
			seen = append(seen, is)
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
		m.observe(context.WithoutCancel(ctx), m.since.Add(3*monitorInterval), nil)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], "is not ready") || !strings.Contains(lines[0], "refused") ||
			!strings.Contains(lines[1], "is ready again") || !strings.Contains(lines[1], `after="30s"`) {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

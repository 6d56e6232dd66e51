// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservice

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

func TestAnnouncedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	r := &reconciler{announced: map[schema.GroupVersion]string{}}
	yes := status{published: true, reason: reasonPublished}
	for _, step := range []struct {
		stands status
		logged string
	}{
		{notPublished(reasonWaitingForAnnex, "m"), ""},
		{notPublished(reasonForeignAPIService, "it is b/annex"), "E"},
		{notPublished(reasonForeignAPIService, "it is b/annex"), ""},
		{yes, "I"},
		{yes, ""},
		{notPublished(reasonUnavailable, "refused by 1"), "I"},
		{notPublished(reasonUnavailable, "refused by 2"), ""},
		{notPublished(reasonGroupInMain, "m"), "I"},
	} {
		log.Reset()
		r.announce(ctx, hostingVersion, step.stands)
		said := log.String()
		if strings.Count(said, "\n") != len(step.logged) || !strings.HasPrefix(said, step.logged) || said != "" && !strings.Contains(said, step.stands.message) {
			t.Errorf("%+v: logged %q, want level %q", step.stands, said, step.logged)
		}
	}
}

func TestMetric(t *testing.T) {
	t.Parallel()
	registerMetrics()
	version := schema.GroupVersion{Group: "metric.example.com", Version: "v1"}
	for _, stands := range []status{{published: true}, notPublished(reasonUnavailable, "m")} {
		observe(version, stands)
		got, err := testutil.GetGaugeMetricValue(published.WithLabelValues(version.Group, version.Version))
		if err != nil || (got == 1) != stands.published {
			t.Errorf("metric is %v (%v) for %+v", got, err, stands)
		}
	}
}

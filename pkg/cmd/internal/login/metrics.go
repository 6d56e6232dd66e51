// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	restclient "k8s.io/client-go/rest"
)

// WatchesMetric is the gauge of open requests, by verb and resource.
const WatchesMetric = "apiserver_longrunning_requests"

// Metrics returns the metrics of an API server with these names.
func Metrics(ctx context.Context, client restclient.Interface, names ...string) (map[string]*dto.MetricFamily, error) {
	body, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("get /metrics: %w", err)
	}
	defer body.Close()
	families, err := parseMetrics(body, names)
	if err != nil {
		return nil, fmt.Errorf("read /metrics: %w", err)
	}
	return families, nil
}

// parseMetrics skips other metrics as text: a large server has tens of megabytes of them.
func parseMetrics(text io.Reader, names []string) (map[string]*dto.MetricFamily, error) {
	var wanted bytes.Buffer
	lines := bufio.NewReader(text)
	for {
		line, err := lines.ReadBytes('\n')
		if slices.Contains(names, metricOf(line)) {
			wanted.Write(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(&wanted)
}

// metricOf returns the name of the metric in a line with its type or a value.
func metricOf(line []byte) string {
	line = bytes.TrimPrefix(line, []byte("# TYPE "))
	if end := bytes.IndexAny(line, "{ "); end >= 0 {
		return string(line[:end])
	}
	return ""
}

// MetricLabels returns the labels of a metric.
func MetricLabels(metric *dto.Metric) map[string]string {
	labels := make(map[string]string, len(metric.GetLabel()))
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	return labels
}

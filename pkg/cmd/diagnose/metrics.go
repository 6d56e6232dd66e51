// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"k8s.io/apimachinery/pkg/runtime/schema"
	restclient "k8s.io/client-go/rest"

	"github.com/annex-dev/annex/pkg/cmd/internal/login"
)

// Metrics of kube-apiserver. Before Kubernetes 1.34 objects have one label, and there are no
// sizes.
const (
	objectsMetric    = "apiserver_resource_objects"
	oldObjectsMetric = "apiserver_storage_objects"
	sizeMetric       = "apiserver_resource_size_estimate_bytes"
	etcdMetric       = "apiserver_storage_size_bytes"
	requestsMetric   = "apiserver_request_total"
)

// writeVerbs are the verbs of requestsMetric that change objects. A DELETECOLLECTION is one request for many.
var writeVerbs = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

// measured has kube-apiserver's metrics of a resource. A value that is nil is not known.
type measured struct {
	objects, bytes *int64
	watches        int64
}

// bytesOf returns the size of a number of objects, if the metrics counted about as many.
func (m measured) bytesOf(objects int64) (int64, bool) {
	if objects == 0 || !isPositive(m.objects) || !isPositive(m.bytes) {
		return 0, false
	}
	const tolerance = 10 // a tenth
	if difference := max(objects-*m.objects, *m.objects-objects); difference*tolerance > objects {
		return 0, false
	}
	return scale(*m.bytes, objects, *m.objects), true
}

// measurements are nil if /metrics cannot be read.
type measurements struct {
	resources map[schema.GroupResource]measured
	etcdBytes *int64
	// writes are successful requests since kube-apiserver started.
	writes map[schema.GroupResource]int64
}

func readMeasurements(ctx context.Context, client restclient.Interface) (*measurements, error) {
	families, err := login.Metrics(ctx, client, objectsMetric, oldObjectsMetric, sizeMetric, etcdMetric, requestsMetric, login.WatchesMetric)
	if err != nil {
		return nil, err
	}
	return newMeasurements(families), nil
}

func newMeasurements(families map[string]*dto.MetricFamily) *measurements {
	m := &measurements{resources: map[schema.GroupResource]measured{}, writes: map[schema.GroupResource]int64{}}
	each := func(name string, use func(of *measured, value *int64, labels map[string]string)) {
		for _, metric := range families[name].GetMetric() {
			labels := login.MetricLabels(metric)
			resource := schema.GroupResource{Group: labels["group"], Resource: labels["resource"]}
			if name == oldObjectsMetric {
				resource = schema.ParseGroupResource(labels["resource"])
			}
			of := m.resources[resource]
			use(&of, valueOf(metric), labels)
			m.resources[resource] = of
		}
	}
	setObjects := func(of *measured, value *int64, _ map[string]string) { of.objects = value }
	each(oldObjectsMetric, setObjects)
	each(objectsMetric, setObjects)
	each(sizeMetric, func(of *measured, value *int64, _ map[string]string) { of.bytes = value })
	each(login.WatchesMetric, func(of *measured, value *int64, labels map[string]string) {
		if labels["verb"] == "WATCH" && labels["subresource"] == "" && value != nil {
			of.watches += *value
		}
	})
	for _, metric := range families[requestsMetric].GetMetric() {
		labels := login.MetricLabels(metric)
		if slices.Contains(writeVerbs, labels["verb"]) && strings.HasPrefix(labels["code"], "2") && labels["dry_run"] == "" {
			m.writes[schema.GroupResource{Group: labels["group"], Resource: labels["resource"]}] += int64(metric.GetCounter().GetValue())
		}
	}
	for _, metric := range families[etcdMetric].GetMetric() {
		m.etcdBytes = sum(m.etcdBytes, valueOf(metric))
	}
	return m
}

// valueOf returns nil for a value that kube-apiserver failed to read, which is negative.
func valueOf(metric *dto.Metric) *int64 {
	value := int64(metric.GetGauge().GetValue())
	if value < 0 {
		return nil
	}
	return &value
}

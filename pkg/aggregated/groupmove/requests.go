// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package groupmove

import (
	"fmt"
	"strings"

	"k8s.io/component-base/metrics"
)

const (
	// window is of how many observations requests are counted.
	window = 10
	// failedShare is the part of the requests of a window that must not fail.
	failedShare = 0.1
)

// requests are those of a group that this process has answered since it began. Other replicas answer
// others: the main cluster balances them.
type requests struct {
	all float64
	// failed have a status of 500 or more.
	failed float64
	// watches are open.
	watches float64
}

// countRequests reads the metrics of the generic API server. What cannot be gathered is missing.
func countRequests(from metrics.Gatherer, group string) (counted requests) {
	families, _ := from.Gather()
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["group"] == group {
				counted.add(family.GetName(), labels, metric.GetCounter().GetValue()+metric.GetGauge().GetValue())
			}
		}
	}
	return counted
}

func (r *requests) add(name string, labels map[string]string, value float64) {
	switch name {
	case "apiserver_request_total":
		r.all += value
		if strings.HasPrefix(labels["code"], "5") {
			r.failed += value
		}
	case "apiserver_longrunning_requests":
		if strings.EqualFold(labels["verb"], "watch") {
			r.watches += value
		}
	}
}

// failures are the requests of the last observations.
type failures struct{ counted []requests }

// problem adds an observation, and describes what fails too often.
func (f *failures) problem(now requests) string {
	f.counted = append(f.counted, now)
	if len(f.counted) > window+1 {
		f.counted = f.counted[1:]
	}
	before := f.counted[0]
	all, failed := now.all-before.all, now.failed-before.failed
	if failed <= failedShare*all {
		return ""
	}
	return fmt.Sprintf("%.0f of the last %.0f requests failed with a status of 500 or more", failed, all)
}

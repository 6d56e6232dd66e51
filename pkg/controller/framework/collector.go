// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package framework

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-base/metrics"
)

// Collector reads the objects of a lister at each scrape while a controller runs, and sends their metrics.
type Collector[T any] struct {
	metrics.BaseStableCollector

	// Desc describes the metrics.
	Desc *metrics.Desc
	// Metric returns the metric of an object, or nil.
	Metric func(object T) metrics.Metric

	lister atomic.Pointer[Lister[T]]
}

// Lister is a generated lister.
type Lister[T any] interface {
	List(selector labels.Selector) ([]T, error)
}

// Start begins to collect from a lister until stop is called. Another replica collects from then on.
func (c *Collector[T]) Start(lister Lister[T]) (stop func()) {
	c.lister.Store(&lister)
	return func() { c.lister.CompareAndSwap(&lister, nil) }
}

// DescribeWithStability implements metrics.StableCollector.
func (c *Collector[T]) DescribeWithStability(ch chan<- *metrics.Desc) { ch <- c.Desc }

// CollectWithStability implements metrics.StableCollector.
func (c *Collector[T]) CollectWithStability(ch chan<- metrics.Metric) {
	lister := c.lister.Load()
	if lister == nil {
		return
	}
	all, err := (*lister).List(labels.Everything())
	if err != nil {
		return // a lister reads memory, and does not fail
	}
	for _, object := range all {
		if metric := c.Metric(object); metric != nil {
			ch <- metric
		}
	}
}

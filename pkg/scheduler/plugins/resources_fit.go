// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

func init() {
	registered.AddFilter("ResourcesFit", resourcesFit)
	registered.AddScore("LeastAllocated", 2, leastAllocated)
}

// dimension is one of what a Store has a limited amount of.
type dimension struct {
	name   hostingv1alpha1.ResourceName
	of     func(framework.Amounts) int64
	format func(int64) string
}

var dimensions = []dimension{
	{
		name:   hostingv1alpha1.ResourceStorage,
		of:     func(amounts framework.Amounts) int64 { return amounts.Storage },
		format: formatBytes,
	},
	{
		name:   hostingv1alpha1.ResourceObjects,
		of:     func(amounts framework.Amounts) int64 { return amounts.Objects },
		format: func(objects int64) string { return resource.NewQuantity(objects, resource.DecimalSI).String() },
	},
}

// formatBytes leaves out what is less than a Mi: it is of no use to a reader, and as
// every write changes it the words would change each time.
func formatBytes(bytes int64) string {
	const mebi = 1 << 20
	if bytes >= mebi {
		bytes -= bytes % mebi
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

// resourcesFit refuses a Store with too little left, and one with nothing left even if
// the resource asks for nothing: there will be objects of it.
func resourcesFit(resource *framework.Resource, store *framework.Store) string {
	for _, d := range dimensions {
		limit, limited := store.Limit(d.name)
		if !limited {
			continue
		}
		wanted, left := d.of(resource.Expected()), limit-d.of(store.Taken())
		switch {
		case left <= 0:
			return fmt.Sprintf("has no %s left of %s", d.name, d.format(limit))
		case wanted > left:
			return fmt.Sprintf("has insufficient %s left (%s of %s, wanted %s)", d.name, d.format(left), d.format(limit), d.format(wanted))
		}
	}
	return ""
}

// leastAllocated prefers the Store of which the largest part would still be free. One
// without any limit is as good as one that is half free: nobody knows.
func leastAllocated(resource *framework.Resource, store *framework.Store) int64 {
	const unknown = framework.MaxScore / 2
	points, known := int64(framework.MaxScore), false
	for _, d := range dimensions {
		limit, limited := store.Limit(d.name)
		if !limited || limit <= 0 {
			continue
		}
		free := max(0, limit-d.of(store.Taken())-d.of(resource.Expected()))
		// In floats, as a capacity may be so large that a hundred of it overflow.
		points, known = min(points, int64(float64(free)/float64(limit)*framework.MaxScore)), true
	}
	if !known {
		return unknown
	}
	return points
}

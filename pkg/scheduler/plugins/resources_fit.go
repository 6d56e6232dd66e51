// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// dimension is a resource that Stores have a limited amount of.
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

// formatBytes rounds down to a Mi, so that not every write changes the message.
func formatBytes(bytes int64) string {
	const mebi = 1 << 20
	if bytes >= mebi {
		bytes -= bytes % mebi
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}

// resourcesFit refuses Stores with too little left. A full Store is refused even for a
// resource without requests, which will have objects.
func resourcesFit(resource *framework.Resource, store *framework.Store) string {
	for _, d := range dimensions {
		limit, limited := store.Limit(d.name)
		if !limited {
			continue
		}
		requested, left := d.of(resource.Expected()), limit-d.of(store.Allocated())
		switch {
		case left <= 0:
			return fmt.Sprintf("has no %s left of %s", d.name, d.format(limit))
		case requested > left:
			return fmt.Sprintf("has insufficient %s left (%s of %s, needs %s)", d.name, d.format(left), d.format(limit), d.format(requested))
		}
	}
	return ""
}

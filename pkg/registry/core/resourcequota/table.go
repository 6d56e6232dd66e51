// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcequota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/registry/table"
)

type column = table.Column[*corev1.ResourceQuota]

var tableConvertor = table.New(corev1.Resource("resourcequotas"),
	table.Name[*corev1.ResourceQuota](),
	column{
		Name:        "Request",
		Description: "What is used and may be used, but for the limits of containers.",
		Value:       func(quota *corev1.ResourceQuota) any { return usage(quota, false) },
	},
	column{
		Name:        "Limit",
		Description: "The limits of containers that are used and may be used.",
		Value:       func(quota *corev1.ResourceQuota) any { return usage(quota, true) },
	},
	table.Age[*corev1.ResourceQuota](),
)

// usage is the cell with used/hard of each resource, of those that are limits of
// containers or of the others.
func usage(quota *corev1.ResourceQuota, limits bool) string {
	var cells []string
	for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
		if strings.HasPrefix(string(name), "limits.") != limits {
			continue
		}
		used, hard := quota.Status.Used[name], quota.Status.Hard[name]
		cells = append(cells, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(cells, ", ")
}

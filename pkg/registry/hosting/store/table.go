// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/table"
)

type column = table.Column[*hostingv1alpha1.Store]

var tableConvertor = table.New(hostingv1alpha1.Resource("stores"),
	table.Name[*hostingv1alpha1.Store](),
	column{
		Name:        "Ready",
		Description: "Whether the store serves reads and writes.",
		Value:       ready,
	},
	column{
		Name:        "Resources",
		Type:        "integer",
		Description: "The number of resources on the store.",
		Value:       func(store *hostingv1alpha1.Store) any { return int64(store.Status.Resources) },
	},
	column{
		Name:        "Objects",
		Type:        "integer",
		Description: "The number of objects of annex in the store.",
		Value:       func(store *hostingv1alpha1.Store) any { return store.Status.Objects },
	},
	column{
		Name:        "Size",
		Description: "The size of the database on disk.",
		Value:       func(store *hostingv1alpha1.Store) any { return table.Quantity(store.Status.DatabaseSize) },
	},
	column{
		Name:        "In Use",
		Description: "The part of the size that holds data.",
		Value:       func(store *hostingv1alpha1.Store) any { return table.Quantity(store.Status.SizeInUse) },
	},
	column{
		Name:        "Quota",
		Description: "The size at which the store refuses writes.",
		Value:       func(store *hostingv1alpha1.Store) any { return table.Quantity(store.Status.Quota) },
	},
	column{
		Name:        "Version",
		Description: "The lowest etcd version of the members.",
		Value:       func(store *hostingv1alpha1.Store) any { return store.Status.Version },
	},
	table.Age[*hostingv1alpha1.Store](),
	column{
		Name:        "Reason",
		Description: "The reasons of the conditions Ready and UnderPressure.",
		Priority:    table.Wide,
		Value:       reason,
	},
	column{
		Name:        "Members",
		Type:        "integer",
		Description: "The number of members of the etcd cluster.",
		Priority:    table.Wide,
		Value:       func(store *hostingv1alpha1.Store) any { return int64(len(store.Status.Members)) },
	},
	column{
		Name:        "Endpoints",
		Description: "The endpoints of the etcd cluster, or \"embedded\".",
		Priority:    table.Wide,
		Value:       endpoints,
	},
	column{
		Name:        "Taints",
		Description: "The taints, and whether the store is unschedulable.",
		Priority:    table.Wide,
		Value:       taints,
	},
)

func ready(store *hostingv1alpha1.Store) any {
	condition := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
	if condition == nil {
		return string(metav1.ConditionUnknown)
	}
	return string(condition.Status)
}

func reason(store *hostingv1alpha1.Store) any {
	var cells []string
	if condition := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady); condition != nil {
		cells = append(cells, condition.Reason)
	}
	if condition := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreUnderPressure); condition != nil && condition.Status == metav1.ConditionTrue {
		cells = append(cells, condition.Reason)
	}
	return table.OrNone(strings.Join(slices.Compact(cells), ","))
}

func endpoints(store *hostingv1alpha1.Store) any {
	if store.Spec.Etcd == nil {
		return "embedded"
	}
	return strings.Join(store.Spec.Etcd.Endpoints, ",")
}

func taints(store *hostingv1alpha1.Store) any {
	var cells []string
	if store.Spec.Unschedulable {
		cells = append(cells, "unschedulable")
	}
	for _, taint := range store.Spec.Taints {
		cell := taint.Key
		if taint.Value != "" {
			cell += "=" + taint.Value
		}
		cells = append(cells, cell+":"+string(taint.Effect))
	}
	return table.OrNone(strings.Join(cells, ","))
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/registry/table"
)

type column = table.Column[*hostingv1alpha1.HostedResource]

var tableConvertor = table.New(hostingv1alpha1.Resource("hostedresources"),
	table.Name[*hostingv1alpha1.HostedResource](),
	column{
		Name:        "Store",
		Description: "The Store that holds the objects of the resource.",
		Value:       func(hosted *hostingv1alpha1.HostedResource) any { return table.OrNone(hosted.Spec.StoreName) },
	},
	column{
		Name:        "Phase",
		Description: "The phase of the resource: Pending, Hosted or Terminating.",
		Value:       func(hosted *hostingv1alpha1.HostedResource) any { return string(hosted.Status.Phase) },
	},
	column{
		Name:        "Objects",
		Type:        "integer",
		Description: "The number of objects of the resource, in all namespaces.",
		Value:       func(hosted *hostingv1alpha1.HostedResource) any { return hosted.Status.Objects },
	},
	column{
		Name:        "Bytes",
		Description: "The size of those objects before compression.",
		Value:       func(hosted *hostingv1alpha1.HostedResource) any { return table.Bytes(hosted.Status.Bytes) },
	},
	table.Age[*hostingv1alpha1.HostedResource](),
	column{
		Name:        "Stored",
		Description: "The size of those objects in the Store.",
		Priority:    table.Wide,
		Value:       func(hosted *hostingv1alpha1.HostedResource) any { return table.Bytes(hosted.Status.StoredBytes) },
	},
	column{
		Name:        "Limits",
		Description: "Usage of the fullest limit in percent, or which limit is reached.",
		Priority:    table.Wide,
		Value:       limits,
	},
	column{
		Name:        "Cached",
		Description: "The memory that annex uses to serve those objects.",
		Priority:    table.Wide,
		Value:       cached,
	},
	column{
		Name:        "Published",
		Description: "Whether the main cluster sends requests for the resource to annex.",
		Priority:    table.Wide,
		Value:       published,
	},
	column{
		Name:        "Reason",
		Description: "Why the resource is not ready, or why its definition is not synced from the main cluster.",
		Priority:    table.Wide,
		Value:       reason,
	},
)

// limits returns the highest usage of the limits of all namespaces together. For limits
// per namespace there is only the condition.
func limits(hosted *hostingv1alpha1.HostedResource) any {
	condition := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourceWithinLimits)
	most, limited := int64(0), false
	for name, used := range map[hostingv1alpha1.ResourceName]int64{
		hostingv1alpha1.ResourceObjects: hosted.Status.Objects,
		hostingv1alpha1.ResourceStorage: hosted.Status.StoredBytes,
	} {
		if limit, ok := hosted.Spec.Limits[name]; ok {
			limited = true
			most = max(most, int64(100*float64(used)/float64(max(limit.Value(), 1))))
		}
	}
	switch {
	case len(hosted.Spec.Limits) == 0 && len(hosted.Spec.NamespaceLimits) == 0:
		return table.None
	case condition == nil:
		return table.Unknown
	case condition.Status != metav1.ConditionTrue || !limited:
		return condition.Reason
	}
	return fmt.Sprintf("%d%%", most)
}

func cached(hosted *hostingv1alpha1.HostedResource) any {
	if hosted.Status.CachedBytes == 0 {
		return table.Unknown
	}
	return table.Bytes(hosted.Status.CachedBytes)
}

func published(hosted *hostingv1alpha1.HostedResource) any {
	condition := meta.FindStatusCondition(hosted.Status.Conditions, hostingv1alpha1.HostedResourcePublished)
	if condition == nil {
		return table.None
	}
	return string(condition.Status)
}

// reason returns the reason of the first condition that is not True.
func reason(hosted *hostingv1alpha1.HostedResource) any {
	for _, kind := range []string{hostingv1alpha1.HostedResourceReady, hostingv1alpha1.HostedResourceDefinitionSynced} {
		condition := meta.FindStatusCondition(hosted.Status.Conditions, kind)
		if condition != nil && condition.Status != metav1.ConditionTrue {
			return condition.Reason
		}
	}
	return ""
}

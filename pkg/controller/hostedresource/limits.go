// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedresource

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/etcd/usage"
	"github.com/annex-dev/annex/pkg/storage/layer/limits"
)

// Reasons of the condition WithinLimits.
const (
	reasonBelowLimits           = "BelowLimits"
	reasonLimitReached          = "LimitReached"
	reasonNamespaceLimitReached = "NamespaceLimitReached"
)

// A message names at most maxNamespaces namespaces.
const maxNamespaces = 3

// setWithinLimits sets the condition WithinLimits of a resource with limits, and its
// metric. While the usage is unknown both keep their last values.
func (r *reconciler) setWithinLimits(status *hostingv1alpha1.HostedResourceStatus, resource *hosted, used usage.Usage, known bool) {
	of := limits.Of(resource)
	if of.None() {
		forgetLimits(resource.Name)
		meta.RemoveStatusCondition(&status.Conditions, hostingv1alpha1.HostedResourceWithinLimits)
		return
	}
	if !known {
		return
	}
	whole := of.Utilization(used)
	namespaces := of.NamespaceUtilization(r.usage.Namespaces(resource.Spec.StoreName, schema.ParseGroupResource(resource.Name)))
	forgetLimits(resource.Name)
	for _, utilization := range whole {
		limitUsedRatio.WithLabelValues(resource.Name, "whole", string(utilization.Name)).Set(utilization.Ratio())
	}
	// The fullest namespace comes first in the list and is set last.
	for _, utilization := range slices.Backward(namespaces) {
		limitUsedRatio.WithLabelValues(resource.Name, "namespace", string(utilization.Name)).Set(utilization.Ratio())
	}
	r.setCondition(status, resource, withinLimitsCondition(whole, namespaces))
}

// withinLimitsCondition expects the fullest namespaces first.
func withinLimitsCondition(whole, namespaces []limits.Utilization) metav1.Condition {
	c := metav1.Condition{Type: hostingv1alpha1.HostedResourceWithinLimits, Status: metav1.ConditionTrue, Reason: reasonBelowLimits}
	full := 0
	for full < len(namespaces) && namespaces[full].IsFull() {
		full++
	}
	switch {
	case slices.ContainsFunc(whole, limits.Utilization.IsFull):
		c.Status, c.Reason = metav1.ConditionFalse, reasonLimitReached
	case full > 0:
		c.Status, c.Reason = metav1.ConditionFalse, reasonNamespaceLimitReached
	}
	parts := []string{}
	for _, utilization := range whole {
		parts = append(parts, utilization.String())
	}
	// The message names at least the fullest namespace.
	for i, utilization := range namespaces[:min(max(full, 1), maxNamespaces, len(namespaces))] {
		part := fmt.Sprintf("namespace %s: %s", utilization.Namespace, utilization)
		if i == maxNamespaces-1 && full > maxNamespaces {
			part += fmt.Sprintf(" and %d more like it", full-maxNamespaces)
		}
		parts = append(parts, part)
	}
	c.Message = strings.Join(parts, ", ")
	if c.Message == "" {
		c.Message = "there are no objects"
	}
	return c
}

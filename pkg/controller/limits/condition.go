// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/limits"
)

// Reasons of the condition.
const (
	reasonBelowLimits           = "BelowLimits"
	reasonLimitReached          = "LimitReached"
	reasonNamespaceLimitReached = "NamespaceLimitReached"
)

// mostNamed is how many namespaces a message names.
const mostNamed = 3

// condition says how full limits are; namespaces come with the fullest first.
func condition(whole, namespaces []limits.Utilization) metav1.Condition {
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
	for _, fill := range whole {
		parts = append(parts, fill.String())
	}
	// At least the fullest.
	for i, fill := range namespaces[:min(max(full, 1), mostNamed, len(namespaces))] {
		part := fmt.Sprintf("namespace %s: %s", fill.Namespace, fill)
		if i == mostNamed-1 && full > mostNamed {
			part += fmt.Sprintf(" and %d more like it", full-mostNamed)
		}
		parts = append(parts, part)
	}
	c.Message = strings.Join(parts, ", ")
	if c.Message == "" {
		c.Message = "there are no objects"
	}
	return c
}

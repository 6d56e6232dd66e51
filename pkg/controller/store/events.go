// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/storage/stores"
)

// What is done to a store, as events name it.
const (
	actionLook    = "Look"
	actionClaim   = "Claim"
	actionRelease = "Release"
)

// recordEvent records an event for each condition that is another than before, and one if
// the store was claimed. The reason is that of the condition, so that events and status
// can be read together.
func (r *reconciler) recordEvent(before, after *hostingv1alpha1.Store, claimed bool) {
	if claimed {
		r.events.Eventf(after, nil, corev1.EventTypeNormal, "Claimed", actionClaim,
			"Objects are kept in the etcd cluster %s from now on", after.Status.ClusterID)
	}
	for _, is := range after.Status.Conditions {
		was := meta.FindStatusCondition(before.Status.Conditions, is.Type)
		if !needsEvent(was, is) {
			continue
		}
		kind := corev1.EventTypeWarning
		if isHealthy(is) {
			kind = corev1.EventTypeNormal
		}
		r.events.Eventf(after, nil, kind, eventReason(is), actionLook, "%s", is.Message)
	}
}

// needsEvent reports whether people want to know what a condition became.
func needsEvent(was *metav1.Condition, is metav1.Condition) bool {
	switch {
	case was != nil && was.Status == is.Status && was.Reason == is.Reason:
		return false
	case is.Status == metav1.ConditionUnknown || isTransient(is.Reason):
		return false
	case is.Type == hostingv1alpha1.StoreUnderPressure && is.Status == metav1.ConditionFalse:
		return was != nil && was.Status == metav1.ConditionTrue // that it never was goes without saying
	case is.Type == hostingv1alpha1.StoreUnderPressure && is.Reason == stores.ReasonNoSpace:
		return false // it is not ready either, for the same reason
	}
	return true
}

// eventReason says what a condition is about where its own reason does not.
func eventReason(is metav1.Condition) string {
	switch is.Reason {
	case reasonAvailable:
		return "Ready"
	case reasonNoPressure:
		return "PressureRelieved"
	}
	return is.Reason
}

func isHealthy(condition metav1.Condition) bool {
	if condition.Type == hostingv1alpha1.StoreReady {
		return condition.Status == metav1.ConditionTrue && condition.Reason == reasonAvailable
	}
	return condition.Status == metav1.ConditionFalse
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"slices"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// taints refuses Stores with an untolerated NoSchedule taint.
func taints(resource *framework.Resource, store *framework.Store) string {
	for _, taint := range store.Spec.Taints {
		if taint.Effect == hostingv1alpha1.TaintEffectNoSchedule && !tolerated(taint, resource.Spec.Tolerations) {
			return "has the untolerated taint " + describe(taint)
		}
	}
	return ""
}

// preferredTaints prefers Stores with fewer untolerated PreferNoSchedule taints. No taint
// is better than one by more than all other scores together.
func preferredTaints(resource *framework.Resource, store *framework.Store) int64 {
	untolerated := int64(0)
	for _, taint := range store.Spec.Taints {
		if taint.Effect == hostingv1alpha1.TaintEffectPreferNoSchedule && !tolerated(taint, resource.Spec.Tolerations) {
			untolerated++
		}
	}
	if untolerated == 0 {
		return framework.MaxScore
	}
	return framework.MaxScore / 20 / untolerated
}

func tolerated(taint hostingv1alpha1.Taint, tolerations []hostingv1alpha1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(toleration hostingv1alpha1.Toleration) bool {
		if toleration.Effect != "" && toleration.Effect != taint.Effect {
			return false
		}
		if toleration.Key != "" && toleration.Key != taint.Key {
			return false
		}
		if toleration.Operator == hostingv1alpha1.TolerationOpExists {
			return true
		}
		return toleration.Key != "" && toleration.Value == taint.Value
	})
}

// describe formats a taint as kubectl formats node taints.
func describe(taint hostingv1alpha1.Taint) string {
	if taint.Value == "" {
		return taint.Key + ":" + string(taint.Effect)
	}
	return taint.Key + "=" + taint.Value + ":" + string(taint.Effect)
}

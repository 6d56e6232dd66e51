// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"k8s.io/apimachinery/pkg/api/meta"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// pressure avoids Stores that are about to refuse writes or are slow.
func pressure(_ *framework.Resource, store *framework.Store) int64 {
	if meta.IsStatusConditionTrue(store.Status.Conditions, hostingv1alpha1.StoreUnderPressure) {
		return 0
	}
	return framework.MaxScore
}

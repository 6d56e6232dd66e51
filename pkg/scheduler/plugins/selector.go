// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// selector refuses Stores that do not match spec.storeSelector.
func selector(resource *framework.Resource, store *framework.Store) string {
	wanted := resource.Spec.StoreSelector
	if wanted == nil {
		return ""
	}
	parsed, err := metav1.LabelSelectorAsSelector(wanted)
	if err != nil {
		return "cannot be matched with spec.storeSelector: " + err.Error()
	}
	if parsed.Matches(labels.Set(store.Labels)) {
		return ""
	}
	return "does not match the selector " + metav1.FormatLabelSelector(wanted)
}

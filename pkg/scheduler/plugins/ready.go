// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

// ready refuses Stores that cannot accept writes.
func ready(_ *framework.Resource, store *framework.Store) string {
	if !store.DeletionTimestamp.IsZero() {
		return "is being deleted"
	}
	condition := meta.FindStatusCondition(store.Status.Conditions, hostingv1alpha1.StoreReady)
	switch {
	case condition == nil && store.Name == hostingv1alpha1.DefaultStoreName:
		// These objects were read from it. A resource created right after the start does
		// not wait for the condition.
	case condition == nil:
		return "is not known to be ready yet"
	case condition.Status != metav1.ConditionTrue && condition.Message == "":
		return "is not ready"
	case condition.Status != metav1.ConditionTrue:
		return "is not ready: " + condition.Message
	case len(store.Status.Alarms) > 0:
		return fmt.Sprintf("has raised the alarm %s", strings.Join(store.Status.Alarms, ", "))
	}
	return ""
}

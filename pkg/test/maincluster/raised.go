// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package maincluster

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RemoveRaised removes the entry of managedFields by which a rollback raises the resource version of an object. It manages
// nothing.
func RemoveRaised(object metav1.Object) {
	left := slices.DeleteFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == "annex-resource-version"
	})
	if len(left) == 0 {
		left = nil // the field is absent then
	}
	object.SetManagedFields(left)
}

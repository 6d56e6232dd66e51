// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourcequota is the REST storage of ResourceQuotas.
package resourcequota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// strategy is that of the main endpoint: it writes spec and metadata.
type strategy struct {
	typed.BaseStrategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (strategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(corev1.SchemeGroupVersion, "status")
}

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(*corev1.ResourceQuota).Status = corev1.ResourceQuotaStatus{}
}

func (strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateResourceQuota(obj.(*corev1.ResourceQuota))
}

// WarningsOnCreate says which limits will never be reached: a manifest for a
// cluster with pods may name them.
func (strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	quota := obj.(*corev1.ResourceQuota)
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
		if !countsObjects(name) {
			warnings = append(warnings, fmt.Sprintf("spec.hard[%s]: annex has nothing that counts for this", name))
		}
	}
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		warnings = append(warnings, "spec.scopes, spec.scopeSelector: a quota with scopes counts pods and volume claims only, and annex has none")
	}
	return warnings
}

// countsObjects reports whether a quota by that name counts objects that annex may
// have.
func countsObjects(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas:
		return true
	}
	return strings.HasPrefix(string(name), "count/")
}

func (strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	obj.(*corev1.ResourceQuota).Status = old.(*corev1.ResourceQuota).Status
}

func (strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateResourceQuotaUpdate(obj.(*corev1.ResourceQuota), old.(*corev1.ResourceQuota))
}

// statusStrategy is that of /status: it writes status and nothing else.
type statusStrategy struct {
	strategy
}

// GetResetFields implements rest.ResetFieldsStrategy.
func (statusStrategy) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return typed.ResetFields(corev1.SchemeGroupVersion, "metadata", "spec")
}

func (statusStrategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	updated, before := obj.(*corev1.ResourceQuota), old.(*corev1.ResourceQuota)
	updated.Spec = before.Spec
	metav1.ResetObjectMetaForStatus(&updated.ObjectMeta, &before.ObjectMeta)
}

func (statusStrategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateResourceQuotaStatusUpdate(obj.(*corev1.ResourceQuota), old.(*corev1.ResourceQuota))
}

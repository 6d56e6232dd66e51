// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
	"github.com/annex-dev/annex/pkg/table"
)

var resourceQuotas = typed.Resource{
	Kind:       corev1.SchemeGroupVersion.WithKind("ResourceQuota"),
	ShortNames: []string{"quota"},
	Strategy: resourceQuotaStrategy{typed.SpecStatusStrategy[*corev1.ResourceQuota]{
		ValidatedStrategy:        typed.Validated(typed.Namespaced, validation.ValidateResourceQuota, validation.ValidateResourceQuotaUpdate),
		ValidateStatusUpdateFunc: validation.ValidateResourceQuotaStatusUpdate,
		NoGeneration:             true,
	}},
	Table: table.New(corev1.Resource("resourcequotas"),
		table.Name[*corev1.ResourceQuota](),
		table.Column[*corev1.ResourceQuota]{
			Name:        "Request",
			Description: "Used and hard quantities, except limits of containers.",
			Value:       func(quota *corev1.ResourceQuota) any { return quotaUsage(quota, false) },
		},
		table.Column[*corev1.ResourceQuota]{
			Name:        "Limit",
			Description: "Used and hard limits of containers.",
			Value:       func(quota *corev1.ResourceQuota) any { return quotaUsage(quota, true) },
		},
		table.Age[*corev1.ResourceQuota](),
	),
	ReturnDeletedObject: true,
}

type resourceQuotaStrategy struct {
	typed.SpecStatusStrategy[*corev1.ResourceQuota]
}

// WarningsOnCreate names the limits that can never be reached: manifests written for a
// cluster with Pods may have them.
func (resourceQuotaStrategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	quota := obj.(*corev1.ResourceQuota)
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
		if !countsObjects(name) {
			warnings = append(warnings, fmt.Sprintf("spec.hard[%s]: annex serves nothing that this counts", name))
		}
	}
	if len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil {
		warnings = append(warnings, "spec.scopes, spec.scopeSelector: a quota with scopes counts only pods and volume claims, which annex does not serve")
	}
	return warnings
}

// countsObjects reports whether a quota with this name counts objects that annex serves.
func countsObjects(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas:
		return true
	}
	return strings.HasPrefix(string(name), "count/")
}

// quotaUsage is the cell with used/hard of each resource that is, or is not, a limit of
// containers.
func quotaUsage(quota *corev1.ResourceQuota, limits bool) string {
	var cells []string
	for _, name := range slices.Sorted(maps.Keys(quota.Status.Hard)) {
		if strings.HasPrefix(string(name), "limits.") != limits {
			continue
		}
		used, hard := quota.Status.Used[name], quota.Status.Hard[name]
		cells = append(cells, fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String()))
	}
	return strings.Join(cells, ", ")
}

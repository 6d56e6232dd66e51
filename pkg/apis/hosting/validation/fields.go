// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	resourceNames = sets.New(hostingv1alpha1.ResourceStorage, hostingv1alpha1.ResourceObjects)

	taintEffects = sets.New(hostingv1alpha1.TaintEffectNoSchedule, hostingv1alpha1.TaintEffectPreferNoSchedule)
)

// validateEnum rejects missing and unsupported values.
func validateEnum[T ~string](value T, supported sets.Set[T], path *field.Path) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !supported.Has(value):
		return field.ErrorList{field.NotSupported(path, value, sets.List(supported))}
	default:
		return nil
	}
}

func validateLabelValue(value string, path *field.Path) field.ErrorList {
	return metavalidation.Invalid(path, value, validation.IsValidLabelValue(value))
}

func validateNonNegativeQuantity(quantity *resource.Quantity, path *field.Path) field.ErrorList {
	if quantity == nil || quantity.Sign() >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, quantity.String(), apivalidation.IsNegativeErrorMsg)}
}

func validateResourceList(list hostingv1alpha1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity, keyPath := list[name], path.Key(string(name))
		if !resourceNames.Has(name) {
			errs = append(errs, field.NotSupported(keyPath, name, sets.List(resourceNames)))
			continue
		}
		errs = append(errs, validateNonNegativeQuantity(&quantity, keyPath)...)
		// Bytes and objects are whole numbers.
		if rounded := quantity.DeepCopy(); !rounded.RoundUp(0) {
			errs = append(errs, field.Invalid(keyPath, quantity.String(), "must be a whole number"))
		}
	}
	return errs
}

func validateTaints(taints []hostingv1alpha1.Taint, path *field.Path) field.ErrorList {
	type identity struct {
		key    string
		effect hostingv1alpha1.TaintEffect
	}
	var errs field.ErrorList
	seen := sets.New[identity]()
	for i, taint := range taints {
		taintPath := path.Index(i)
		if taint.Key == "" {
			errs = append(errs, field.Required(taintPath.Child("key"), ""))
		} else {
			errs = append(errs, metav1validation.ValidateLabelName(taint.Key, taintPath.Child("key"))...)
		}
		errs = append(errs, validateLabelValue(taint.Value, taintPath.Child("value"))...)
		errs = append(errs, validateEnum(taint.Effect, taintEffects, taintPath.Child("effect"))...)

		id := identity{key: taint.Key, effect: taint.Effect}
		if seen.Has(id) {
			errs = append(errs, field.Duplicate(taintPath, taint.Key+":"+string(taint.Effect)))
		}
		seen.Insert(id)
	}
	return errs
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// Names without a slash that a quota may limit. Most are for Pods and volumes, which
// annex does not serve; manifests with them are accepted.
var (
	countedResources = sets.New(
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	)
	podResources = sets.New(
		corev1.ResourcePods, corev1.ResourceCPU, corev1.ResourceMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	)
	claimResources = sets.New(corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage)
	diskResources  = sets.New(corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage)

	quotaResources = countedResources.Union(podResources).Union(claimResources).Union(diskResources)
)

// scopes are the resources that each scope applies to.
var scopes = map[corev1.ResourceQuotaScope]sets.Set[corev1.ResourceName]{
	corev1.ResourceQuotaScopeTerminating:               podResources,
	corev1.ResourceQuotaScopeNotTerminating:            podResources,
	corev1.ResourceQuotaScopeNotBestEffort:             podResources,
	corev1.ResourceQuotaScopeBestEffort:                sets.New(corev1.ResourcePods),
	corev1.ResourceQuotaScopePriorityClass:             podResources,
	corev1.ResourceQuotaScopeCrossNamespacePodAffinity: podResources,
	corev1.ResourceQuotaScopeVolumeAttributesClass:     claimResources,
}

// withoutValues are the scopes without values.
var withoutValues = sets.New(
	corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
	corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
	corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
)

// ValidateResourceQuota checks a new quota.
func ValidateResourceQuota(quota *corev1.ResourceQuota) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&quota.ObjectMeta, true, apivalidation.NameIsDNSSubdomain)
	return append(errs, validateQuotaSpec(&quota.Spec)...)
}

// ValidateResourceQuotaUpdate validates an update: scopes are immutable.
func ValidateResourceQuotaUpdate(newQuota, oldQuota *corev1.ResourceQuota) field.ErrorList {
	errs := append(metavalidation.ValidateFinalizers(&newQuota.ObjectMeta), validateQuotaSpec(&newQuota.Spec)...)
	if !sets.New(newQuota.Spec.Scopes...).Equal(sets.New(oldQuota.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), newQuota.Spec.Scopes, apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// ValidateResourceQuotaStatusUpdate validates an update of the status. The resource
// version is required: usage is counted with optimistic locking.
func ValidateResourceQuotaStatusUpdate(newQuota, _ *corev1.ResourceQuota) field.ErrorList {
	var errs field.ErrorList
	if newQuota.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	status := field.NewPath("status")
	errs = append(errs, validateQuantities(newQuota.Status.Hard, status.Child("hard"))...)
	return append(errs, validateQuantities(newQuota.Status.Used, status.Child("used"))...)
}

func validateQuotaSpec(spec *corev1.ResourceQuotaSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateQuantities(spec.Hard, path.Child("hard"))
	errs = append(errs, validateScopes(spec, path.Child("scopes"))...)
	if spec.ScopeSelector != nil {
		errs = append(errs, validateScopeSelector(spec, path.Child("scopeSelector", "matchExpressions"))...)
	}
	return errs
}

func validateQuantities(quantities corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(quantities)) {
		errs = append(errs, validateQuotaResource(name, path.Key(string(name)))...)
		errs = append(errs, validateQuantity(name, quantities[name], path.Key(string(name)))...)
	}
	return errs
}

func validateQuotaResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := metavalidation.Invalid(path, name, validation.IsQualifiedName(string(name)))
	if !strings.Contains(string(name), "/") && !isQuotaResource(name) {
		if len(errs) == 0 && name != corev1.ResourceStorage {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource type or fully qualified"))
		}
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for quota"))
	}
	return errs
}

func isQuotaResource(name corev1.ResourceName) bool {
	return quotaResources.Has(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

func validateQuantity(name corev1.ResourceName, quantity resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if quantity.Sign() < 0 {
		errs = append(errs, field.Invalid(path, quantity.String(), apivalidation.IsNegativeErrorMsg))
	}
	if isInteger(name) && quantity.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, quantity, "must be an integer"))
	}
	return errs
}

// isInteger is true for counts and extended resources; to Kubernetes, names count/… are
// such.
func isInteger(name corev1.ResourceName) bool {
	prefix := corev1.DefaultResourceRequestsPrefix
	native := !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
	extended := !native && !strings.HasPrefix(string(name), prefix) && len(validation.IsQualifiedName(prefix+string(name))) == 0
	return countedResources.Has(name) || extended
}

func validateScopes(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range spec.Scopes {
		if scopes[scope] == nil {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope"))
		}
		if !appliesTo(scope, spec.Hard) {
			errs = append(errs, field.Invalid(path, spec.Scopes, "unsupported scope applied to resource"))
		}
	}
	return append(errs, validateTogether(sets.New(spec.Scopes...), spec, path)...)
}

// appliesTo reports whether a scope applies to all resources of a quota.
func appliesTo(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) bool {
	holds, known := scopes[scope]
	for name := range hard {
		if known && isQuotaResource(name) && !holds.Has(name) {
			return false
		}
	}
	return true
}

// validateTogether rejects mutually exclusive scopes.
func validateTogether(together sets.Set[corev1.ResourceQuotaScope], spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if together.HasAll(corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort) {
		errs = append(errs, field.Invalid(path, spec.Scopes, "conflicting scopes"))
	}
	if together.HasAll(corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating) {
		errs = append(errs, field.Invalid(path, spec.Scopes, "conflicting scopes"))
	}
	return errs
}

func validateScopeSelector(spec *corev1.ResourceQuotaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	together := sets.New[corev1.ResourceQuotaScope]()
	for _, requirement := range spec.ScopeSelector.MatchExpressions {
		together.Insert(requirement.ScopeName)
		if scopes[requirement.ScopeName] == nil {
			errs = append(errs, field.Invalid(path.Child("scopeName"), requirement.ScopeName, "unsupported scope"))
		}
		if !appliesTo(requirement.ScopeName, spec.Hard) {
			errs = append(errs, field.Invalid(path, spec.ScopeSelector, "unsupported scope applied to resource"))
		}
		errs = append(errs, validateRequirement(requirement, path)...)
	}
	return append(errs, validateTogether(together, spec, path)...)
}

func validateRequirement(requirement corev1.ScopedResourceSelectorRequirement, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if withoutValues.Has(requirement.ScopeName) && requirement.Operator != corev1.ScopeSelectorOpExists {
		errs = append(errs, field.Invalid(path.Child("operator"), requirement.Operator,
			"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "+
				"ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
	}
	switch requirement.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(requirement.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(requirement.Values) != 0 {
			errs = append(errs, field.Invalid(path.Child("values"), requirement.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), requirement.Operator, "not a valid selector operator"))
	}
	return errs
}

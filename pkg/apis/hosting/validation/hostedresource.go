// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	compressions = sets.New(hostingv1alpha1.CompressionNone, hostingv1alpha1.CompressionZstd)

	caches = sets.New(hostingv1alpha1.CachePlain, hostingv1alpha1.CacheCompressed, hostingv1alpha1.CacheNone)

	phases = sets.New(hostingv1alpha1.HostedResourcePending, hostingv1alpha1.HostedResourceHosted, hostingv1alpha1.HostedResourceTerminating)

	tolerationOperators = sets.New(hostingv1alpha1.TolerationOpEqual, hostingv1alpha1.TolerationOpExists)
)

// ValidateHostedResource checks a new HostedResource.
func ValidateHostedResource(hosted *hostingv1alpha1.HostedResource) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&hosted.ObjectMeta, false, validateHostedResourceName, field.NewPath("metadata"))
	return append(errs, validateHostedResourceSpec(&hosted.Spec, field.NewPath("spec"))...)
}

// ValidateHostedResourceUpdate checks an update of a HostedResource's spec and
// metadata.
func ValidateHostedResourceUpdate(newHosted, oldHosted *hostingv1alpha1.HostedResource) field.ErrorList {
	specPath := field.NewPath("spec")
	errs := validateHostedResourceSpec(&newHosted.Spec, specPath)
	if !newHosted.DeletionTimestamp.IsZero() && len(newHosted.Finalizers) == 0 && newHosted.Status.DefinitionUID != "" {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), "the last one cannot be removed while the resource is defined: this object records the Store of its objects"))
	}
	return append(errs, validateStoreNameUpdate(newHosted.Spec.StoreName, oldHosted.Spec.StoreName, specPath.Child("storeName"))...)
}

// validateStoreNameUpdate makes storeName immutable. Only a binding sets it, which checks
// the Store.
func validateStoreNameUpdate(newName, oldName string, path *field.Path) field.ErrorList {
	if oldName == "" && newName != "" {
		return field.ErrorList{field.Forbidden(path, "may be given when the HostedResource is made; later the subresource binding sets it, as `annex place` does")}
	}
	return apivalidation.ValidateImmutableField(newName, oldName, path)
}

// ValidateHostedResourceBinding checks the binding of the HostedResource of a name.
func ValidateHostedResourceBinding(binding *hostingv1alpha1.HostedResourceBinding, name string) field.ErrorList {
	var errs field.ErrorList
	if binding.Name != name {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), binding.Name, "must be the name in the URL"))
	}
	return append(errs, metavalidation.ValidateRequiredName(binding.StoreName, apivalidation.NameIsDNSSubdomain, field.NewPath("storeName"))...)
}

// ValidateHostedResourceStatusUpdate checks an update of a HostedResource's
// status.
func ValidateHostedResourceStatusUpdate(newHosted, oldHosted *hostingv1alpha1.HostedResource) field.ErrorList {
	var errs field.ErrorList
	if uid := newHosted.Status.DefinitionUID; !newHosted.DeletionTimestamp.IsZero() && uid != "" && uid != oldHosted.Status.DefinitionUID {
		errs = append(errs, field.Forbidden(field.NewPath("status", "definitionUID"), "may not be set while the HostedResource is being deleted: the next one may name another Store"))
	}
	return append(errs, validateHostedResourceStatus(&newHosted.Status, field.NewPath("status"))...)
}

// validateHostedResourceName checks that a name is "<plural>.<group>", as valid in a
// CustomResourceDefinition. A group without a dot would share keys with kinds of
// Kubernetes: in etcd, a.secrets is the Secrets of the namespace a.
func validateHostedResourceName(name string, _ bool) []string {
	plural, group, found := strings.Cut(name, ".")
	if !found {
		return []string{"must be of the form <plural>.<group>"}
	}
	var msgs []string
	for _, msg := range validation.IsDNS1035Label(plural) {
		msgs = append(msgs, "plural: "+msg)
	}
	invalidGroup := validation.IsDNS1123Subdomain(group)
	if len(invalidGroup) == 0 && !strings.Contains(group, ".") {
		invalidGroup = []string{"must have at least one dot"}
	}
	for _, msg := range invalidGroup {
		msgs = append(msgs, "group: "+msg)
	}
	if len(name) > validation.DNS1123SubdomainMaxLength {
		msgs = append(msgs, validation.MaxLenError(validation.DNS1123SubdomainMaxLength))
	}
	return msgs
}

func validateHostedResourceSpec(spec *hostingv1alpha1.HostedResourceSpec, specPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.StoreName != "" {
		errs = append(errs, metavalidation.ValidateRequiredName(spec.StoreName, apivalidation.NameIsDNSSubdomain, specPath.Child("storeName"))...)
	}
	errs = append(errs, metav1validation.ValidateLabelSelector(spec.StoreSelector, metav1validation.LabelSelectorValidationOptions{}, specPath.Child("storeSelector"))...)
	for i := range spec.Tolerations {
		errs = append(errs, validateToleration(&spec.Tolerations[i], specPath.Child("tolerations").Index(i))...)
	}
	errs = append(errs, validateResourceList(spec.Requests, specPath.Child("requests"))...)
	errs = append(errs, validateResourceList(spec.Limits, specPath.Child("limits"))...)
	errs = append(errs, validateResourceList(spec.NamespaceLimits, specPath.Child("namespaceLimits"))...)
	errs = append(errs, validateRetention(spec.Retention, specPath.Child("retention"))...)
	if spec.Compression != "" {
		errs = append(errs, validateEnum(spec.Compression, compressions, specPath.Child("compression"))...)
	}
	if spec.Cache != "" {
		errs = append(errs, validateEnum(spec.Cache, caches, specPath.Child("cache"))...)
	}
	return append(errs, metavalidation.ValidateRequiredName(spec.SchedulerName, apivalidation.NameIsDNSSubdomain, specPath.Child("schedulerName"))...)
}

func validateToleration(toleration *hostingv1alpha1.Toleration, tolerationPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if toleration.Key != "" {
		errs = append(errs, metav1validation.ValidateLabelName(toleration.Key, tolerationPath.Child("key"))...)
	} else if toleration.Operator != hostingv1alpha1.TolerationOpExists {
		errs = append(errs, field.Invalid(tolerationPath.Child("operator"), toleration.Operator, "must be Exists when `key` is empty"))
	}
	errs = append(errs, validateEnum(toleration.Operator, tolerationOperators, tolerationPath.Child("operator"))...)
	if toleration.Operator == hostingv1alpha1.TolerationOpExists && toleration.Value != "" {
		errs = append(errs, field.Invalid(tolerationPath.Child("value"), toleration.Value, "must be empty when `operator` is Exists"))
	}
	errs = append(errs, validateLabelValue(toleration.Value, tolerationPath.Child("value"))...)
	if toleration.Effect != "" {
		errs = append(errs, validateEnum(toleration.Effect, taintEffects, tolerationPath.Child("effect"))...)
	}
	return errs
}

func validateHostedResourceStatus(status *hostingv1alpha1.HostedResourceStatus, statusPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	if status.Phase != "" {
		errs = append(errs, validateEnum(status.Phase, phases, statusPath.Child("phase"))...)
	}
	errs = append(errs, metav1validation.ValidateConditions(status.Conditions, statusPath.Child("conditions"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Objects, statusPath.Child("objects"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.Bytes, statusPath.Child("bytes"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.StoredBytes, statusPath.Child("storedBytes"))...)
	errs = append(errs, apivalidation.ValidateNonnegativeField(status.CachedBytes, statusPath.Child("cachedBytes"))...)
	return append(errs, validateRetentionStatus(status.Retention, statusPath.Child("retention"))...)
}

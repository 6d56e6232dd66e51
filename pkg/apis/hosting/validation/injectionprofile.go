// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/annex-dev/annex/pkg/apis/hosting/injectionpath"
	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

var (
	injectionModes = sets.New(hostingv1alpha1.InjectionOptOut, hostingv1alpha1.InjectionOptIn)

	injectionTemplateTypes = sets.New(hostingv1alpha1.InjectionPodTemplate, hostingv1alpha1.InjectionPodSpec, hostingv1alpha1.InjectionArgoTemplate)
)

// ValidateInjectionProfile validates a new InjectionProfile. Admission checks that its paths
// exist in the definitions of the targets.
func ValidateInjectionProfile(profile *hostingv1alpha1.InjectionProfile) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&profile.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return append(errs, validateInjectionProfileSpec(&profile.Spec, field.NewPath("spec"))...)
}

// ValidateInjectionProfileUpdate checks an update of an InjectionProfile's spec and metadata.
func ValidateInjectionProfileUpdate(newProfile, _ *hostingv1alpha1.InjectionProfile) field.ErrorList {
	return validateInjectionProfileSpec(&newProfile.Spec, field.NewPath("spec"))
}

// ValidateInjectionProfileStatusUpdate checks an update of an InjectionProfile's status.
func ValidateInjectionProfileStatusUpdate(newProfile, _ *hostingv1alpha1.InjectionProfile) field.ErrorList {
	statusPath := field.NewPath("status")
	errs := apivalidation.ValidateNonnegativeField(newProfile.Status.ObservedGeneration, statusPath.Child("observedGeneration"))
	return append(errs, metav1validation.ValidateConditions(newProfile.Status.Conditions, statusPath.Child("conditions"))...)
}

func validateInjectionProfileSpec(spec *hostingv1alpha1.InjectionProfileSpec, specPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateEnum(spec.Mode, injectionModes, specPath.Child("mode"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(spec.NamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, specPath.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(spec.ObjectSelector, metav1validation.LabelSelectorValidationOptions{}, specPath.Child("objectSelector"))...)
	errs = append(errs, validateInjectionTargets(spec.Targets, specPath.Child("targets"))...)
	if len(spec.Containers)+len(spec.InitContainers)+len(spec.Volumes)+len(spec.VolumeMounts)+len(spec.Env) == 0 {
		errs = append(errs, field.Required(specPath, "one of containers, initContainers, volumes, volumeMounts and env"))
	}
	return append(errs, validateInjectionParts(spec, specPath)...)
}

func validateInjectionTargets(targets []hostingv1alpha1.InjectionTarget, path *field.Path) field.ErrorList {
	if len(targets) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	resources := sets.New[string]()
	for i, target := range targets {
		resourcePath := path.Index(i).Child("resource")
		errs = append(errs, metavalidation.ValidateRequiredName(target.Resource, validateHostedResourceName, resourcePath)...)
		if resources.Has(target.Resource) {
			errs = append(errs, field.Duplicate(resourcePath, target.Resource))
		}
		resources.Insert(target.Resource)
		errs = append(errs, validateInjectionTemplates(target.Templates, path.Index(i).Child("templates"))...)
	}
	return errs
}

func validateInjectionTemplates(templates []hostingv1alpha1.InjectionTemplate, path *field.Path) field.ErrorList {
	if len(templates) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(templates) > injectionpath.MaxTemplates {
		return field.ErrorList{field.TooMany(path, len(templates), injectionpath.MaxTemplates)}
	}
	var errs field.ErrorList
	paths := sets.New[string]()
	for i, template := range templates {
		templatePath := path.Index(i).Child("path")
		if template.Path == "" {
			errs = append(errs, field.Required(templatePath, ""))
		} else if _, err := injectionpath.Parse(template.Path); err != nil {
			errs = append(errs, field.Invalid(templatePath, template.Path, err.Error()))
		}
		if paths.Has(template.Path) {
			errs = append(errs, field.Duplicate(templatePath, template.Path))
		}
		paths.Insert(template.Path)
		errs = append(errs, validateEnum(template.Type, injectionTemplateTypes, path.Index(i).Child("type"))...)
	}
	return errs
}

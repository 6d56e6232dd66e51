// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// validateInjectionParts checks that the parts have the fields of a Pod, that their names are
// unique, and that mounted volumes exist. The CustomResourceDefinition of a target and the
// cluster that runs the Pod validate the other values.
func validateInjectionParts(spec *hostingv1alpha1.InjectionProfileSpec, specPath *field.Path) field.ErrorList {
	var errs field.ErrorList
	containers, volumes, env, mountPaths := sets.New[string](), sets.New[string](), sets.New[string](), sets.New[string]()
	container := func(container corev1.Container, path *field.Path) {
		errs = append(errs, validateUniqueName(container.Name, containers, apivalidation.NameIsDNSLabel, path.Child("name"))...)
		if container.Image == "" {
			errs = append(errs, field.Required(path.Child("image"), ""))
		}
	}
	errs = append(errs, eachPart(spec.InitContainers, specPath.Child("initContainers"), container)...)
	errs = append(errs, eachPart(spec.Containers, specPath.Child("containers"), container)...)
	errs = append(errs, eachPart(spec.Volumes, specPath.Child("volumes"), func(volume corev1.Volume, path *field.Path) {
		errs = append(errs, validateUniqueName(volume.Name, volumes, apivalidation.NameIsDNSLabel, path.Child("name"))...)
	})...)
	errs = append(errs, eachPart(spec.VolumeMounts, specPath.Child("volumeMounts"), func(mount corev1.VolumeMount, path *field.Path) {
		errs = append(errs, validateUniqueName(mount.MountPath, mountPaths, anyName, path.Child("mountPath"))...)
		if !volumes.Has(mount.Name) {
			errs = append(errs, field.NotSupported(path.Child("name"), mount.Name, sets.List(volumes)))
		}
	})...)
	return append(errs, eachPart(spec.Env, specPath.Child("env"), func(variable corev1.EnvVar, path *field.Path) {
		errs = append(errs, validateUniqueName(variable.Name, env, anyName, path.Child("name"))...)
	})...)
}

func anyName(string, bool) []string { return nil }

func validateUniqueName(name string, seen sets.Set[string], valid apivalidation.ValidateNameFunc, path *field.Path) field.ErrorList {
	errs := metavalidation.ValidateRequiredName(name, valid, path)
	if name != "" && seen.Has(name) {
		errs = append(errs, field.Duplicate(path, name))
	}
	seen.Insert(name)
	return errs
}

// eachPart decodes parts, and calls check for those that have only fields of T.
func eachPart[T any](parts []runtime.RawExtension, path *field.Path, check func(part T, path *field.Path)) field.ErrorList {
	var errs field.ErrorList
	for i := range parts {
		var fields map[string]any
		var part T
		raw, partPath := parts[i].Raw, path.Index(i)
		if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
			errs = append(errs, field.Invalid(partPath, string(raw), "must be an object"))
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, &part, true); err != nil {
			errs = append(errs, field.Invalid(partPath, string(raw), err.Error()))
			continue
		}
		check(part, partPath)
	}
	return errs
}

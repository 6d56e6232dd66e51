// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package validation validates objects of the core group, with the messages of
// Kubernetes, which are part of the API.
package validation

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

const immutableMessage = "field is immutable when `immutable` is set"

var (
	dataPath       = field.NewPath("data")
	binaryDataPath = field.NewPath("binaryData")
	immutablePath  = field.NewPath("immutable")
)

// ValidateConfigMap checks a new config map.
func ValidateConfigMap(configMap *corev1.ConfigMap) field.ErrorList {
	errs := metavalidation.ValidateObjectMeta(&configMap.ObjectMeta, true, apivalidation.NameIsDNSSubdomain)
	size := 0
	for _, key := range sortedKeys(configMap.Data) {
		errs = append(errs, validateDataKey(key, dataPath)...)
		if _, both := configMap.BinaryData[key]; both {
			errs = append(errs, field.Invalid(dataPath.Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(configMap.Data[key])
	}
	for _, key := range sortedKeys(configMap.BinaryData) {
		errs = append(errs, validateDataKey(key, binaryDataPath)...)
		size += len(configMap.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		// The empty path is the whole object.
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

// ValidateConfigMapUpdate checks an update of a config map.
func ValidateConfigMapUpdate(newConfigMap, oldConfigMap *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if isTrue(oldConfigMap.Immutable) {
		errs = append(errs, forbidUnless(isTrue(newConfigMap.Immutable), immutablePath)...)
		errs = append(errs, forbidUnless(equality.Semantic.DeepEqual(newConfigMap.Data, oldConfigMap.Data), dataPath)...)
		errs = append(errs, forbidUnless(equality.Semantic.DeepEqual(newConfigMap.BinaryData, oldConfigMap.BinaryData), binaryDataPath)...)
	}
	return append(errs, ValidateConfigMap(newConfigMap)...)
}

func validateDataKey(key string, path *field.Path) field.ErrorList {
	return metavalidation.Invalid(path.Key(key), key, validation.IsConfigMapKey(key))
}

func forbidUnless(unchanged bool, path *field.Path) field.ErrorList {
	if unchanged {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, immutableMessage)}
}

func isTrue(value *bool) bool { return value != nil && *value }

// sortedKeys makes the order of errors deterministic.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

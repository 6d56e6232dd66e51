// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults and field selectors of core/v1.
package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var schemeBuilder = runtime.NewSchemeBuilder(corev1.AddToScheme, addDefaults, addFieldLabels)

// AddToScheme adds the types, their defaults and their field labels to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 is the behaviour that the core/v1 types of k8s.io/api have in a
// server: their defaults and their field selectors.
package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var schemeBuilder = runtime.NewSchemeBuilder(corev1.AddToScheme, addDefaults, addFieldLabels)

// AddToScheme adds the types, their defaults and their field labels to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

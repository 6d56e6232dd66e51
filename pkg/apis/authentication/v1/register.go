// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of authentication.k8s.io/v1.
package v1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var schemeBuilder = runtime.NewSchemeBuilder(authenticationv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

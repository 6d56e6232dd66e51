// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 has the defaults of authentication.k8s.io/v1.
package v1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// defaultTokenLifetime is that of Kubernetes.
const defaultTokenLifetime int64 = 3600

var schemeBuilder = runtime.NewSchemeBuilder(authenticationv1.AddToScheme, addDefaults)

// AddToScheme adds the types and their defaults to a scheme.
var AddToScheme = schemeBuilder.AddToScheme

func addDefaults(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(obj any) {
		SetDefaultsTokenRequest(obj.(*authenticationv1.TokenRequest))
	})
	return nil
}

// SetDefaultsTokenRequest sets the lifetime of the token.
func SetDefaultsTokenRequest(request *authenticationv1.TokenRequest) {
	if request.Spec.ExpirationSeconds == nil {
		request.Spec.ExpirationSeconds = ptr.To(defaultTokenLifetime)
	}
}

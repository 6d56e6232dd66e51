// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// defaultTokenLifetime is that of Kubernetes.
const defaultTokenLifetime int64 = 3600

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

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// defaultTokenSeconds is Kubernetes' default lifetime of a token.
const defaultTokenSeconds int64 = 3600

func addAuthentication(scheme *runtime.Scheme) error {
	scheme.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(obj any) {
		setDefault(&obj.(*authenticationv1.TokenRequest).Spec.ExpirationSeconds, defaultTokenSeconds)
	})
	return authenticationv1.AddToScheme(scheme)
}

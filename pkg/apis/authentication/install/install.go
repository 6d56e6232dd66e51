// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group authentication.k8s.io to a scheme.
package install

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	annexauthenticationv1 "github.com/annex-dev/annex/pkg/apis/authentication/v1"
)

// Install registers the group. One Go type is v1 and the internal type. Its kinds are
// reviews, which are not stored.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(annexauthenticationv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: authenticationv1.GroupName, Version: runtime.APIVersionInternal},
		&authenticationv1.TokenRequest{},
		&authenticationv1.TokenReview{},
		&authenticationv1.SelfSubjectReview{},
	)
	utilruntime.Must(scheme.SetVersionPriority(authenticationv1.SchemeGroupVersion))
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group authorization.k8s.io to a scheme.
package install

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Install registers the group. One Go type is v1 and the internal type. Its kinds are
// reviews, which are not stored.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(authorizationv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: authorizationv1.GroupName, Version: runtime.APIVersionInternal},
		&authorizationv1.SubjectAccessReview{},
		&authorizationv1.SelfSubjectAccessReview{},
		&authorizationv1.LocalSubjectAccessReview{},
		&authorizationv1.SelfSubjectRulesReview{},
	)
	utilruntime.Must(scheme.SetVersionPriority(authorizationv1.SchemeGroupVersion))
}

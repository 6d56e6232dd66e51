// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group coordination.k8s.io to a scheme.
package install

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Install registers the group. One Go type is v1 and the internal type.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(coordinationv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: coordinationv1.GroupName, Version: runtime.APIVersionInternal},
		&coordinationv1.Lease{}, &coordinationv1.LeaseList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(coordinationv1.SchemeGroupVersion))
}

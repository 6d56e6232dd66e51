// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the core group to a scheme.
package install

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	annexcorev1 "github.com/annex-dev/annex/pkg/apis/core/v1"
)

// Install registers the core group. One Go type is v1 and the internal type, so no
// conversions are needed. All kinds of v1 are known, as clients expect; only those that
// annex serves have an internal type.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(annexcorev1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: corev1.GroupName, Version: runtime.APIVersionInternal},
		&corev1.Namespace{}, &corev1.NamespaceList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Secret{}, &corev1.SecretList{},
		&corev1.ServiceAccount{}, &corev1.ServiceAccountList{},
		&corev1.Event{}, &corev1.EventList{},
		&corev1.ResourceQuota{}, &corev1.ResourceQuotaList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(corev1.SchemeGroupVersion))
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds every version of the hosting API group to a scheme.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/annex-dev/annex/pkg/apis/hosting"
	"github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
)

// Install adds the internal types and every served version of the hosting group to
// scheme, and sets the preferred version.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(hosting.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}

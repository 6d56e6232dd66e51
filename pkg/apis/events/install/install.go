// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package install adds the group events.k8s.io to a scheme.
package install

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	annexeventsv1 "github.com/annex-dev/annex/pkg/apis/events/v1"
)

// Install registers the group. Its internal type is the Event of the core group, so both
// groups serve and store the same objects.
func Install(scheme *runtime.Scheme) {
	// Errors use the first kind of a type: the one of the core group, in any order of
	// installation.
	utilruntime.Must(corev1.AddToScheme(scheme))
	utilruntime.Must(annexeventsv1.AddToScheme(scheme))
	scheme.AddKnownTypes(schema.GroupVersion{Group: eventsv1.GroupName, Version: runtime.APIVersionInternal},
		&corev1.Event{}, &corev1.EventList{},
	)
	utilruntime.Must(scheme.SetVersionPriority(eventsv1.SchemeGroupVersion))
}

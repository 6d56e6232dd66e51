// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1 converts between the Event of events.k8s.io/v1 and that of the core group,
// the internal type of both.
package v1

import (
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var schemeBuilder = runtime.NewSchemeBuilder(eventsv1.AddToScheme, addConversions, addFieldLabels)

// AddToScheme adds the types, their conversions and their field labels to a
// scheme.
var AddToScheme = schemeBuilder.AddToScheme

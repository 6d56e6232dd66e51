// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// NewEventsGroup creates the storage of events.k8s.io, which serves and stores the events of the
// core group.
func NewEventsGroup(getter generic.RESTOptionsGetter, ttl time.Duration) (genericapiserver.APIGroupInfo, error) {
	return typed.NewGroup(eventsv1.SchemeGroupVersion, getter, events(ttl))
}

// events describes events, which expire after ttl.
func events(ttl time.Duration) typed.Resource {
	return typed.Resource{
		Kind:       corev1.SchemeGroupVersion.WithKind("Event"),
		ShortNames: []string{"ev"},
		Strategy: eventStrategy{typed.ValidatedStrategy[*corev1.Event]{
			// Recorders update events that may have expired.
			BaseStrategy: typed.Namespaced.CreatingOnUpdate(),
			ValidateFunc: func(ctx context.Context, event *corev1.Event) field.ErrorList {
				return validation.ValidateEventCreate(event, requestVersion(ctx))
			},
			ValidateUpdateFunc: func(ctx context.Context, updated, old *corev1.Event) field.ErrorList {
				return validation.ValidateEventUpdate(updated, old, requestVersion(ctx))
			},
		}},
		Attrs: typed.Fields(eventFields),
		TTL:   ttl,
		Table: eventTable,
	}
}

type eventStrategy struct {
	typed.ValidatedStrategy[*corev1.Event]
}

var _ rest.GarbageCollectionDeleteStrategy = eventStrategy{}

// DefaultGarbageCollectionPolicy implements rest.GarbageCollectionDeleteStrategy: events
// expire and are not garbage collected.
func (eventStrategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.Unsupported
}

// requestVersion is the group and version of the request, which selects the validation. A
// context without a request selects the strict one.
func requestVersion(ctx context.Context) schema.GroupVersion {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return schema.GroupVersion{}
	}
	return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
}

// eventFields returns the fields for selectors, by the names of the core group. The scheme maps
// the names of events.k8s.io to them.
func eventFields(event *corev1.Event) fields.Set {
	involved := event.InvolvedObject
	return fields.Set{
		"involvedObject.kind":            involved.Kind,
		"involvedObject.namespace":       involved.Namespace,
		"involvedObject.name":            involved.Name,
		"involvedObject.uid":             string(involved.UID),
		"involvedObject.apiVersion":      involved.APIVersion,
		"involvedObject.resourceVersion": involved.ResourceVersion,
		"involvedObject.fieldPath":       involved.FieldPath,
		"reason":                         event.Reason,
		"reportingComponent":             event.ReportingController,
		"source":                         cmp.Or(event.Source.Component, event.ReportingController),
		"type":                           event.Type,
	}
}

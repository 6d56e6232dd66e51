// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package event is the REST storage of events, which the groups core and events.k8s.io both
// serve.
package event

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/registry/typed"
)

// Resource describes events, which expire after ttl. Both groups store them under the
// resource of the core group.
func Resource(typer runtime.ObjectTyper, ttl time.Duration) typed.Resource {
	return typed.Resource{
		Kind:       corev1.SchemeGroupVersion.WithKind("Event"),
		ShortNames: []string{"ev"},
		Strategy:   strategy{typed.Namespaced(typer)},
		Attrs:      attrs,
		TTL:        ttl,
		Table:      tableConvertor,
	}
}

type strategy struct {
	typed.BaseStrategy
}

var _ rest.GarbageCollectionDeleteStrategy = strategy{}

// DefaultGarbageCollectionPolicy implements rest.GarbageCollectionDeleteStrategy: events
// expire and are not garbage collected.
func (strategy) DefaultGarbageCollectionPolicy(context.Context) rest.GarbageCollectionPolicy {
	return rest.Unsupported
}

func (strategy) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return validation.ValidateEventCreate(obj.(*corev1.Event), requestVersion(ctx))
}

// AllowCreateOnUpdate lets a recorder update an expired event.
func (strategy) AllowCreateOnUpdate(context.Context) bool { return true }

func (strategy) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return validation.ValidateEventUpdate(obj.(*corev1.Event), old.(*corev1.Event), requestVersion(ctx))
}

// requestVersion is the group and version of the request, which selects the validation.
// Without a request it is the strict one.
func requestVersion(ctx context.Context) schema.GroupVersion {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	if !ok {
		return schema.GroupVersion{}
	}
	return schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
}

// attrs returns what selectors match, by the names of the core group; those of
// events.k8s.io are mapped to them.
func attrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	event, ok := obj.(*corev1.Event)
	if !ok {
		return nil, nil, fmt.Errorf("select events: unexpected type %T", obj)
	}
	involved := event.InvolvedObject
	return event.Labels, generic.AddObjectMetaFieldsSet(fields.Set{
		"involvedObject.kind":            involved.Kind,
		"involvedObject.namespace":       involved.Namespace,
		"involvedObject.name":            involved.Name,
		"involvedObject.uid":             string(involved.UID),
		"involvedObject.apiVersion":      involved.APIVersion,
		"involvedObject.resourceVersion": involved.ResourceVersion,
		"involvedObject.fieldPath":       involved.FieldPath,
		"reason":                         event.Reason,
		"reportingComponent":             event.ReportingController,
		"source":                         firstOf(event.Source.Component, event.ReportingController),
		"type":                           event.Type,
	}, &event.ObjectMeta, true), nil
}

// firstOf returns the first non-empty value: old and new events use different fields.
func firstOf(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

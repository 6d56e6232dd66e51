// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheme

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// addEvents adds events.k8s.io, whose internal type is the Event of the core group.
func addEvents(scheme *runtime.Scheme) error {
	return errors.Join(
		eventsv1.AddToScheme(scheme),
		addEventFieldLabels(scheme),
		scheme.AddConversionFunc((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(in, out any, _ conversion.Scope) error {
			toCore(in.(*eventsv1.Event), out.(*corev1.Event))
			return nil
		}),
		scheme.AddConversionFunc((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(in, out any, _ conversion.Scope) error {
			fromCore(in.(*corev1.Event), out.(*eventsv1.Event))
			return nil
		}),
		scheme.AddConversionFunc((*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*eventsv1.EventList), out.(*corev1.EventList)
			to.ListMeta, to.Items = from.ListMeta, convertItems(from.Items, toCore)
			return nil
		}),
		scheme.AddConversionFunc((*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*corev1.EventList), out.(*eventsv1.EventList)
			to.ListMeta, to.Items = from.ListMeta, convertItems(from.Items, fromCore)
			return nil
		}),
	)
}

// toCore and fromCore set every field: the two types have the same content under
// different names. As in other conversions, in and out share memory.
func toCore(in *eventsv1.Event, out *corev1.Event) {
	*out = corev1.Event{
		ObjectMeta:          in.ObjectMeta,
		InvolvedObject:      in.Regarding,
		Reason:              in.Reason,
		Message:             in.Note,
		Source:              in.DeprecatedSource,
		FirstTimestamp:      in.DeprecatedFirstTimestamp,
		LastTimestamp:       in.DeprecatedLastTimestamp,
		Count:               in.DeprecatedCount,
		Type:                in.Type,
		EventTime:           in.EventTime,
		Series:              (*corev1.EventSeries)(in.Series),
		Action:              in.Action,
		Related:             in.Related,
		ReportingController: in.ReportingController,
		ReportingInstance:   in.ReportingInstance,
	}
}

func fromCore(in *corev1.Event, out *eventsv1.Event) {
	*out = eventsv1.Event{
		ObjectMeta:               in.ObjectMeta,
		EventTime:                in.EventTime,
		Series:                   (*eventsv1.EventSeries)(in.Series),
		ReportingController:      in.ReportingController,
		ReportingInstance:        in.ReportingInstance,
		Action:                   in.Action,
		Reason:                   in.Reason,
		Regarding:                in.InvolvedObject,
		Related:                  in.Related,
		Note:                     in.Message,
		Type:                     in.Type,
		DeprecatedSource:         in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp,
		DeprecatedLastTimestamp:  in.LastTimestamp,
		DeprecatedCount:          in.Count,
	}
}

// convertItems preserves nil: it is encoded as null, an empty list as [].
func convertItems[In, Out any](in []In, convert func(*In, *Out)) []Out {
	if in == nil {
		return nil
	}
	out := make([]Out, len(in))
	for i := range in {
		convert(&in[i], &out[i])
	}
	return out
}

// eventFieldLabels maps the field selectors of events.k8s.io to the selectors of the core group.
var eventFieldLabels = map[string]string{
	"metadata.name":             "metadata.name",
	"metadata.namespace":        "metadata.namespace",
	"reason":                    "reason",
	"regarding.kind":            "involvedObject.kind",
	"regarding.namespace":       "involvedObject.namespace",
	"regarding.name":            "involvedObject.name",
	"regarding.uid":             "involvedObject.uid",
	"regarding.apiVersion":      "involvedObject.apiVersion",
	"regarding.resourceVersion": "involvedObject.resourceVersion",
	"regarding.fieldPath":       "involvedObject.fieldPath",
	"reportingController":       "reportingComponent",
	"type":                      "type",
}

func addEventFieldLabels(scheme *runtime.Scheme) error {
	return scheme.AddFieldLabelConversionFunc(eventsv1.SchemeGroupVersion.WithKind("Event"),
		func(label, value string) (string, string, error) {
			hub, ok := eventFieldLabels[label]
			if !ok {
				return "", "", fmt.Errorf("field label not supported: %s", label)
			}
			return hub, value, nil
		})
}

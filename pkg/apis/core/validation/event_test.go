// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/annex-dev/annex/pkg/apis/core/validation"
	"github.com/annex-dev/annex/pkg/test/expect"
)

var microTime = metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))

// oldEvent is an event of client-go's core recorder.
func oldEvent() *corev1.Event {
	return &corev1.Event{ObjectMeta: meta(), InvolvedObject: corev1.ObjectReference{Namespace: "ns"}, Count: 1}
}

// newEvent is an event of client-go's events.k8s.io recorder.
func newEvent() *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          meta(),
		InvolvedObject:      corev1.ObjectReference{Namespace: "elsewhere"},
		EventTime:           microTime,
		Type:                corev1.EventTypeNormal,
		Reason:              "Started",
		Action:              "Start",
		ReportingController: "annex.dev/controller",
		ReportingInstance:   "controller-0",
	}
}

func TestValidateEventCreate(t *testing.T) {
	t.Parallel()
	const namespaceMessage = "does not match event.namespace"
	long := strings.Repeat("x", 1025)
	tests := []struct {
		name    string
		event   *corev1.Event
		version schema.GroupVersion
		mutate  func(*corev1.Event)
		want    []string
	}{
		{name: "core, old", event: oldEvent(), version: corev1.SchemeGroupVersion},
		{name: "core, new", event: newEvent(), version: corev1.SchemeGroupVersion},
		{name: "events, new", event: newEvent(), version: eventsv1.SchemeGroupVersion},
		{
			name: "core, old, elsewhere", event: oldEvent(), version: corev1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.InvolvedObject.Namespace = "b" },
			want:   []string{`involvedObject.namespace: Invalid value: "b": ` + namespaceMessage},
		},
		{
			name: "core, old, cluster-scoped object", event: oldEvent(), version: corev1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.InvolvedObject.Namespace = "" },
			want:   []string{`involvedObject.namespace: Invalid value: "": ` + namespaceMessage},
		},
		{
			name: "core, old, cluster-scoped object in default", event: oldEvent(), version: corev1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.InvolvedObject.Namespace, e.Namespace = "", "default" },
		},
		{
			name: "new, cluster-scoped object in kube-system", event: newEvent(), version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.InvolvedObject.Namespace, e.Namespace = "", "kube-system" },
		},
		{
			name: "new, cluster-scoped object in ns", event: newEvent(), version: corev1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.InvolvedObject.Namespace = "" },
			want:   []string{`involvedObject.namespace: Invalid value: "": ` + namespaceMessage},
		},
		{
			name: "core, reporter", event: newEvent(), version: corev1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.ReportingController, e.ReportingInstance = "a b", "" },
			want: []string{
				`reportingComponent: Invalid value: "a b": name part must consist of`,
				"reportingInstance: Required value",
			},
		},
		{
			name: "events, missing", event: newEvent(), version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.ReportingController, e.Action, e.Reason, e.Type = "", "", "", "Odd" },
			want: []string{
				"reportingController: Required value",
				`reportingController: Invalid value: "": name part must be non-empty`,
				`reportingController: Invalid value: "": name part must consist of`,
				"action: Required value", "reason: Required value",
				`type: Invalid value: "": has invalid value: Odd`,
			},
		},
		{
			name: "events, too long", event: newEvent(), version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.ReportingInstance, e.Action, e.Reason, e.Message = long, long, long, long },
			want: []string{
				`reportingInstance: Invalid value: "": can have at most 128 characters`,
				`action: Invalid value: "": can have at most 128 characters`,
				`reason: Invalid value: "": can have at most 128 characters`,
				`message: Invalid value: "": can have at most 1024 characters`,
			},
		},
		{
			name: "events, old", event: oldEvent(), version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) {
				e.FirstTimestamp, e.LastTimestamp, e.Source.Host = metav1.Now(), metav1.Now(), "h"
				e.Type = corev1.EventTypeWarning
			},
			want: []string{
				"eventTime: Required value",
				`firstTimestamp: Invalid value: "": needs to be unset`,
				`lastTimestamp: Invalid value: "": needs to be unset`,
				`count: Invalid value: "": needs to be unset`,
				`source: Invalid value: "": needs to be unset`,
			},
		},
		{
			name: "events, series", event: newEvent(), version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 1} },
			want: []string{
				`series.count: Invalid value: "": should be at least 2`,
				"series.lastObservedTime: Required value",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.mutate != nil {
				test.mutate(test.event)
			}
			expect.FieldErrors(t, validation.ValidateEventCreate(test.event, test.version), test.want...)
		})
	}
}

func TestValidateEventUpdate(t *testing.T) {
	t.Parallel()
	change := func(e *corev1.Event) {
		e.InvolvedObject.Name, e.Reason, e.Message, e.Source.Host, e.Count = "b", "b", "b", "b", 2
		e.FirstTimestamp, e.LastTimestamp, e.Type = metav1.Now(), metav1.Now(), corev1.EventTypeWarning
		e.EventTime = metav1.NewMicroTime(microTime.Add(time.Microsecond))
		e.Action, e.Related, e.ReportingController, e.ReportingInstance = "b", &corev1.ObjectReference{}, "b", "b"
	}
	tests := []struct {
		name    string
		version schema.GroupVersion
		mutate  func(*corev1.Event)
		want    []string
	}{
		{name: "core changes all", version: corev1.SchemeGroupVersion, mutate: change},
		{
			name: "events changes nothing", version: eventsv1.SchemeGroupVersion, mutate: change,
			want: []string{
				"involvedObject: Invalid value", "reason: Invalid value", "message: Invalid value", "source: Invalid value",
				"firstTimestamp: Invalid value", "lastTimestamp: Invalid value", "count: Invalid value", "type: Invalid value",
				"eventTime: Invalid value", "action: Invalid value", "related: Invalid value",
				"reportingController: Invalid value", "reportingInstance: Invalid value",
			},
		},
		{
			name: "events changes the series", version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: microTime} },
		},
		{
			name: "events breaks the series", version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 0, LastObservedTime: microTime} },
			want:   []string{`series.count: Invalid value: "": should be at least 2`},
		},
		{
			name: "nanoseconds are lost in JSON", version: eventsv1.SchemeGroupVersion,
			mutate: func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(microTime.Add(999 * time.Nanosecond)) },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			updated := newEvent()
			test.mutate(updated)
			expect.FieldErrors(t, validation.ValidateEventUpdate(updated, newEvent(), test.version), test.want...)
		})
	}
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/annex-dev/annex/pkg/table"
)

type eventColumn = table.Column[*corev1.Event]

var eventDoc = corev1.Event{}.SwaggerDoc()

var eventTable = table.New(corev1.Resource("events"),
	eventColumn{Name: "Last Seen", Description: eventDoc["lastTimestamp"], Value: func(e *corev1.Event) any { return table.Since(lastSeen(e)) }},
	eventColumn{Name: "Type", Description: eventDoc["type"], Value: func(e *corev1.Event) any { return e.Type }},
	eventColumn{Name: "Reason", Description: eventDoc["reason"], Value: func(e *corev1.Event) any { return e.Reason }},
	eventColumn{Name: "Object", Description: eventDoc["involvedObject"], Value: func(e *corev1.Event) any { return involvedObject(e) }},
	eventColumn{
		Name: "Subobject", Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], Priority: table.Wide,
		Value: func(e *corev1.Event) any { return e.InvolvedObject.FieldPath },
	},
	eventColumn{Name: "Source", Description: eventDoc["source"], Priority: table.Wide, Value: func(e *corev1.Event) any { return eventSource(e) }},
	eventColumn{Name: "Message", Description: eventDoc["message"], Value: func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }},
	eventColumn{
		Name: "First Seen", Description: eventDoc["firstTimestamp"], Priority: table.Wide,
		Value: func(e *corev1.Event) any { return table.Since(firstSeen(e)) },
	},
	eventColumn{
		Name: "Count", Type: "integer", Description: eventDoc["count"], Priority: table.Wide,
		Value: func(e *corev1.Event) any { return eventCount(e) },
	},
	eventNameColumn(),
)

// eventNameColumn identifies the row. It is wide: names of events are meaningless to users.
func eventNameColumn() eventColumn {
	name := table.Name[*corev1.Event]()
	name.Priority = table.Wide
	return name
}

// Events of the core group have two timestamps and a count; events of events.k8s.io have the
// time of the first and a series.

func firstSeen(event *corev1.Event) time.Time {
	if !event.FirstTimestamp.IsZero() {
		return event.FirstTimestamp.Time
	}
	return event.EventTime.Time
}

func lastSeen(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	default:
		return firstSeen(event)
	}
}

func eventCount(event *corev1.Event) int64 {
	if event.Series != nil {
		return int64(event.Series.Count)
	}
	return max(int64(event.Count), 1)
}

func involvedObject(event *corev1.Event) string {
	kind := strings.ToLower(event.InvolvedObject.Kind)
	if event.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + event.InvolvedObject.Name
}

func eventSource(event *corev1.Event) string {
	component := cmp.Or(event.Source.Component, event.ReportingController)
	instance := cmp.Or(event.Source.Host, event.ReportingInstance)
	if instance == "" {
		return component
	}
	return component + ", " + instance
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	metavalidation "github.com/annex-dev/annex/pkg/apis/meta/validation"
)

// Limits of events with a reporting controller.
const (
	reportingInstanceLimit = 128
	actionLimit            = 128
	reasonLimit            = 128
	noteLimit              = 1024
)

// ValidateEventCreate validates a new event. Only events.k8s.io is strict.
func ValidateEventCreate(event *corev1.Event, version schema.GroupVersion) field.ErrorList {
	errs := validateEvent(event, version)
	if version == corev1.SchemeGroupVersion {
		return errs
	}
	errs = append(errs, metavalidation.ValidateObjectMeta(&event.ObjectMeta, true, apivalidation.NameIsDNSSubdomain)...)
	errs = append(errs, validateEventSeries(event.Series)...)
	if event.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if event.Type != corev1.EventTypeNormal && event.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", event.Type)))
	}
	deprecated := []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !event.FirstTimestamp.IsZero()},
		{"lastTimestamp", !event.LastTimestamp.IsZero()},
		{"count", event.Count != 0},
		{"source", event.Source != corev1.EventSource{}},
	}
	for _, value := range deprecated {
		if value.set {
			errs = append(errs, field.Invalid(field.NewPath(value.name), "", "needs to be unset"))
		}
	}
	return errs
}

// ValidateEventUpdate validates an update. In events.k8s.io only the series and the
// metadata may change.
func ValidateEventUpdate(newEvent, oldEvent *corev1.Event, version schema.GroupVersion) field.ErrorList {
	errs := validateEvent(newEvent, version)
	if version == corev1.SchemeGroupVersion {
		return errs
	}
	errs = append(errs, metavalidation.ValidateFinalizers(&newEvent.ObjectMeta)...)
	if !equality.Semantic.DeepEqual(newEvent.Series, oldEvent.Series) {
		errs = append(errs, validateEventSeries(newEvent.Series)...)
	}
	immutable := []struct {
		name               string
		newValue, oldValue any
	}{
		{"involvedObject", newEvent.InvolvedObject, oldEvent.InvolvedObject},
		{"reason", newEvent.Reason, oldEvent.Reason},
		{"message", newEvent.Message, oldEvent.Message},
		{"source", newEvent.Source, oldEvent.Source},
		{"firstTimestamp", newEvent.FirstTimestamp, oldEvent.FirstTimestamp},
		{"lastTimestamp", newEvent.LastTimestamp, oldEvent.LastTimestamp},
		{"count", newEvent.Count, oldEvent.Count},
		{"type", newEvent.Type, oldEvent.Type},
		{"eventTime", wireTime(newEvent.EventTime), wireTime(oldEvent.EventTime)},
		{"action", newEvent.Action, oldEvent.Action},
		{"related", newEvent.Related, oldEvent.Related},
		{"reportingController", newEvent.ReportingController, oldEvent.ReportingController},
		{"reportingInstance", newEvent.ReportingInstance, oldEvent.ReportingInstance},
	}
	for _, value := range immutable {
		errs = append(errs, apivalidation.ValidateImmutableField(value.newValue, value.oldValue, field.NewPath(value.name))...)
	}
	return errs
}

// wireTime truncates a time to the precision of JSON: a client that writes back an event
// in JSON must not change a time that had nanoseconds in protobuf.
func wireTime(t metav1.MicroTime) metav1.MicroTime {
	return metav1.NewMicroTime(t.Truncate(time.Microsecond).UTC())
}

func validateEventSeries(series *corev1.EventSeries) field.ErrorList {
	if series == nil {
		return nil
	}
	var errs field.ErrorList
	if series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// validateEvent validates events of both groups. One with an eventTime must have a
// reporting controller.
func validateEvent(event *corev1.Event, version schema.GroupVersion) field.ErrorList {
	var errs field.ErrorList
	if !eventNamespaceFits(event) {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), event.InvolvedObject.Namespace, "does not match event.namespace"))
	}
	if !event.EventTime.IsZero() {
		errs = append(errs, validateEventReporter(event, version)...)
	}
	return errs
}

// eventNamespaceFits reports whether the event is in the namespace of its object. Events
// about cluster-scoped objects are in default, or in kube-system for events.k8s.io.
func eventNamespaceFits(event *corev1.Event) bool {
	involved := event.InvolvedObject.Namespace
	switch {
	case event.EventTime.IsZero() && involved == "":
		return event.Namespace == metav1.NamespaceNone || event.Namespace == metav1.NamespaceDefault
	case event.EventTime.IsZero():
		return event.Namespace == involved
	case involved == "":
		return event.Namespace == metav1.NamespaceDefault || event.Namespace == metav1.NamespaceSystem
	default:
		return true
	}
}

func validateEventReporter(event *corev1.Event, version schema.GroupVersion) field.ErrorList {
	var errs field.ErrorList
	// The field has a different name in each group.
	controllerPath := field.NewPath("reportingController")
	if version == corev1.SchemeGroupVersion {
		controllerPath = field.NewPath("reportingComponent")
	}
	if event.ReportingController == "" {
		errs = append(errs, field.Required(controllerPath, ""))
	}
	errs = append(errs, metavalidation.Invalid(controllerPath, event.ReportingController, validation.IsQualifiedName(event.ReportingController))...)
	texts := []struct {
		name, value string
		required    bool
		limit       int
	}{
		{"reportingInstance", event.ReportingInstance, true, reportingInstanceLimit},
		{"action", event.Action, true, actionLimit},
		{"reason", event.Reason, true, reasonLimit},
		{"message", event.Message, false, noteLimit},
	}
	for _, text := range texts {
		if text.required && text.value == "" {
			errs = append(errs, field.Required(field.NewPath(text.name), ""))
		}
		if len(text.value) > text.limit {
			errs = append(errs, field.Invalid(field.NewPath(text.name), "", fmt.Sprintf("can have at most %v characters", text.limit)))
		}
	}
	return errs
}

// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	hostingv1alpha1 "github.com/annex-dev/annex/pkg/apis/hosting/v1alpha1"
	controllerframework "github.com/annex-dev/annex/pkg/controller/framework"
	hostingapply "github.com/annex-dev/annex/pkg/generated/applyconfiguration/hosting/v1alpha1"
	"github.com/annex-dev/annex/pkg/scheduler/framework"
)

const (
	reasonUnschedulable = "Unschedulable"

	eventScheduled        = "Scheduled"
	eventFailedScheduling = "FailedScheduling"

	// Limits of the API.
	maxNote    = 1024
	maxMessage = 32768
)

func (s *Scheduler) reportScheduled(resource *framework.Resource, best framework.StoreResult, decision framework.Decision) {
	placed := fmt.Sprintf("Placed on Store %s; ", best.Store)
	s.config.Events.Eventf(resource.HostedResource, nil, corev1.EventTypeNormal, eventScheduled, "Bind", "%s",
		placed+decision.Brief(maxNote-len(placed)))
}

// reportUnschedulable sets the condition Scheduled and records an event, if the reasons
// changed.
func (s *Scheduler) reportUnschedulable(ctx context.Context, resource *framework.Resource, decision framework.Decision) {
	message := decision.Brief(maxMessage)
	current := meta.FindStatusCondition(resource.Status.Conditions, hostingv1alpha1.HostedResourceScheduled)
	if current != nil && current.Status == metav1.ConditionFalse && current.Message == message && current.ObservedGeneration == resource.Generation {
		return
	}
	s.config.Events.Eventf(resource.HostedResource, nil, corev1.EventTypeWarning, eventFailedScheduling, "Schedule", "%s", decision.Brief(maxNote))
	condition := metav1.Condition{
		Type: hostingv1alpha1.HostedResourceScheduled, Status: metav1.ConditionFalse,
		ObservedGeneration: resource.Generation, Reason: reasonUnschedulable, Message: message,
	}
	controllerframework.SetTransitionTime(&condition, current, time.Now())
	status := hostingapply.HostedResourceStatus().WithConditions(controllerframework.ApplyCondition(condition))
	apply := hostingapply.HostedResource(resource.Name).WithUID(resource.UID).WithStatus(status)
	_, err := s.config.AnnexHostedResources.ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: s.config.Name, Force: true})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Failed to update the condition Scheduled, retrying")
		s.queue.AddRateLimited(resource.Name)
	}
}

// Events are rate limited, so that the events of a thousand resources do not delay
// placement. No event is dropped.
const (
	eventsPerSecond = 100
	eventsBurst     = 100
)

// NewEventBroadcaster returns a broadcaster that limits the rate of events.
func NewEventBroadcaster(client eventsv1client.EventsV1Interface) events.EventBroadcaster {
	return events.NewBroadcaster(&rateLimitedSink{
		EventSink: &events.EventSinkImpl{Interface: client},
		limiter:   flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsBurst),
	})
}

// rateLimitedSink has no Update: a series is patched.
type rateLimitedSink struct {
	events.EventSink
	limiter flowcontrol.RateLimiter
}

// Create implements events.EventSink.
func (s *rateLimitedSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if err := s.limiter.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait to write an event: %w", err)
	}
	return s.EventSink.Create(ctx, event)
}

// Patch implements events.EventSink.
func (s *rateLimitedSink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if err := s.limiter.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait to write an event: %w", err)
	}
	return s.EventSink.Patch(ctx, event, data)
}

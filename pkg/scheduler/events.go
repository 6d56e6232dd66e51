// Copyright The annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	eventsv1 "k8s.io/api/events/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
)

// What is told of a thousand resources that are placed at once must not be in the way
// of placing them: events are written at this pace, and late rather than never.
const (
	eventsPerSecond = 100
	eventsAtOnce    = 100
)

// NewEventBroadcaster returns one that writes events at a pace that leaves a server
// time for what they are about.
func NewEventBroadcaster(client eventsv1client.EventsV1Interface) events.EventBroadcaster {
	return events.NewBroadcaster(&pacedSink{
		EventSink: &events.EventSinkImpl{Interface: client},
		pace:      flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventsAtOnce),
	})
}

// pacedSink writes events at a pace. There are no updates: a series is patched.
type pacedSink struct {
	events.EventSink
	pace flowcontrol.RateLimiter
}

// Create implements events.EventSink.
func (s *pacedSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	if err := s.pace.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait to write an event: %w", err)
	}
	return s.EventSink.Create(ctx, event)
}

// Patch implements events.EventSink.
func (s *pacedSink) Patch(ctx context.Context, event *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	if err := s.pace.Wait(ctx); err != nil {
		return nil, fmt.Errorf("wait to write an event: %w", err)
	}
	return s.EventSink.Patch(ctx, event, data)
}
